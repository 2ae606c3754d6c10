"""f32 and f32x2 arithmetic, special functions, min and max (PTX ISA 9.7.3)."""

import math
from fractions import Fraction

import numpy as np
import pytest
from ptx_harness import bits, lanes, one

RNG = np.random.default_rng(11)
SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 2**-126, -(2**-126), 3e38, -3e38, np.inf, -np.inf, np.nan], np.float32
)


def operands(count):
    """All pairs of special values, then random ones over many exponents."""
    a, b = (g.ravel() for g in np.meshgrid(SPECIAL, SPECIAL))
    more = RNG.standard_normal((3, 256)) * 2.0 ** RNG.integers(-40, 40, (3, 256))
    rows = [np.concatenate([a, more[0]]), np.concatenate([b, more[1]]), np.concatenate([a[::-1], more[2]])]
    return [row.astype(np.float32) for row in rows[:count]]


def flush(x):
    """.ftz: subnormals become zeros of the same sign."""
    return np.where(np.abs(x) < np.float32(2**-126), np.copysign(np.float32(0), x), x).astype(np.float32)


def same(got, want):
    """Equal bits; any NaN counts as NaN."""
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    number = ~np.isnan(want)
    np.testing.assert_array_equal(bits(got)[number], bits(want)[number])


def fused(a, b, c):
    """a * b + c rounded once, by rational arithmetic; specials by float64, where they are exact enough."""
    out = []
    for x, y, z in zip(a.tolist(), b.tolist(), c.tolist(), strict=True):
        with np.errstate(all="ignore"):
            plain = float(np.float64(x) * np.float64(y) + np.float64(z))
        if not math.isfinite(plain) or plain == 0:
            out.append(np.float32(plain))
            continue
        out.append(round_nearest(Fraction(x) * Fraction(y) + Fraction(z)))
    return np.array(out, np.float32)


def round_nearest(exact):
    """A non-zero rational to the nearest f32, ties to even."""
    exponent = max(math.frexp(float(exact))[1] - 24, -149)
    steps = round(exact / Fraction(2) ** exponent)
    with np.errstate(over="ignore"):
        return np.float32(math.copysign(math.ldexp(steps, exponent), exact))


def round_down(x, y):
    """x + y of finite f32, rounded towards minus infinity, by rational arithmetic."""
    exact = Fraction(float(x)) + Fraction(float(y))
    if exact == 0:  # opposite signs give -0 in this mode
        return np.float32(0.0) if math.copysign(1, x) > 0 and math.copysign(1, y) > 0 else np.float32(-0.0)
    with np.errstate(over="ignore"):
        near = round_nearest(exact)
    if np.isinf(near):
        return near if near < 0 else np.finfo(np.float32).max
    return np.nextafter(near, np.float32(-np.inf)) if Fraction(float(near)) > exact else near


ARITHMETIC = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("op", ARITHMETIC)
def test_arithmetic(op, ftz):
    a, b = operands(2)
    got = one(f"{op}{'.ftz' if ftz else ''}.f32 %d, %a, %b;", {"a": a, "b": b}, "f32")
    step = flush if ftz else lambda x: x
    with np.errstate(all="ignore"):
        want = step(ARITHMETIC[op](step(a), step(b)))
    same(got, want)


@pytest.mark.parametrize("ftz", [False, True])
def test_fused_multiply_add_rounds_once(ftz):
    a, b, c = operands(3)
    c = np.concatenate([c[:-64], -(a[-64:] * b[-64:])])  # what is left is the rounding error of the product
    got = one(f"fma.rn{'.ftz' if ftz else ''}.f32 %d, %a, %b, %c;", {"a": a, "b": b, "c": c}, "f32")
    step = flush if ftz else lambda x: x
    want = step(fused(step(a), step(b), step(c)))
    assert np.count_nonzero(want[-64:]) > 32
    same(got, want)


def test_negate_and_absolute():
    (a,) = operands(1)
    got = lanes("neg.f32 %d, %a;\nabs.f32 %e, %a;\nabs.ftz.f32 %f, %a;", {"a": a}, dict.fromkeys("def", "f32"))
    same(got["d"], -a)
    same(got["e"], np.abs(a))
    same(got["f"], flush(np.abs(a)))


PACK = "mov.b64 %q0, {%a, %b};\nmov.b64 %q1, {%b, %c};\nmov.b64 %q2, {%c, %a};\n"


@pytest.mark.parametrize("ftz", [False, True])
@pytest.mark.parametrize("op", [*ARITHMETIC, "fma"])
def test_pairs(op, ftz):
    a, b, c = operands(3)
    mode = f".rn{'.ftz' if ftz else ''}.f32x2"
    body = PACK + f"{op}{mode} %q3, %q0, %q1{', %q2' if op == 'fma' else ''};\nmov.b64 {{%d, %e}}, %q3;"
    got = lanes(body, {"a": a, "b": b, "c": c}, {"d": "f32", "e": "f32"})
    step = flush if ftz else lambda x: x
    a, b, c = step(a), step(b), step(c)
    with np.errstate(all="ignore"):
        if op == "fma":
            low, high = fused(a, b, c), fused(b, c, a)
        else:
            low, high = ARITHMETIC[op](a, b), ARITHMETIC[op](b, c)
    same(got["d"], step(low))
    same(got["e"], step(high))


