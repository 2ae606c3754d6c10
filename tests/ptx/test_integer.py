"""Integer arithmetic, shifts and bit logic against Python integers (PTX ISA 9.7.1, 9.7.8)."""

import numpy as np
import pytest
from ptx_harness import lanes, one

EDGES = [0, 1, 2, 3, 7, 31, 32, 33, 255, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFF]
EDGES64 = EDGES + [1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x0123456789ABCDEF]


def pairs(edges, dtype):
    rng = np.random.default_rng(7)
    a, b = np.meshgrid(np.array(edges, np.uint64), np.array(edges, np.uint64))
    extra = rng.integers(0, 1 << 63, (2, 64), dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    a, b = np.concatenate([a.ravel(), extra[0]]), np.concatenate([b.ravel(), extra[1]])
    return a.astype(f"u{dtype.itemsize}").view(dtype), b.astype(f"u{dtype.itemsize}").view(dtype)


def wrap(values, dtype):
    """Python integers modulo 2^n, as the register holds them."""
    size = 8 * dtype.itemsize
    return np.array([int(v) & ((1 << size) - 1) for v in values], f"u{dtype.itemsize}").view(dtype)


TYPES = {"s32": np.dtype("i4"), "u32": np.dtype("u4"), "s64": np.dtype("i8"), "u64": np.dtype("u8")}


def truncated(a, b):
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


OPERATIONS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul.lo": lambda a, b: a * b,
    "min": min,
    "max": max,
}


@pytest.mark.parametrize("ptx_type", TYPES)
@pytest.mark.parametrize("op", OPERATIONS)
def test_two_operands(op, ptx_type):
    dtype = TYPES[ptx_type]
    a, b = pairs(EDGES64 if dtype.itemsize == 8 else EDGES, dtype)
    got = one(f"{op}.{ptx_type} %d, %a, %b;", {"a": a, "b": b}, ptx_type)
    want = wrap([OPERATIONS[op](int(x), int(y)) for x, y in zip(a, b, strict=True)], dtype)
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("ptx_type", TYPES)
def test_division_truncates(ptx_type):
    dtype = TYPES[ptx_type]
    a, b = pairs(EDGES64 if dtype.itemsize == 8 else EDGES, dtype)
    a, b = a[b != 0], b[b != 0]
    got = lanes(
        f"div.{ptx_type} %d, %a, %b;\nrem.{ptx_type} %e, %a, %b;", {"a": a, "b": b}, {"d": ptx_type, "e": ptx_type}
    )
    quotients = [truncated(int(x), int(y)) for x, y in zip(a, b, strict=True)]
    rests = [int(x) - q * int(y) for x, y, q in zip(a, b, quotients, strict=True)]
    np.testing.assert_array_equal(got["d"], wrap(quotients, dtype))
    np.testing.assert_array_equal(got["e"], wrap(rests, dtype))


@pytest.mark.parametrize("ptx_type", ["s32", "u32"])
def test_products_high_and_wide(ptx_type):
    a, b = pairs(EDGES, TYPES[ptx_type])
    wide_type = ptx_type[0] + "64"
    body = f"mul.hi.{ptx_type} %d, %a, %b;\nmul.wide.{ptx_type} %e, %a, %b;"
    got = lanes(body, {"a": a, "b": b}, {"d": ptx_type, "e": wide_type})
    products = [int(x) * int(y) for x, y in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got["d"], wrap([p >> 32 for p in products], TYPES[ptx_type]))
    np.testing.assert_array_equal(got["e"], wrap(products, TYPES[wide_type]))


@pytest.mark.parametrize("ptx_type", ["s32", "u32"])
def test_multiply_add(ptx_type):
    a, b = pairs(EDGES, TYPES[ptx_type])
    wide_type = ptx_type[0] + "64"
    c = (np.arange(len(a), dtype=np.int64) * -0x123456789ABC).view(TYPES[wide_type])
    body = f"cvt.u32.u64 %r0, %c;\nmad.lo.{ptx_type} %d, %a, %b, %r0;\nmad.wide.{ptx_type} %e, %a, %b, %c;"
    got = lanes(body, {"a": a, "b": b, "c": c}, {"d": ptx_type, "e": wide_type})
    want = [int(x) * int(y) + int(z) for x, y, z in zip(a, b, c, strict=True)]
    np.testing.assert_array_equal(got["d"], wrap(want, TYPES[ptx_type]))
    np.testing.assert_array_equal(got["e"], wrap(want, TYPES[wide_type]))


