"""Bit fields, funnel shifts, byte permutations, look-up tables and carries, against Python integers."""

import numpy as np
import pytest
from ptx_harness import lanes, one

RNG = np.random.default_rng(7)
A, B, C = (RNG.integers(0, 1 << 32, 96, dtype=np.uint32) for _ in range(3))
A[:4] = 0, 0xFFFFFFFF, 1, 0x80000000
POSITIONS = RNG.integers(0, 40, 96, dtype=np.uint32)
LENGTHS = RNG.integers(0, 40, 96, dtype=np.uint32)


def words(function, *arrays: np.ndarray) -> np.ndarray:
    return np.array([function(*map(int, row)) & 0xFFFFFFFF for row in zip(*arrays, strict=True)], np.uint32)


def extract(value: int, position: int, length: int, signed: bool) -> int:
    sign = 0
    if signed and length:
        sign = value >> min(position + length - 1, 31) & 1
    take = [value >> (position + i) & 1 if i < length and position + i < 32 else sign for i in range(32)]
    return sum(bit << i for i, bit in enumerate(take))


@pytest.mark.parametrize("ptx", ["u32", "s32"])
def test_bfe(ptx):
    found = one(f"bfe.{ptx} %d, %a, %b, %c;", {"a": A, "b": POSITIONS, "c": LENGTHS}, "u32")
    np.testing.assert_array_equal(found, words(lambda a, p, n: extract(a, p, n, ptx == "s32"), A, POSITIONS, LENGTHS))


def test_bfi():
    def insert(a, b, position, length):
        for i in range(length):
            if position + i < 32:
                b = b & ~(1 << (position + i)) | (a >> i & 1) << (position + i)
        return b

    found = one("bfi.b32 %d, %a, %b, %p, %n;", {"a": A, "b": B, "p": POSITIONS, "n": LENGTHS}, "u32")
    np.testing.assert_array_equal(found, words(insert, A, B, POSITIONS, LENGTHS))


@pytest.mark.parametrize("table", [0x00, 0x80, 0x96, 0xCA, 0xE8, 0xFE])
def test_lop3(table):
    def combine(a, b, c):
        return sum((table >> ((a >> i & 1) << 2 | (b >> i & 1) << 1 | c >> i & 1) & 1) << i for i in range(32))

    found = one(f"lop3.b32 %d, %a, %b, %c, {table};", {"a": A, "b": B, "c": C}, "u32")
    np.testing.assert_array_equal(found, words(combine, A, B, C))


@pytest.mark.parametrize("mode", ["wrap", "clamp"])
@pytest.mark.parametrize("side", ["l", "r"])
def test_shf(side, mode):
    def funnel(low, high, n):
        n = n & 31 if mode == "wrap" else min(n, 32)
        both = high << 32 | low
        return both << n >> 32 if side == "l" else both >> n

    found = one(f"shf.{side}.{mode}.b32 %d, %a, %b, %n;", {"a": A, "b": B, "n": POSITIONS}, "u32")
    np.testing.assert_array_equal(found, words(funnel, A, B, POSITIONS))


def test_prmt_with_selectors():
    selectors = RNG.integers(0, 1 << 16, 96, dtype=np.uint32)

    def permute(a, b, selector):
        source = (b << 32 | a).to_bytes(8, "little")
        out = []
        for i in range(4):
            pick = selector >> 4 * i & 15
            byte = source[pick & 7]
            out.append((255 if byte & 128 else 0) if pick & 8 else byte)
        return int.from_bytes(bytes(out), "little")

    found = one("prmt.b32 %d, %a, %b, %s;", {"a": A, "b": B, "s": selectors}, "u32")
    np.testing.assert_array_equal(found, words(permute, A, B, selectors))