def test_pair_sum_rounds_down():
    a, b = operands(2)
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    body = "mov.b64 %q0, {%a, %b};\nmov.b64 %q1, {%b, %a};\nadd.rm.f32x2 %q2, %q0, %q1;\nmov.b64 {%d, %e}, %q2;"
    got = lanes(body, {"a": a, "b": b}, {"d": "f32", "e": "f32"})
    want = np.array([round_down(x, y) for x, y in zip(a, b, strict=True)], np.float32)
    with np.errstate(over="ignore"):
        assert np.count_nonzero(want != a + b) > 32  # the mode matters for these operands
    same(got["d"], want)
    same(got["e"], want)


def test_floor_by_the_magic_constant():
    """add.rm of 1.5 * 2^23 leaves floor(x) in the low bits: how exp2 is split on the FMA units."""
    a = np.array([-3.0, -2.999, -2.5, -0.001, 0.0, 0.5, 0.999, 1.0, 100.75, -100.25], np.float32)
    body = "mov.b64 %q0, {%a, %a};\nmov.b32 %r0, 0x4B400000;\nmov.b64 %q1, {%r0, %r0};\n"
    body += "add.rm.ftz.f32x2 %q2, %q0, %q1;\nmov.b64 {%d, _}, %q2;"
    got = one(body, {"a": a}, "s32") - 0x4B400000
    np.testing.assert_array_equal(got, np.floor(a))


# Largest errors that the ISA states: ex2 2^-22 and rcp 2^-23 relative; lg2 2^-22, absolute in (0.5, 2) and relative
# elsewhere.
@pytest.mark.parametrize("ftz", [False, True])
def test_special_functions(ftz):
    suffix = f".approx{'.ftz' if ftz else ''}.f32"
    x = np.concatenate([RNG.uniform(-120, 120, 500), [0, 1, -1, 127, -126]]).astype(np.float32)
    wide = x.astype(np.float64)
    got = one(f"ex2{suffix} %d, %a;", {"a": x}, "f32")
    np.testing.assert_allclose(got, np.exp2(wide), rtol=2**-22)
    x = x[x != 0]
    np.testing.assert_allclose(one(f"rcp{suffix} %d, %a;", {"a": x}, "f32"), 1 / x.astype(np.float64), rtol=2**-23)
    x = np.concatenate([np.abs(x), RNG.uniform(0.5, 2, 200)]).astype(np.float32)
    got, near = one(f"lg2{suffix} %d, %a;", {"a": x}, "f32"), (x > 0.5) & (x < 2)
    want = np.log2(x.astype(np.float64))
    np.testing.assert_allclose(got[near], want[near], rtol=0, atol=2**-22)
    np.testing.assert_allclose(got[~near], want[~near], rtol=2**-22)


@pytest.mark.parametrize(
    "op, x, want",
    [
        ("ex2", -np.inf, 0.0),
        ("ex2", np.inf, np.inf),
        ("ex2", -0.0, 1.0),
        ("ex2", np.nan, np.nan),
        ("lg2", 0.0, -np.inf),
        ("lg2", -0.0, -np.inf),
        ("lg2", -1.0, np.nan),
        ("lg2", np.inf, np.inf),
        ("rcp", 0.0, np.inf),
        ("rcp", -0.0, -np.inf),
        ("rcp", -np.inf, -0.0),
    ],
)
def test_special_function_corners(op, x, want):
    got = one(f"{op}.approx.ftz.f32 %d, %a;", {"a": np.array([x], np.float32)}, "f32")
    same(got, np.array([want], np.float32))


def test_exp2_subnormal_results_only_without_ftz():
    x = np.array([-130.0, -140.5], np.float32)
    got = one("ex2.approx.f32 %d, %a;", {"a": x}, "f32")
    np.testing.assert_allclose(got, np.exp2(x.astype(np.float64)), atol=2**-149, rtol=0)
    assert not one("ex2.approx.ftz.f32 %d, %a;", {"a": x}, "f32").any()


def extremum(values, largest, nan_wins):
    """PTX max/min: NaN loses unless .NaN; -0 is below +0."""
    if nan_wins and any(math.isnan(v) for v in values):
        return math.nan
    numbers = [v for v in values if not math.isnan(v)]
    if not numbers:
        return math.nan
    return (max if largest else min)(numbers, key=lambda v: (v, math.copysign(1, v)))


@pytest.mark.parametrize("nan_wins", [False, True])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("op", ["max", "min"])
def test_extrema(op, count, nan_wins):
    values = np.array([0.0, -0.0, 2.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    columns = [g.ravel() for g in np.meshgrid(*[values] * count)]
    names = "abc"[:count]
    sources = ", ".join(f"%{n}" for n in names)
    body = f"{op}{'.NaN' if nan_wins else ''}.f32 %d, {sources};"
    got = one(body, dict(zip(names, columns, strict=True)), "f32")
    want = [extremum(row, op == "max", nan_wins) for row in zip(*(c.tolist() for c in columns), strict=True)]
    same(got, np.array(want, np.float32))


def test_extremum_of_nans_is_canonical():
    a = np.array([0x7FC00001, 0xFFC12345], np.uint32).view(np.float32)
    for op in ("max.f32", "max.NaN.f32", "min.f32", "min.NaN.f32"):
        got = one(f"{op} %d, %a, %a;", {"a": a}, "f32")
        np.testing.assert_array_equal(bits(got), 0x7FFFFFFF)
