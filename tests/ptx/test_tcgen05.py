"""TMEM and tcgen05.mma through whole kernels (PTX ISA 9.7.16)."""

import numpy as np
import operands
import pytest
from ptx_harness import Launch, run

from fa4_cute.emulator import EmulationError, Schedule, encode_tensor_map
from fa4_cute.tensor_map import TensorMapArgs

SCHEDULES = [Schedule.eager(), Schedule.lazy(), *map(Schedule.random, range(4))]
ALLOC = """mov.u32 %r0, %tid.x;
mov.u32 %r1, %warpid;
mov.u32 %r2, smem;
setp.eq.u32 %p0, %r0, 0;
setp.eq.u32 %p1, %r1, 0;
@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2+8], 64;
bar.sync 0;
ld.shared.b32 %r10, [%r2+8];
shl.b32 %r11, %r1, 21;
add.u32 %r12, %r10, %r11;
"""  # %r10: TMEM address; %r12: the same with the warp's lane quarter
DEALLOC = """bar.sync 0;
@%p1 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r10, 64;
@%p1 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;
"""


def vector(first, count):
    return "{" + ", ".join(f"%r{first + i}" for i in range(count)) + "}"


def test_store_and_load():
    """Each thread writes 4 columns of its lane and reads the last two of them at their own address."""
    out = np.zeros((128, 2), np.uint32)
    body = ALLOC + "".join(f"mad.lo.u32 %r{20 + i}, %r0, 100, {i};\n" for i in range(4))
    body += f"""tcgen05.st.sync.aligned.32x32b.x4.b32 [%r12+8], {vector(20, 4)};
tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x2.b32 {vector(30, 2)}, [%r12+10];
tcgen05.wait::ld.sync.aligned;
mad.wide.u32 %q0, %r0, 8, %out;
st.global.v2.b32 [%q0], {vector(30, 2)};
"""
    run(body + DEALLOC, {"out": out}, Launch(block=128, smem_bytes=16))
    np.testing.assert_array_equal(out, np.arange(128)[:, None] * 100 + [2, 3])


def test_columns_overwritten_while_a_load_is_in_flight():
    """The values came out right: whether the store overtakes the load is up to the schedule."""
    body = ALLOC + "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%r0};\ntcgen05.wait::st.sync.aligned;\n"
    body += "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r12];\n{}"
    body += "tcgen05.st.sync.aligned.32x32b.x1.b32 [%r12], {%r1};\ntcgen05.wait::st.sync.aligned;\n"
    body += "tcgen05.wait::ld.sync.aligned;\n" + DEALLOC
    for seed in range(20):
        ordered = body.replace("{}", "tcgen05.wait::ld.sync.aligned;\n")
        run(ordered, {}, Launch(block=128, smem_bytes=16, schedule=Schedule.random(seed)))
    with pytest.raises(EmulationError, match=r"tcgen05.ld of PTX line \d+: the columns changed while it was in flight"):
        for seed in range(20):
            run(body.replace("{}", ""), {}, Launch(block=128, smem_bytes=16, schedule=Schedule.random(seed)))


