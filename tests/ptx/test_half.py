"""16-bit floats against ml_dtypes and NumPy, computed in float64 and rounded once."""

import ml_dtypes
import numpy as np
import pytest
from ptx_harness import one

RNG = np.random.default_rng(11)
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def values(dtype) -> np.ndarray:
    mixed = np.concatenate([RNG.standard_normal(60), RNG.standard_normal(32) * 1e-5, [0.0, -0.0, np.inf, 1.0]])
    return mixed.astype(dtype)


def doubles(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32).astype(np.float64)


def same(found: np.ndarray, want: np.ndarray, dtype) -> None:
    """Equal values with equal signs of zero; any NaN equals any other."""
    got = found.astype(np.uint16).view(dtype)
    nan = np.isnan(doubles(want))
    np.testing.assert_array_equal(np.isnan(doubles(got)), nan)
    np.testing.assert_array_equal(got.view(np.uint16)[~nan], want.view(np.uint16)[~nan])


@pytest.mark.parametrize("name", DTYPES)
@pytest.mark.parametrize("operation", ["add", "sub", "mul", "max", "min"])
def test_binary(name, operation):
    dtype = DTYPES[name]
    a, b = values(dtype), values(dtype)[::-1].copy()
    body = f"{operation}.{name} %d, %a, %b;"
    found = one(body, {"a": a.view(np.uint16), "b": b.view(np.uint16)}, "u16")
    function = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.fmax, "min": np.fmin}[operation]
    with np.errstate(invalid="ignore"):
        # A sum or product of these inputs is exact in float64, so there is one rounding, as the ISA asks.
        same(found, function(doubles(a), doubles(b)).astype(dtype), dtype)


@pytest.mark.parametrize("name", DTYPES)
def test_fma_pair_keeps_halves_apart(name):
    dtype = DTYPES[name]
    a, b = np.array([1.5, -2.0], dtype), np.array([3.0, 0.5], dtype)
    c = np.array([0.25, 8.0], dtype)
    packed = {k: v.view(np.uint32) for k, v in {"a": a, "b": b, "c": c}.items()}
    found = one(f"fma.rn.{name}x2 %d, %a, %b, %c;", packed, "u32")
    np.testing.assert_array_equal(found.view(dtype).astype(np.float32), [4.75, 7.0])


@pytest.mark.parametrize("rounding", ["rn", "rz"])
@pytest.mark.parametrize("name", DTYPES)
def test_from_f32(name, rounding):
    dtype = DTYPES[name]
    x = np.concatenate([RNG.standard_normal(90), [65504.0, 65519.0, 1e-7, -1e-7, 3e-8, 0.0]]).astype(np.float32)
    found = one(f"cvt.{rounding}.{name}.f32 %d, %a;", {"a": x}, "u16").view(dtype)
    want = x.astype(dtype)
    if rounding == "rz":
        away = np.abs(doubles(want)) > np.abs(x.astype(np.float64))
        want.view(np.uint16)[away] -= 1  # the next value towards zero
    np.testing.assert_array_equal(found.view(np.uint16), want.view(np.uint16))


def test_relu_and_satfinite():
    x = np.array([-1.0, -0.0, 2.0, np.inf, 1e6, np.nan], np.float32)
    relu = one("cvt.rn.relu.f16.f32 %d, %a;", {"a": x}, "u16").view(np.float16)
    np.testing.assert_array_equal(relu, np.array([0, 0, 2, np.inf, np.inf, np.nan], np.float16))
    assert not np.signbit(relu[1])
    finite = one("cvt.rn.satfinite.f16.f32 %d, %a;", {"a": x}, "u16").view(np.float16)
    np.testing.assert_array_equal(finite, np.array([-1, 0, 2, 65504, 65504, np.nan], np.float16))


@pytest.mark.parametrize("name", DTYPES)
def test_to_f32_is_exact_for_every_pattern(name):
    patterns = np.arange(1 << 16, dtype=np.uint16)
    want = patterns.view(DTYPES[name]).astype(np.float32)
    np.testing.assert_array_equal(one(f"cvt.f32.{name} %d, %a;", {"a": patterns}, "f32"), want)
