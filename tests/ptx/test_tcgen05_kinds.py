"""tcgen05.mma kinds, tcgen05.cp and 16x32bx2 through whole kernels, strictly (PTX ISA 9.7.16)."""

import ml_dtypes
import numpy as np
import operands
import pytest
from ptx_harness import Launch, kernel_text, run

from fa4_cute.emulator import EmulationError, Module, PtxError, Schedule

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(3))]
IMAGE = 8192  # bytes of shared memory that come from the host, from smem + 1024 on
START = f"""mov.u32 %r0, %tid.x;
mov.u32 %r1, %warpid;
mov.u32 %r2, smem;
setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p1, %r1, 0;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2+8], 64;
@%p0 mbarrier.init.shared::cta.b64 [%r2+16], 1;
mov.u32 %r3, %r0;
COPY:
mad.wide.u32 %q0, %r3, 4, %image;
ld.global.b32 %r4, [%q0];
mad.lo.u32 %r5, %r3, 4, %r2;
st.shared.b32 [%r5+1024], %r4;
add.u32 %r3, %r3, 128;
setp.lt.u32 %p2, %r3, {IMAGE // 4};
@%p2 bra COPY;
fence.proxy.async.shared::cta;
tcgen05.fence::before_thread_sync;
bar.sync 0;
tcgen05.fence::after_thread_sync;
ld.shared.b32 %r10, [%r2+8];
shl.b32 %r11, %r1, 21;
add.u32 %r12, %r10, %r11;
add.u32 %r5, %r2, 1024;
shr.u32 %r5, %r5, 4;
cvt.u64.u32 %q1, %r5;
"""  # %r10: TMEM address; %r12: the same with the warp's lane quarter; %q1: start of the image in a matrix descriptor
FINISH = """bar.warp.sync -1;
bar.sync 0;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
@%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
"""
WAIT = """WAIT:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+16], 0;
@!%p2 bra WAIT;
bar.warp.sync -1;
tcgen05.fence::after_thread_sync;
"""
COMMIT = """add.u32 %r8, %r2, 16;
@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
"""


def vector(first, count):
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def read_out(columns):
    """Every thread's lane, `columns` words from the first column, to %out."""
    body = f"tcgen05.ld.sync.aligned.32x32b.x{columns}.b32 {vector(20, columns)}, [%r12];\n"
    body += "tcgen05.wait::ld.sync.aligned;\n" + f"mad.wide.u32 %q0, %r0, {4 * columns}, %out;\n"
    return body + "".join(f"st.global.v4.b32 [%q0+{4 * i}], {vector(20 + i, 4)};\n" for i in range(0, columns, 4))


def launch(schedule=None):
    return Launch(block=128, smem_bytes=1024 + IMAGE, schedule=schedule or Schedule.eager(), strict=True)


def place(image, at, values):
    """A K-major operand of 32-byte rows without swizzle; returns what to add to the image's start in a descriptor."""
    lbo, sbo, _ = operands.place_k_major(image, at, values, "none")
    return operands.descriptor(at, lbo, sbo, "none")