# Rows of the table in the PTX ISA: the bytes picked for selectors 0..3, lowest byte first.
PRMT_MODES = {
    "f4e": [(0, 1, 2, 3), (1, 2, 3, 4), (2, 3, 4, 5), (3, 4, 5, 6)],
    "b4e": [(0, 7, 6, 5), (1, 0, 7, 6), (2, 1, 0, 7), (3, 2, 1, 0)],
    "rc8": [(0, 0, 0, 0), (1, 1, 1, 1), (2, 2, 2, 2), (3, 3, 3, 3)],
    "ecl": [(0, 1, 2, 3), (1, 1, 2, 3), (2, 2, 2, 3), (3, 3, 3, 3)],
    "ecr": [(0, 0, 0, 0), (0, 1, 1, 1), (0, 1, 2, 2), (0, 1, 2, 3)],
    "rc16": [(0, 1, 0, 1), (2, 3, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3)],
}


@pytest.mark.parametrize("mode", PRMT_MODES)
def test_prmt_modes(mode):
    selectors = np.arange(4, dtype=np.uint32)
    low, high = np.full(4, 0x33221100, np.uint32), np.full(4, 0x77665544, np.uint32)
    found = one(f"prmt.b32.{mode} %d, %a, %b, %s;", {"a": low, "b": high, "s": selectors}, "u32")
    want = [sum(0x11 * byte << 8 * i for i, byte in enumerate(row)) for row in PRMT_MODES[mode]]
    np.testing.assert_array_equal(found, np.array(want, np.uint32))


def test_counts():
    found = lanes(
        "popc.b32 %p, %a;\nclz.b32 %z, %a;\nbrev.b32 %v, %a;\nbfind.u32 %u, %a;\nbfind.s32 %s, %a;",
        {"a": A},
        {"p": "u32", "z": "u32", "v": "u32", "u": "u32", "s": "u32"},
    )
    np.testing.assert_array_equal(found["p"], words(lambda a: bin(a).count("1"), A))
    np.testing.assert_array_equal(found["z"], words(lambda a: 32 - a.bit_length(), A))
    np.testing.assert_array_equal(found["v"], words(lambda a: int(f"{a:032b}"[::-1], 2), A))
    np.testing.assert_array_equal(found["u"], words(lambda a: a.bit_length() - 1, A))
    np.testing.assert_array_equal(found["s"], words(lambda a: (a ^ (0xFFFFFFFF if a >> 31 else 0)).bit_length() - 1, A))


def test_128_bit_sum_through_the_carry():
    high_a, high_b = A[::-1].copy(), B[::-1].copy()
    body = "add.cc.u32 %x, %a, %b;\naddc.cc.u32 %y, %c, %d;\naddc.u32 %z, 0, 0;"
    found = lanes(body, {"a": A, "b": B, "c": high_a, "d": high_b}, {"x": "u32", "y": "u32", "z": "u32"})
    for i in range(len(A)):
        total = (int(high_a[i]) << 32 | int(A[i])) + (int(high_b[i]) << 32 | int(B[i]))
        assert int(found["z"][i]) << 64 | int(found["y"][i]) << 32 | int(found["x"][i]) == total


def test_64_bit_difference_through_the_borrow():
    body = "sub.cc.u32 %x, %a, %b;\nsubc.u32 %y, %c, 5;"
    found = lanes(body, {"a": A, "b": B, "c": C}, {"x": "u32", "y": "u32"})
    for i in range(len(A)):
        difference = ((int(C[i]) << 32 | int(A[i])) - (5 << 32 | int(B[i]))) % (1 << 64)
        assert int(found["y"][i]) << 32 | int(found["x"][i]) == difference


def test_64_bit_product_through_mad_carries():
    body = "mov.u32 %h, 0;\nmad.lo.cc.u32 %x, %a, %b, %c;\nmadc.hi.u32 %y, %a, %b, %h;"
    found = lanes(body, {"a": A, "b": B, "c": C}, {"x": "u32", "y": "u32", "h": "u32"})
    for i in range(len(A)):
        total = (int(A[i]) * int(B[i]) + int(C[i])) % (1 << 64)
        assert int(found["y"][i]) << 32 | int(found["x"][i]) == total
