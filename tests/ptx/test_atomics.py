"""atom, red, redux and match."""

import numpy as np
import pytest
from ptx_harness import Launch, lanes, one, run

RNG = np.random.default_rng(5)


def test_atomic_add_returns_each_old_value_once():
    counter, seen = np.array([100], np.uint32), np.zeros(32, np.uint32)
    body = """mov.u32 %r0, %tid.x;
    atom.global.add.u32 %r1, [%counter], 3;
    mul.wide.u32 %q0, %r0, 4;
    add.u64 %q1, %seen, %q0;
    st.global.u32 [%q1], %r1;"""
    run(body, {"counter": counter, "seen": seen})
    assert counter[0] == 196
    np.testing.assert_array_equal(np.sort(seen), 100 + 3 * np.arange(32))


@pytest.mark.parametrize(
    ("operation", "ptx", "start", "want"),
    [
        ("min", "s32", 5, -31), ("max", "s32", -40, 0), ("min", "u32", 5, 0), ("add", "s32", 1000, 1000 - 496),
        ("and", "b32", -1, 0),
        ("or", "b32", 0, -1), ("xor", "b32", 0, 0), ("inc", "u32", 0, 0), ("exch", "b32", 9, -31),
    ],
)  # fmt: skip
def test_operations_over_a_warp(operation, ptx, start, want):
    """Every lane combines -lane; .or of these is -1, since -1 is among them."""
    cell = np.array([start], np.int32)
    body = "mov.u32 %r0, %tid.x;\nneg.s32 %r1, %r0;\n"
    instruction = "atom.global.exch.b32 %r2" if operation == "exch" else f"red.global.{operation}.{ptx} "
    value = "0" if operation == "inc" else "%r1"
    comma = "," if operation == "exch" else ""
    run(body + f"{instruction}{comma} [%cell], {value};", {"cell": cell})
    if operation == "xor":
        want = int(np.bitwise_xor.reduce(-np.arange(32)))
    assert cell[0] == want


def test_compare_and_swap_succeeds_for_one_lane():
    cell = np.array([7], np.uint32)
    body = "mov.u32 %r0, %tid.x;\nadd.u32 %r1, %r0, 50;\natom.global.cas.b32 %r2, [%cell], 7, %r1;"
    run(body, {"cell": cell})
    assert cell[0] == 50


def test_atomics_of_many_ctas_on_one_counter():
    counter = np.zeros(1, np.uint64)
    run("atom.global.add.u64 %q3, [%counter], 1;", {"counter": counter}, Launch(grid=200))
    assert counter[0] == 200 * 32


@pytest.mark.parametrize(
    ("operation", "function"),
    [
        ("add.u32", np.add),
        ("min.s32", np.minimum),
        ("max.s32", np.maximum),
        ("and.b32", np.bitwise_and),
        ("xor.b32", np.bitwise_xor),
    ],
)
def test_redux(operation, function):
    a = RNG.integers(-(1 << 31), 1 << 31, 32, dtype=np.int32)
    found = one(f"redux.sync.{operation} %d, %a, -1;", {"a": a}, "s32")
    np.testing.assert_array_equal(found, np.full(32, function.reduce(a, dtype=np.int32)))


def test_match_any():
    a = RNG.integers(0, 4, 32, dtype=np.uint32)
    want = [sum(int(a[i] == a[j]) << j for j in range(32)) for i in range(32)]
    np.testing.assert_array_equal(one("match.any.sync.b32 %d, %a, -1;", {"a": a}, "u32"), np.array(want, np.uint32))


def test_match_all():
    a = np.full(32, 9, np.uint32)
    found = lanes("match.all.sync.b32 %d|%e, %a, -1;", {"a": a}, {"d": "u32", "e": "pred"})
    assert (found["d"] == 0xFFFFFFFF).all() and found["e"].all()
    a[3] = 8
    found = lanes("match.all.sync.b32 %d|%e, %a, -1;", {"a": a}, {"d": "u32", "e": "pred"})
    assert (found["d"] == 0).all() and not found["e"].any()
