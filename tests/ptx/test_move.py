"""mov: immediates, special registers, packing and unpacking (PTX ISA 9.7.9)."""

import numpy as np
from ptx_harness import Launch, lanes, one, run

RNG = np.random.default_rng(3)
WORDS = RNG.integers(0, 1 << 32, (2, 64), dtype=np.uint32)


def test_pack_first_element_is_low():
    got = one("mov.b64 %d, {%a, %b};", {"a": WORDS[0], "b": WORDS[1]}, "u64")
    np.testing.assert_array_equal(got, WORDS[0].astype(np.uint64) | WORDS[1].astype(np.uint64) << np.uint64(32))


def test_unpack_pairs():
    a = WORDS[0].astype(np.uint64) | WORDS[1].astype(np.uint64) << np.uint64(32)
    got = lanes("mov.b64 {%d, %e}, %a;", {"a": a}, {"d": "u32", "e": "u32"})
    np.testing.assert_array_equal(got["d"], WORDS[0])
    np.testing.assert_array_equal(got["e"], WORDS[1])


def test_unpack_with_a_sink():
    a = WORDS[0].astype(np.uint64) | WORDS[1].astype(np.uint64) << np.uint64(32)
    np.testing.assert_array_equal(one("mov.b64 {_, %d}, %a;", {"a": a}, "u32"), WORDS[1])


def test_halves():
    low, high = (w.astype(np.uint16) for w in WORDS)
    got = one("mov.b32 %d, {%a, %b};", {"a": low, "b": high}, "u32")
    np.testing.assert_array_equal(got, low.astype(np.uint32) | high.astype(np.uint32) << 16)
    back = lanes("mov.b32 {%d, %e}, %a;", {"a": got}, {"d": "u16", "e": "u16"})
    np.testing.assert_array_equal(back["d"], low)
    np.testing.assert_array_equal(back["e"], high)


def test_immediates():
    a = np.zeros(1, np.uint32)
    body = "mov.f32 %d, 0f3FC00000;\nmov.b32 %e, -2;\nmov.b64 %f, 0x123456789ABCDEF0;\nmov.b32 %g, %a;"
    got = lanes(body, {"a": a}, {"d": "f32", "e": "s32", "f": "u64", "g": "u32"})
    assert [got[n][0] for n in "defg"] == [1.5, -2, 0x123456789ABCDEF0, 0]


def test_special_registers():
    out = np.zeros((3 * 64, 6), np.uint32)
    names = ("tid.x", "ctaid.x", "ntid.x", "nctaid.x", "laneid", "warpid")
    body = "mov.u32 %r0, %tid.x;\nmov.u32 %r1, %ctaid.x;\nmad.lo.u32 %r2, %r1, 64, %r0;\n"
    body += "mad.wide.u32 %q0, %r2, 24, %out;\n"
    for i, name in enumerate(names):
        body += f"mov.u32 %r3, %{name};\nst.global.u32 [%q0+{4 * i}], %r3;\n"
    run(body, {"out": out}, Launch(block=64, grid=3))
    tid, cta = np.tile(np.arange(64), 3), np.repeat(np.arange(3), 64)
    want = np.stack([tid, cta, np.full(192, 64), np.full(192, 3), tid % 32, tid // 32], 1)
    np.testing.assert_array_equal(out, want)


def test_block_that_does_not_fill_its_last_warp():
    out = np.zeros(64, np.uint32)
    body = "mov.u32 %r0, %laneid;\nmov.u32 %r1, %warpid;\nmad.lo.u32 %r2, %r1, 32, %r0;\n"
    body += "mad.wide.u32 %q0, %r2, 4, %out;\nst.global.u32 [%q0], 1;"
    run(body, {"out": out}, Launch(block=40))
    np.testing.assert_array_equal(out, np.arange(64) < 40)