def mma_body(steps=4):
    """A (128, 64) and B (64, 64), K-major in 128 B swizzle at 1024 and 17408; D (128, 64) f32 to %out."""
    load = "cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
    constant = operands.descriptor(0, 0, 1024, "128B")
    body = (
        "@%p0 mbarrier.init.shared::cta.b64 [%r2], 1;\n@%p0 mbarrier.init.shared::cta.b64 [%r2+16], 1;\nbar.sync 0;\n"
    )
    body += f"""@!%p0 bra READ;
mov.b64 %q10, map_a;
cvta.param.u64 %q1, %q10;
mov.b64 %q11, map_b;
cvta.param.u64 %q2, %q11;
mov.b32 %r4, 0;
add.u32 %r5, %r2, 1024;
add.u32 %r6, %r2, 17408;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%r2], {(128 + 64) * 128};
{load} [%r5], [%q1, {{%r4, %r4}}], [%r2];
{load} [%r6], [%q2, {{%r4, %r4}}], [%r2];
FULL:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2], 0;
@!%p2 bra FULL;
shr.u32 %r5, %r5, 4;
shr.u32 %r6, %r6, 4;
cvt.u64.u32 %q3, %r5;
cvt.u64.u32 %q4, %r6;
or.b64 %q3, %q3, {constant};
or.b64 %q4, %q4, {constant};
mov.b32 %r7, {operands.idesc(128, 64)};
setp.ne.u32 %p3, %r0, 0;
"""
    for _ in range(steps):
        body += "tcgen05.mma.cta_group::1.kind::f16 [%r10], %q3, %q4, %r7, %p3;\n"
        body += "setp.eq.u32 %p3, %r0, 0;\nadd.s64 %q3, %q3, 2;\nadd.s64 %q4, %q4, 2;\n"
    return body + (
        f"""add.u32 %r8, %r2, 16;
tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r8];
READ:
mbarrier.try_wait.parity.shared::cta.b64 %p2, [%r2+16], 0;
@!%p2 bra READ;
bar.warp.sync -1;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x64.b32 {vector(20, 64)}, [%r12];
tcgen05.wait::ld.sync.aligned;
mad.wide.u32 %q0, %r0, 256, %out;
"""
        + "".join(f"st.global.v4.b32 [%q0+{4 * i}], {vector(20 + i, 4)};\n" for i in range(0, 64, 4))
    )


def bf16_map(buffer, rows):
    return lambda addresses: encode_tensor_map(
        TensorMapArgs("bf16", addresses[buffer], (64, rows), (128,), (64, rows), swizzle="128B")
    )


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_product(schedule):
    """TMA -> shared -> MMA -> TMEM -> registers -> global: exact, as all sums of these values fit in f32."""
    rng = np.random.default_rng(2)
    a, b = rng.integers(-32, 32, (128, 64)) / 8.0, rng.integers(-32, 32, (64, 64)) / 8.0
    bits = [(x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for x in (a, b)]
    out = np.full((128, 64), np.nan, np.float32)
    maps = {"map_a": bf16_map("a", 128), "map_b": bf16_map("b", 64)}
    launch = Launch(block=128, smem_bytes=25600, maps=maps, schedule=schedule)
    stats = run(ALLOC + mma_body() + DEALLOC, {"a": bits[0], "b": bits[1], "out": out}, launch)
    np.testing.assert_array_equal(out, a @ b.T)
    assert stats.mma_count == 4


def test_leak_at_exit():
    with pytest.raises(EmulationError, match=r"CTA \(0,0,0\) exits with 64 TMEM columns still allocated"):
        run(ALLOC, {}, Launch(block=128, smem_bytes=16))


def test_columns_that_are_not_allocated():
    body = ALLOC + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r12+64];\n" + DEALLOC
    with pytest.raises(EmulationError, match=r"TMEM column 64 .* is not allocated"):
        run(body, {}, Launch(block=128, smem_bytes=16))


def test_lanes_of_another_warp():
    body = ALLOC + "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r10];\n" + DEALLOC
    with pytest.raises(EmulationError, match="not reachable"):
        run(body, {}, Launch(block=128, smem_bytes=16))


def test_allocation_after_giving_up_the_permit():
    again = "@%p1 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%r2+8], 64;\n"
    with pytest.raises(EmulationError, match=r"after tcgen05\.relinquish_alloc_permit"):
        run(ALLOC + DEALLOC + again, {}, Launch(block=128, smem_bytes=16))


def test_load_by_part_of_a_warp():
    body = ALLOC + "setp.lt.u32 %p4, %r0, 3;\n@%p4 bra END;\n"
    body += "tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r20}, [%r12];\nEND:\n" + DEALLOC
    with pytest.raises(EmulationError, match=r"tcgen05\.ld executed by lanes 0xfffffff8"):
        run(body, {}, Launch(block=128, smem_bytes=16))
