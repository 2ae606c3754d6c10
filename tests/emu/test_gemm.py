"""GEMMs of 8-bit floats, integers and tf32 through the DSL, which makes the descriptors, and the emulator, strictly."""

import functools

import ml_dtypes
import numpy as np
import pytest
from gemm import Gemm, M, compile_gemm, run

from fa4_cute.emulator import Schedule

ELEMENTS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2, "i8": np.int8, "u8": np.uint8}
SCHEDULES = [Schedule.eager(), Schedule.lazy(), Schedule.random(1)]
CASES = [
    Gemm("e4m3", 128, 2),
    Gemm("e5m2", 64, 2, a_mn=True, b_mn=True),
    Gemm("i8", 96, 2, b_mn=False, a_mn=True),
    Gemm("tf32", 256, 2),
]


@functools.cache
def compiled(gemm: Gemm) -> str:
    return compile_gemm(gemm)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("gemm", CASES, ids=lambda g: f"{g.element}-{g.n}-{'MN' if g.a_mn else 'K'}")
def test_product(gemm, schedule):
    """Small integers: every sum is exact, so D is exact."""
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-4, 5, (rows, gemm.k)) for rows in (M, gemm.n))
    held = [
        (x.T if mn else x).astype(ELEMENTS.get(gemm.element, np.float32)) for x, mn in ((a, gemm.a_mn), (b, gemm.b_mn))
    ]
    held = [np.ascontiguousarray(x) for x in held]
    got = run(gemm, compiled(gemm), *held, schedule=schedule, strict=True)
    np.testing.assert_array_equal(got, a @ b.T)
