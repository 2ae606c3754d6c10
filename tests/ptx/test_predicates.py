"""setp, selp and predicate logic (PTX ISA 9.7.6, 9.7.7)."""

import numpy as np
import pytest
from ptx_harness import lanes, one

FLOATS = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3.5], np.float32)
ORDERED = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def grid(values):
    a, b = np.meshgrid(values, values)
    return a.ravel(), b.ravel()


@pytest.mark.parametrize("comparison", ORDERED)
def test_ordered_float_comparisons_are_false_for_nan(comparison):
    a, b = grid(FLOATS)
    got = one(f"setp.{comparison}.f32 %d, %a, %b;", {"a": a, "b": b}, "pred")
    want = ORDERED[comparison](a, b) & ~(np.isnan(a) | np.isnan(b))
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("comparison", ORDERED)
def test_unordered_float_comparisons_are_true_for_nan(comparison):
    a, b = grid(FLOATS)
    got = one(f"setp.{comparison}u.f32 %d, %a, %b;", {"a": a, "b": b}, "pred")
    want = ORDERED[comparison](a, b) | np.isnan(a) | np.isnan(b)
    np.testing.assert_array_equal(got, want)


def test_num_and_nan():
    a, b = grid(FLOATS)
    got = lanes("setp.num.f32 %d, %a, %b;\nsetp.nan.f32 %e, %a, %b;", {"a": a, "b": b}, {"d": "pred", "e": "pred"})
    unordered = np.isnan(a) | np.isnan(b)
    np.testing.assert_array_equal(got["d"], ~unordered)
    np.testing.assert_array_equal(got["e"], unordered)


@pytest.mark.parametrize("ptx_type", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("comparison", ORDERED)
def test_integer_comparisons(comparison, ptx_type):
    size = int(ptx_type[1:])
    patterns = np.array([0, 1, 2, (1 << size - 1) - 1, 1 << size - 1, (1 << size) - 1], f"u{size // 8}")
    a, b = grid(patterns.view(f"{'i' if ptx_type[0] == 's' else 'u'}{size // 8}"))
    got = one(f"setp.{comparison}.{ptx_type} %d, %a, %b;", {"a": a, "b": b}, "pred")
    np.testing.assert_array_equal(got, ORDERED[comparison](a, b))


@pytest.mark.parametrize("alias, comparison", [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")])
def test_unsigned_aliases(alias, comparison):
    a, b = grid(np.array([0, 1, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF], np.uint32))
    got = one(f"setp.{alias}.u32 %d, %a, %b;", {"a": a, "b": b}, "pred")
    np.testing.assert_array_equal(got, ORDERED[comparison](a, b))


def test_predicate_logic():
    a, b = grid(np.array([0, 1], np.uint32))
    body = (
        "setp.ne.u32 %p0, %a, 0;\nsetp.ne.u32 %p1, %b, 0;\nand.pred %d, %p0, %p1;\nor.pred %e, %p0, %p1;\n"
        "xor.pred %f, %p0, %p1;\nnot.pred %g, %p0;\nand.pred %h, %p0, !%p1;\nmov.pred %i, %p1;"
    )
    got = lanes(body, {"a": a, "b": b}, dict.fromkeys("defghi", "pred"))
    x, y = a != 0, b != 0
    for name, want in zip("defghi", (x & y, x | y, x ^ y, ~x, x & ~y, y), strict=True):
        np.testing.assert_array_equal(got[name], want)


@pytest.mark.parametrize("ptx_type", ["b32", "u32", "f32", "b64", "u64"])
def test_select(ptx_type):
    dtype = {"f32": np.float32}.get(ptx_type, np.dtype(f"u{int(ptx_type[1:]) // 8}"))
    a, b = np.arange(32).astype(dtype), (1000 + np.arange(32)).astype(dtype)
    c = (np.arange(32) % 3).astype(np.uint32)
    stored = ptx_type.replace("b", "u")
    got = one(f"setp.eq.u32 %p0, %c, 1;\nselp.{ptx_type} %d, %a, %b, %p0;", {"a": a, "b": b, "c": c}, stored)
    np.testing.assert_array_equal(got, np.where(c == 1, a, b))


def test_guard_leaves_other_lanes_alone():
    a = np.arange(32, dtype=np.uint32)
    body = "setp.lt.u32 %p0, %a, 10;\nmov.u32 %d, 7;\n@%p0 add.u32 %d, %a, 100;\n@!%p0 add.u32 %d, %d, %a;"
    np.testing.assert_array_equal(one(body, {"a": a}, "u32"), np.where(a < 10, a + 100, a + 7))
