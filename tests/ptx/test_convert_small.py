"""cvt of 8-, 6- and 4-bit floats and tf32 against ml_dtypes and rational arithmetic (PTX ISA 9.7.9.22)."""

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import Launch, kernel_text, lanes, one

from fa4_cute.emulator import Module, PtxError

FORMATS = {  # dtype, bits of an element in a pair, code of NaN
    "e4m3x2": (ml_dtypes.float8_e4m3fn, 8, 0x7F),
    "e5m2x2": (ml_dtypes.float8_e5m2, 8, 0x7F),
    "e2m3x2": (ml_dtypes.float6_e2m3fn, 8, 0x1F),
    "e3m2x2": (ml_dtypes.float6_e3m2fn, 8, 0x1F),
    "e2m1x2": (ml_dtypes.float4_e2m1fn, 4, 0x7),
}


def codes(values, name):
    """Nearest even after clamping to the largest finite value; NaN is the code that the ISA gives it."""
    dtype, _, nan = FORMATS[name]
    most = float(ml_dtypes.finfo(dtype).max)
    clamped = np.clip(values.astype(np.float64), -most, most)
    return np.where(np.isnan(values), nan, clamped.astype(dtype).view(np.uint8)).astype(np.uint32)


def samples(dtype=np.float32):
    """Every halfway point and value of every format, their neighbours, random values, and the special ones."""
    rng, values = np.random.default_rng(1), []
    for fmt, _, _ in FORMATS.values():
        exact = np.arange(256, dtype=np.uint8).view(fmt) if fmt.__name__.startswith("float8") else None
        exact = np.arange(64, dtype=np.uint8).view(fmt) if exact is None else exact
        exact = np.unique(exact.astype(np.float64)[np.isfinite(exact.astype(np.float64))])
        values += [exact, (exact[1:] + exact[:-1]) / 2]
    exact = np.concatenate(values).astype(dtype)
    near = [np.nextafter(exact, dtype(np.inf)), np.nextafter(exact, dtype(-np.inf))]
    spread = (rng.standard_normal(512) * 2.0 ** rng.integers(-20, 17, 512)).astype(dtype)
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 6e4, -6e4], dtype)
    return np.concatenate([exact, *near, spread, special])


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", list(FORMATS))
def test_from_f32(name, relu):
    """The first operand goes to the upper part."""
    a = samples()
    b = np.roll(a, 7)
    got = one(f"cvt.rn.satfinite{relu}.{name}.f32 %h0, %a, %b;\ncvt.u32.u16 %d, %h0;", {"a": a, "b": b}, "u32")
    if relu:
        a, b = (np.where(x <= 0, 0, x) for x in (a, b))
    np.testing.assert_array_equal(got, codes(a, name) << FORMATS[name][1] | codes(b, name))


@pytest.mark.parametrize("source", ["f16x2", "bf16x2"])
@pytest.mark.parametrize("name", list(FORMATS))
def test_from_half(name, source):
    dtype = np.float16 if source == "f16x2" else ml_dtypes.bfloat16
    with np.errstate(over="ignore"):
        a = samples().astype(dtype)
    b = np.roll(a, 7)
    packed = a.view(np.uint16).astype(np.uint32) << 16 | b.view(np.uint16)
    got = one(f"cvt.rn.satfinite.{name}.{source} %h0, %a;\ncvt.u32.u16 %d, %h0;", {"a": packed}, "u32")
    want = codes(a.astype(np.float32), name) << FORMATS[name][1] | codes(b.astype(np.float32), name)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("relu", ["", ".relu"])
@pytest.mark.parametrize("name", list(FORMATS))
def test_to_f16_is_exact(name, relu):
    dtype, stride, _ = FORMATS[name]
    count = {8: 256, 4: 16}[stride] if stride == 4 or name in ("e4m3x2", "e5m2x2") else 64
    a = np.arange(count, dtype=np.uint32)
    b = np.roll(a, 3)
    body = f"cvt.u16.u32 %h0, %a;\ncvt.rn{relu}.f16x2.{name} %d, %h0;"
    got = one(body, {"a": a << stride | b}, "u32")
    for values, part in ((a, got >> 16), (b, got & 0xFFFF)):
        want = values.astype(np.uint8).view(dtype).astype(np.float64)
        want = np.where(want <= 0, 0, want) if relu else want
        result = part.astype(np.uint16).view(np.float16).astype(np.float64)
        np.testing.assert_array_equal(result, want)
        np.testing.assert_array_equal(np.signbit(result[want == 0]), np.signbit(want[want == 0]))


@pytest.mark.parametrize("mode", ["rna", "rn", "rz"])
def test_tf32(mode):
    """10 mantissa bits; ties away from zero, to even, or cut off."""
    rng = np.random.default_rng(2)
    bits = rng.integers(0, 1 << 32, 2000, dtype=np.uint64).astype(np.uint32)
    bits[:600] = (bits[:600] & 0xFFFFE000) | 0x1000  # ties
    bits[:4] = [0x7F800000, 0xFF800000, 0x7FC00001, 0x80000000]
    a = bits.view(np.float32)
    got = one(f"cvt.{mode}.tf32.f32 %d, %a;", {"a": a}, "u32")
    finite = np.isfinite(a)
    steps, magnitude = (bits & 0x7FFFFFFF).astype(np.int64) >> 13, (bits & 0x1FFF).astype(np.int64)
    up = {"rna": magnitude >= 0x1000, "rn": (magnitude > 0x1000) | ((magnitude == 0x1000) & (steps % 2 == 1))}
    want = (steps + up.get(mode, np.zeros(len(bits), bool))) << 13 | (bits & 0x80000000).astype(np.int64)
    np.testing.assert_array_equal(got[finite], want[finite])
    np.testing.assert_array_equal(got[:3], [0x7F800000, 0xFF800000, 0x7FFFFFFF])
    assert (got[np.isnan(a)] == 0x7FFFFFFF).all()


def test_tf32_clamps():
    largest = np.finfo(np.float32).max
    a = np.array([largest, -largest, np.inf, -2.0, 2.0], np.float32)
    got = lanes("cvt.rn.satfinite.tf32.f32 %d, %a;\ncvt.rn.relu.tf32.f32 %e, %a;", {"a": a}, {"d": "f32", "e": "f32"})
    most = np.array([0x7F7FE000], np.uint32).view(np.float32)[0]
    np.testing.assert_array_equal(got["d"], [most, -most, most, -2, 2])
    np.testing.assert_array_equal(got["e"], [np.inf, 0, np.inf, 0, 2])


@pytest.mark.parametrize(
    ("instruction", "reason"),
    [
        ("cvt.rn.e4m3x2.f32 %h0, %r0, %r1;", "missing"),
        ("cvt.rz.satfinite.e4m3x2.f32 %h0, %r0, %r1;", "missing"),
        ("cvt.rn.satfinite.e4m3x2.f32 %h0, %r0;", "3 operands"),
        ("cvt.rn.satfinite.e4m3x2.s32 %h0, %r0, %r1;", "unsupported conversion"),
        ("cvt.rn.bf16x2.e4m3x2 %r0, %h0;", "unsupported conversion"),
        ("cvt.rna.relu.tf32.f32 %r0, %r1;", "unknown modifier"),
    ],
)
def test_refused_when_parsed(instruction, reason):
    with pytest.raises(PtxError, match=reason):
        Module(kernel_text(instruction, (), Launch())).program("k")
