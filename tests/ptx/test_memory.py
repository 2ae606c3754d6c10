"""ld and st of every width in the param, shared and global spaces (PTX ISA 9.7.9.8, 9.7.9.11)."""

import numpy as np
import pytest
from ptx_harness import Launch, run

from fa4_cute.emulator import EmulationError

DATA = np.random.default_rng(9).integers(0, 256, 32 * 64, dtype=np.uint8)
WIDTHS = [("u8", 1), ("u16", 1), ("b32", 1), ("b64", 1), ("b32", 2), ("b64", 2), ("b32", 4), ("f32", 4), ("u16", 4)]


def registers(ptx_type, count):
    prefix = {"8": "%h", "16": "%h", "32": "%r", "64": "%q"}[ptx_type[1:]]
    if ptx_type == "f32":
        prefix = "%f"
    names = [f"{prefix}{4 + i}" for i in range(count)]
    return (names[0], "") if count == 1 else ("{" + ", ".join(names) + "}", f".v{count}")


@pytest.mark.parametrize("ptx_type, count", WIDTHS)
def test_copy_through_shared(ptx_type, count):
    """global -> registers -> shared -> registers (other lane's data) -> global."""
    size = int(ptx_type[1:]) // 8 * count
    regs, vector = registers(ptx_type, count)
    source, out = DATA[: 32 * size].copy(), np.zeros(32 * size, np.uint8)
    body = f"""mov.u32 %r0, %tid.x;
mul.lo.u32 %r1, %r0, {size};
cvt.u64.u32 %q0, %r1;
add.s64 %q1, %source, %q0;
add.s64 %q2, %out, %q0;
ld.global{vector}.{ptx_type} {regs}, [%q1];
mov.u32 %r2, smem;
add.u32 %r3, %r2, %r1;
st.shared{vector}.{ptx_type} [%r3+16], {regs};
bar.sync 0;
mul.lo.u32 %r100, %r0, -{size};
add.u32 %r100, %r100, %r2;
ld.shared{vector}.{ptx_type} {regs}, [%r100+{16 + 31 * size}];
st.global{vector}.{ptx_type} [%q2], {regs};"""
    run(body, {"source": source, "out": out}, Launch(smem_bytes=2048, read_only=("source",)))
    np.testing.assert_array_equal(out.reshape(32, size), source.reshape(32, size)[::-1])


@pytest.mark.parametrize("ptx_type", ["s8", "u8", "s16", "u16"])
def test_narrow_loads_extend(ptx_type):
    size = int(ptx_type[1:]) // 8
    source = np.array([0, 1, 0x7F, 0x80, 0xFF, 0xFE], np.uint8).astype(np.int8)
    source = np.resize(source, 32).astype(f"{'i' if ptx_type[0] == 's' else 'u'}{size}")
    out = np.zeros(32, np.int32)
    body = f"""mov.u32 %r0, %tid.x;
mad.wide.u32 %q0, %r0, {size}, %source;
mad.wide.u32 %q1, %r0, 4, %out;
ld.global.{ptx_type} %r1, [%q0];
st.global.b32 [%q1], %r1;"""
    run(body, {"source": source, "out": out})
    np.testing.assert_array_equal(out, source.astype(np.int32))


def test_narrow_store_leaves_neighbours():
    out = np.full(64, 0xAA, np.uint8)
    body = "mov.u32 %r0, %tid.x;\nmad.wide.u32 %q0, %r0, 2, %out;\nmov.b32 %r1, 0x12345678;\nst.global.u8 [%q0+1], %r1;"
    run(body, {"out": out})
    np.testing.assert_array_equal(out, np.tile([0xAA, 0x78], 32))


def test_negative_offset():
    out = np.zeros(4, np.uint32)
    run("add.s64 %q0, %out, 12;\nst.global.u32 [%q0+-8], 5;", {"out": out})
    np.testing.assert_array_equal(out, [0, 5, 0, 0])


