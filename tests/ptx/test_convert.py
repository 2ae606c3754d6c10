"""cvt: packed halves and integer widths (PTX ISA 9.7.9.22)."""

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import lanes, one

RNG = np.random.default_rng(5)
VALUES = np.concatenate(
    [
        np.array([0.0, -0.0, 1.0, 65504.0, 65519.99, 65520.0, 1e-7, 6e-8, 2.9e-8, 1e-40, 3.4e38, np.inf, -np.inf]),
        1 + np.array([1, 3, 5, 7]) * 2.0**-9,  # ties of bf16
        1 + np.array([1, 3, 5, 7]) * 2.0**-12,  # ties of f16
        1 + np.array([1, 3]) * 2.0**-9 + 2.0**-20,  # just above ties
        RNG.standard_normal(200) * 2.0 ** RNG.integers(-30, 30, 200),
    ]
).astype(np.float32)


@pytest.mark.parametrize("name, dtype", [("bf16x2", ml_dtypes.bfloat16), ("f16x2", np.float16)])
def test_packed_halves(name, dtype):
    """The first source goes to the high half; both round to nearest even."""
    a, b = VALUES, VALUES[::-1].copy()
    got = one(f"cvt.rn.{name}.f32 %d, %a, %b;", {"a": a, "b": b}, "u32")
    with np.errstate(over="ignore"):
        high, low = (x.astype(dtype).view(np.uint16).astype(np.uint32) for x in (a, b))
    np.testing.assert_array_equal(got, high << 16 | low)


@pytest.mark.parametrize("name", ["bf16x2", "f16x2"])
def test_packed_nan_is_canonical(name):
    a = np.array([0x7FC00001, 0xFF812345], np.uint32).view(np.float32)
    np.testing.assert_array_equal(one(f"cvt.rn.{name}.f32 %d, %a, %a;", {"a": a}, "u32"), 0x7FFF7FFF)


INTEGERS = np.array([0, 1, 127, 128, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint64)


@pytest.mark.parametrize("target", ["u32", "s32", "u64", "s64"])
@pytest.mark.parametrize("source", ["u32", "s32", "u64", "s64"])
def test_integer_widths(source, target):
    """Widening extends by the source's sign, narrowing drops high bits."""
    size = int(source[1:]) // 8
    a = (INTEGERS * np.uint64(0x100000001 if size == 8 else 1)).astype(f"u{size}")
    a = a.view(f"i{size}") if source[0] == "s" else a
    got = one(f"cvt.{target}.{source} %d, %a;", {"a": a}, target)
    width = int(target[1:])
    want = np.array([int(x) & ((1 << width) - 1) for x in a], f"u{width // 8}")
    np.testing.assert_array_equal(got.view(want.dtype), want)


def test_sixteen_bits():
    a = INTEGERS.astype(np.uint32)
    got = lanes("cvt.u16.u32 %d, %a;\ncvt.u32.u16 %e, %d;", {"a": a}, {"d": "u16", "e": "u32"})
    np.testing.assert_array_equal(got["d"], a.astype(np.uint16))
    np.testing.assert_array_equal(got["e"], a & 0xFFFF)


@pytest.mark.parametrize("source", ["u32", "s32"])
def test_integer_to_float_rounds_to_nearest(source):
    a = np.concatenate([INTEGERS, [0x01000001, 0x01000003, 0x7FFFFFBF, 0xFFFFFF7F]]).astype(np.uint32)
    a = a.view(np.int32) if source == "s32" else a
    np.testing.assert_array_equal(one(f"cvt.rn.f32.{source} %d, %a;", {"a": a}, "f32"), a.astype(np.float32))