def test_min_relu_clamps_negative_results():
    a, b = pairs(EDGES, TYPES["s32"])
    got = one("min.relu.s32 %d, %a, %b;", {"a": a, "b": b}, "s32")
    np.testing.assert_array_equal(got, np.maximum(np.minimum(a, b), 0))
    assert (np.minimum(a, b) < 0).any() and (got > 0).any()


def test_negate_and_absolute():
    a = np.array(EDGES, np.uint32).view(np.int32)
    got = lanes("neg.s32 %d, %a;\nabs.s32 %e, %a;", {"a": a}, {"d": "s32", "e": "s32"})
    np.testing.assert_array_equal(got["d"], wrap([-int(x) for x in a], TYPES["s32"]))
    np.testing.assert_array_equal(got["e"], wrap([abs(int(x)) for x in a], TYPES["s32"]))


@pytest.mark.parametrize("width", [32, 64])
def test_shifts_clamp_the_distance(width):
    """A distance above the width counts as the width; shr.s fills with the sign."""
    unsigned, signed = TYPES[f"u{width}"], TYPES[f"s{width}"]
    values = np.array(EDGES64, np.uint64).astype(unsigned)
    a, n = (g.ravel() for g in np.meshgrid(values, np.array([0, 1, 15, 31, 32, 33, 63, 64, 65, 255, 2**32 - 1])))
    n = n.astype(np.uint32)
    body = f"shl.b{width} %d, %a, %n;\nshr.u{width} %e, %a, %n;\nshr.s{width} %f, %a, %n;"
    got = lanes(body, {"a": a, "n": n}, {"d": f"u{width}", "e": f"u{width}", "f": f"s{width}"})
    counts = [min(int(k), width) for k in n]
    np.testing.assert_array_equal(got["d"], wrap([int(x) << k for x, k in zip(a, counts, strict=True)], unsigned))
    np.testing.assert_array_equal(got["e"], wrap([int(x) >> k for x, k in zip(a, counts, strict=True)], unsigned))
    want = [int(x) >> k for x, k in zip(a.view(signed), counts, strict=True)]
    np.testing.assert_array_equal(got["f"], wrap(want, signed))


def test_bit_mask_clamps():
    """bmsk.clamp: b ones from bit a upwards; a and b clamped to 32, ones beyond bit 31 lost."""
    a, b = (g.ravel().astype(np.uint32) for g in np.meshgrid([0, 1, 5, 31, 32, 40], [0, 1, 4, 31, 32, 100]))
    got = one("bmsk.clamp.b32 %d, %a, %b;", {"a": a, "b": b}, "u32")
    want = [((1 << min(int(w), 32)) - 1) << min(int(s), 32) for s, w in zip(a, b, strict=True)]
    np.testing.assert_array_equal(got, wrap(want, TYPES["u32"]))


@pytest.mark.parametrize("width", [32, 64])
def test_bit_logic(width):
    a, b = pairs(EDGES64, TYPES[f"u{width}"])
    body = f"and.b{width} %d, %a, %b;\nor.b{width} %e, %a, %b;\nxor.b{width} %f, %a, %b;\nnot.b{width} %g, %a;"
    got = lanes(body, {"a": a, "b": b}, dict.fromkeys("defg", f"u{width}"))
    for name, want in zip("defg", (a & b, a | b, a ^ b, ~a), strict=True):
        np.testing.assert_array_equal(got[name], want)


def test_population_count_and_leading_zeros():
    a = np.array(EDGES, np.uint32)
    got = lanes("popc.b32 %d, %a;\nclz.b32 %e, %a;", {"a": a}, {"d": "u32", "e": "u32"})
    np.testing.assert_array_equal(got["d"], [int(x).bit_count() for x in a])
    np.testing.assert_array_equal(got["e"], [32 - int(x).bit_length() for x in a])