def test_parameters_of_several_sizes():
    """Parameters follow C layout: a 64-byte aligned record after two pointers."""
    record = np.arange(128, dtype=np.uint8)
    out = np.zeros(8, np.uint32)
    body = """ld.param.v4.b32 {%r1, %r2, %r3, %r4}, [rec+16];
ld.param.u8 %r5, [rec+127];
ld.param.b64 %q0, [rec+64];
st.global.v4.b32 [%out], {%r1, %r2, %r3, %r4};
st.global.b32 [%out+16], %r5;
st.global.b64 [%out+24], %q0;"""
    run(body, {"unused": np.zeros(1), "out": out}, Launch(maps={"rec": lambda _: record.tobytes()}))
    np.testing.assert_array_equal(out[:4], record[16:32].view(np.uint32))
    assert out[4] == 127
    np.testing.assert_array_equal(out[6:], record[64:72].view(np.uint32))


def test_shared_memory_starts_poisoned():
    """What was never written is NaN in every float format, so that it cannot pass for a result."""
    out = np.zeros(32, np.float32)
    body = "mov.u32 %r0, %tid.x;\nmad.wide.u32 %q0, %r0, 4, %out;\n"
    body += "mov.u32 %r1, smem;\nld.shared.f32 %f0, [%r1];\nst.global.f32 [%q0], %f0;"
    run(body, {"out": out}, Launch(smem_bytes=64))
    assert np.isnan(out).all()


LOCAL = """.local .align 16 .b8 stack[48];
.local .align 8 .b8 more[8];
mov.u32 %r0, %tid.x;
mov.b64 %q1, stack;
cvta.local.u64 %q2, %q1;
mov.b64 %q3, more;
mad.lo.u32 %r1, %r0, 3, 7;
"""


def test_each_thread_has_its_own_local_memory():
    """Through the local and the generic space; a loop over an index that no register array could take."""
    out = np.zeros((64, 4), np.uint32)
    body = (
        LOCAL
        + """st.local.v2.b32 [%q1+8], {%r0, %r1};
    st.u32 [%q2+40], %r1;
    st.local.b64 [%q3], %q2;
    ld.u32 %r4, [%q2+8];
    ld.local.b32 %r5, [%q1+40];
    ld.local.b64 %q4, [%q3];
    cvta.to.local.u64 %q5, %q4;
    ld.local.b32 %r6, [%q5+12];
    isspacep.local %p0, %q4;
    selp.u32 %r7, 1, 0, %p0;
    mad.wide.u32 %q6, %r0, 16, %out;
    st.global.v4.b32 [%q6], {%r4, %r5, %r6, %r7};
    """
    )
    run(body, {"out": out}, Launch(block=64, strict=True))
    thread = np.arange(64)
    np.testing.assert_array_equal(out, np.stack([thread, 3 * thread + 7, 3 * thread + 7, np.ones(64, int)], 1))


@pytest.mark.parametrize("address", ["[%q1+52]", "[%q1+-4]", "[%q2+52]", "[%q3+8]"])
def test_local_memory_ends(address):
    with pytest.raises(EmulationError, match="outside the thread's 56 bytes"):
        run(LOCAL + f"ld{'' if 'q2' in address else '.local'}.b32 %r4, {address.replace('+52', '+56')};\n")


def test_loads_extend_into_wider_registers():
    values = np.array([-5, 7, -(2**31), 2**31 - 1] * 8, np.int32)
    out = np.zeros((32, 2), np.int64)
    body = """mov.u32 %r0, %tid.x;
    mad.wide.u32 %q1, %r0, 4, %source;
    ld.global.s32 %q2, [%q1];
    ld.global.u32 %q3, [%q1];
    mad.wide.u32 %q4, %r0, 16, %out;
    st.global.v2.b64 [%q4], {%q2, %q3};
    """
    run(body, {"source": values, "out": out})
    np.testing.assert_array_equal(out[:, 0], values)
    np.testing.assert_array_equal(out[:, 1], values.view(np.uint32))