KINDS = [  # kind, element, codes of A and B, code of D, dtype of D
    ("f8f6f4", ml_dtypes.float8_e4m3fn, 0, 1, np.float32),
    ("f8f6f4", ml_dtypes.float8_e5m2, 1, 1, np.float32),
    ("i8", np.int8, 1, 2, np.int32),
    ("tf32", np.float32, 2, 1, np.float32),
]


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize(("kind", "element", "code", "d_code", "d_type"), KINDS)
def test_product(kind, element, code, d_code, d_type, schedule):
    """D = A B over two steps of K, in order of issue; lanes 3 and 64 to 95 are disabled in the second."""
    rng = np.random.default_rng(3)
    k = 32 // np.dtype(element).itemsize
    a, b = rng.integers(-4, 5, (128, k)), rng.integers(-4, 5, (16, k))
    image, out = np.zeros(IMAGE, np.uint8), np.zeros((128, 16), d_type)
    desc_a, desc_b = (
        place(image, 0, a.astype(element).view(np.uint8)),
        place(image, 4096, b.astype(element).view(np.uint8)),
    )
    inst = d_code << 4 | code << 7 | code << 10 | 16 >> 3 << 17 | 128 >> 4 << 24
    body = START + f"add.s64 %q2, %q1, {desc_a};\nadd.s64 %q3, %q1, {desc_b};\nmov.b32 %r7, {inst};\n"
    body += "mov.b32 %r13, 8;\nmov.b32 %r14, 0;\nmov.b32 %r15, 0xFFFFFFFF;\n"
    body += f"""@%p0 tcgen05.mma.cta_group::1.kind::{kind} [%r10], %q2, %q3, %r7, 0;
@%p0 tcgen05.mma.cta_group::1.kind::{kind}.collector::a::fill [%r10], %q2, %q3, %r7, {{%r13, %r14, %r15, %r14}}, 1;
"""
    stats = run(
        body + COMMIT + WAIT + read_out(16) + FINISH, {"image": image.view(np.uint32), "out": out}, launch(schedule)
    )
    lanes = np.arange(128)
    times = np.where((lanes == 3) | (lanes // 32 == 2), 1, 2)
    np.testing.assert_array_equal(out, (a @ b.T) * times[:, None])
    assert stats.mma_count == 2


def test_scale_input_d():
    a, b = np.ones((128, 8), np.float32), np.ones((8, 8), np.float32)
    image, out = np.zeros(IMAGE, np.uint8), np.zeros((128, 8), np.float32)
    desc_a, desc_b = place(image, 0, a), place(image, 4096, b)
    inst = 1 << 4 | 2 << 7 | 2 << 10 | 1 << 17 | 8 << 24
    body = START + f"add.s64 %q2, %q1, {desc_a};\nadd.s64 %q3, %q1, {desc_b};\nmov.b32 %r7, {inst};\n"
    body += "@%p0 tcgen05.mma.cta_group::1.kind::tf32 [%r10], %q2, %q3, %r7, 0;\n"
    body += "@%p0 tcgen05.mma.cta_group::1.kind::tf32 [%r10], %q2, %q3, %r7, 1, 2;\n"
    run(body + COMMIT + WAIT + read_out(8) + FINISH, {"image": image.view(np.uint32), "out": out}, launch())
    assert (out == 8 + 8 / 4).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_copy_to_tensor_memory(schedule):
    """tcgen05.cp is tracked by tcgen05.commit; 32 rows reach all four warps."""
    words = np.arange(32 * 4, dtype=np.uint32).reshape(32, 4)
    image, out = np.zeros(IMAGE, np.uint8), np.zeros((128, 4), np.uint32)
    image[:512] = words.view(np.uint8).reshape(-1)  # rows of 16 bytes, 8 rows a core matrix
    desc = operands.descriptor(0, 0, 128, "none")
    body = START + f"add.s64 %q2, %q1, {desc};\n@%p0 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r10], %q2;\n"
    run(body + COMMIT + WAIT + read_out(4) + FINISH, {"image": image.view(np.uint32), "out": out}, launch(schedule))
    np.testing.assert_array_equal(out, np.tile(words, (4, 1)))


def test_copy_that_is_not_waited_for():
    desc = operands.descriptor(0, 0, 128, "none")
    body = START + f"add.s64 %q2, %q1, {desc};\n@%p0 tcgen05.cp.cta_group::1.32x128b.warpx4 [%r10], %q2;\n"
    image, out = np.zeros(IMAGE // 4, np.uint32), np.zeros((128, 4), np.uint32)
    with pytest.raises(
        EmulationError, match=r"race.*tcgen05\.cp|tcgen05\.cp.*race|nothing orders it after .*tcgen05\.cp"
    ):
        run(body + "bar.sync 0;\n" + read_out(4) + FINISH, {"image": image, "out": out}, launch())


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_store_and_load_of_two_halves(schedule):
    """16x32bx2 writes lanes 0-15 of a warp at two places; 32x32b reads lane by lane."""
    image, out = np.zeros(IMAGE // 4, np.uint32), np.zeros((128, 8), np.uint32)
    body = START + "".join(f"mad.lo.u32 %r{20 + i}, %r0, 100, {i};\n" for i in range(8))
    body += f"tcgen05.st.sync.aligned.32x32b.x8.b32 [%r12], {vector(20, 8)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.st.sync.aligned.16x32bx2.x2.b32 [%r12+1], 4, {vector(20, 2)};\ntcgen05.wait::st.sync.aligned;\n"
    body += f"tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {vector(30, 2)}, [%r12+1], 4;\ntcgen05.wait::ld.sync.aligned;\n"
    run(body + read_out(8) + FINISH, {"image": image, "out": out}, launch(schedule))
    want = np.arange(128)[:, None] * 100 + np.arange(8)
    for thread in range(128):
        lane, column = thread // 32 * 32 + thread % 16, 1 + 4 * (thread % 32 // 16)
        want[lane, column : column + 2] = thread * 100 + np.arange(2)
    np.testing.assert_array_equal(out, want)


REFUSED = [
    ("tcgen05.mma.cta_group::1.kind::mxf8f6f4.block_scale [%r0], %q0, %q1, %r1, [%r2], [%r3], 0;", r"\.block_scale"),
    ("tcgen05.mma.cta_group::1.kind::f16.collector::a::use [%r0], %q0, %q1, %r1, 0;", "collector::a::use"),
    ("tcgen05.mma.cta_group::1.kind::f16.collector::a::lastuse [%r0], %q0, %q1, %r1, 0;", "collector::a::lastuse"),
    ("tcgen05.mma.ws.cta_group::1.kind::f16 [%r0], %q0, %q1, %r1, 0;", r"\.ws"),
    ("tcgen05.mma.sp.cta_group::1.kind::f16 [%r0], %q0, %q1, [%r2], %r1, 0;", r"\.sp"),
    ("tcgen05.mma.cta_group::1.kind::f16.ashift [%r0], [%r4], %q1, %r1, 0;", r"\.ashift"),
    ("tcgen05.mma.cta_group::1.kind::mxf4 [%r0], %q0, %q1, %r1, 0;", "only kind"),
    ("tcgen05.mma.cta_group::1.kind::f8f6f4 [%r0], %q0, %q1, %r1, 0, 2;", "scale-input-d is for"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%r0], %q0, %q1, %r1, 0, 16;", "from 0 to 15"),
    ("tcgen05.mma.cta_group::1.kind::f16 [%r0], %q0, %q1, %r1, 0, %r2;", "from 0 to 15"),
    ("tcgen05.mma.cta_group::2.kind::f16 [%r0], %q0, %q1, %r1, {%r2, %r3, %r4, %r5}, 0;", "needs 8 registers"),
    ("tcgen05.shift.cta_group::1.down [%r0];", r"tcgen05\.shift"),
    ("tcgen05.cp.cta_group::1.64x128b [%r0], %q0;", "warpx2"),
    ("tcgen05.cp.cta_group::1.32x128b [%r0], %q0;", "warpx4"),
    ("tcgen05.cp.cta_group::1.128x128b.warpx4 [%r0], %q0;", "warpx4"),
    ("tcgen05.cp.cta_group::1.4x256b.warpx2::01_23 [%r0], %q0;", "no multicast"),
    ("tcgen05.cp.cta_group::1.128x128b.b8x16 [%r0], %q0;", "b6x16_p32"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r0, %r1}, [%r2], %r3;", "immediate from 0 to 511"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r0, %r1}, [%r2], 512;", "immediate from 0 to 511"),
    ("tcgen05.st.sync.aligned.16x32bx2.x2.b32 [%r2], 1, {%r0, %r1};", "overlap"),
    ("tcgen05.st.sync.aligned.16x32bx2.x2.unpack::16b.b32 [%r2], 3, {%r0, %r1};", "overlap"),
    ("tcgen05.ld.sync.aligned.16x32bx2.x2.b32 {%r0, %r1}, [%r2];", "expected 3 operands"),
    ("tcgen05.ld.red.sync.aligned.32x32b.x2.max.f32 {%r0, %r1}, %r3, [%r2];", "unsupported"),
]


@pytest.mark.parametrize(("instruction", "reason"), REFUSED)
def test_refused_when_parsed(instruction, reason):
    with pytest.raises(PtxError, match=reason):
        Module(kernel_text(instruction, (), Launch())).program("k")
