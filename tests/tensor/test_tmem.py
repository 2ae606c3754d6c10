"""tcgen05.alloc, ld and st: which lane and column each register reaches."""

import numpy as np
import pytest

SHAPES = [
    ("32x32b", 1, 1, 1),
    ("32x32b", 32, 32, 32),
    ("16x64b", 4, 4, 8),
    ("16x128b", 2, 4, 8),
    ("16x256b", 2, 8, 16),
]


def numbered(core):
    """TMEM whose word at (lane, column) is lane * 1000 + column in columns 0..63."""
    tmem = core._Tmem()
    tmem.alloc(64)
    for lane in range(128):
        for column in range(64):
            tmem.set(lane, column, lane * 1000 + column)
    return tmem


def test_load_32x32b_reads_own_lane(core):
    tmem, regs = numbered(core), np.zeros((8, 32), np.uint32)
    tmem.load("32x32b", 8, 2, (64 << 16) | 5, regs)
    expected = (64 + np.arange(32))[None, :] * 1000 + 5 + np.arange(8)[:, None]
    np.testing.assert_array_equal(regs, expected)


# (lane, column) of the registers of threads 0, 1, 2, 5 and 31, worked out by hand from the thread-value layouts that
# CUTLASS publishes for these instructions (16x64b: threads (2, 2, 8) step by 8 lanes, 1 column, 1 lane).
@pytest.mark.parametrize(
    ("shape", "num", "expected"),
    [
        ("16x64b", 1, [[(0, 0), (8, 0), (0, 1), (9, 0), (15, 1)]]),
        ("16x128b", 1, [[(0, 0), (0, 1), (0, 2), (1, 1), (7, 3)], [(8, 0), (8, 1), (8, 2), (9, 1), (15, 3)]]),
        (
            "16x256b",
            1,
            [
                [(0, 0), (0, 2), (0, 4), (1, 2), (7, 6)],
                [(0, 1), (0, 3), (0, 5), (1, 3), (7, 7)],
                [(8, 0), (8, 2), (8, 4), (9, 2), (15, 6)],
                [(8, 1), (8, 3), (8, 5), (9, 3), (15, 7)],
            ],
        ),
    ],
)
@pytest.mark.parametrize("half", [0, 16])
def test_load_16_lane_shapes(core, shape, num, expected, half):
    tmem, regs = numbered(core), np.zeros((len(expected), 32), np.uint32)
    tmem.load(shape, num, 1, ((32 + half) << 16) | 8, regs)
    for register, cells in enumerate(expected):
        for thread, (lane, column) in zip([0, 1, 2, 5, 31], cells, strict=True):
            assert regs[register, thread] == (32 + half + lane) * 1000 + 8 + column


@pytest.mark.parametrize(("shape", "num", "registers", "columns"), SHAPES)
def test_store_then_load_covers_each_word_once(core, shape, num, registers, columns):
    tmem = core._Tmem()
    tmem.alloc(32)
    regs = np.arange(registers * 32, dtype=np.uint32).reshape(registers, 32) + 1
    tmem.store(shape, num, 3, 96 << 16, regs)
    back = np.zeros_like(regs)
    tmem.load(shape, num, 3, 96 << 16, back)
    np.testing.assert_array_equal(back, regs)
    lanes = 32 if shape == "32x32b" else 16
    words = [tmem.get(96 + lane, column) for lane in range(lanes) for column in range(columns)]
    assert sorted(words) == sorted(regs.ravel().tolist())
    if columns < 32:
        assert tmem.get(96, columns) == 0xFFFFFFFF


@pytest.mark.parametrize("num", [1, 2, 8])
@pytest.mark.parametrize("pack", [False, True])
@pytest.mark.parametrize(("half", "split"), [(0, 32), (16, 20)])
def test_two_halves(core, num, pack, half, split):
    """16x32bx2: threads 0-15 reach lanes 0-15 from the address on, threads 16-31 the same lanes `split` columns on."""
    tmem, regs = numbered(core), np.zeros((num, 32), np.uint32)
    address = ((64 + half) << 16) | 3
    tmem.load("16x32bx2", num, 2, address, regs, pack=pack, split=split)
    lanes, first = 64 + half + np.arange(32) % 16, 3 + split * (np.arange(32) // 16)
    words = np.array([[tmem.get(int(lane), c) for c in range(64)] for lane in lanes], np.uint32)
    step = 2 if pack else 1
    for r in range(num):
        low = words[np.arange(32), first + step * r]
        high = words[np.arange(32), first + step * r + 1]
        np.testing.assert_array_equal(regs[r], (low & 0xFFFF) | high << 16 if pack else low)
    other = core._Tmem()
    other.alloc(64)
    other.store("16x32bx2", num, 2, address, regs, pack=pack, split=split)
    back = np.zeros_like(regs)
    other.load("16x32bx2", num, 2, address, back, pack=pack, split=split)
    np.testing.assert_array_equal(back, regs)
    written = sum(other.get(lane, c) != 0xFFFFFFFF for lane in range(128) for c in range(64))
    assert written == num * 32 * step
    with pytest.raises(RuntimeError, match="not allocated"):
        tmem.load("16x32bx2", num, 2, address, regs, pack=pack, split=61)


def test_allocation(core):
    tmem = core._Tmem()
    assert [tmem.alloc(256), tmem.alloc(256), tmem.alloc(256)] == [0, 256, -1]
    tmem.dealloc(256, 256)
    assert [tmem.alloc(128), tmem.alloc(128), tmem.alloc(128)] == [256, 384, -1]
    tmem.dealloc(256, 128)
    assert tmem.allocated_columns() == 384
    with pytest.raises(RuntimeError, match="256 columns after one of 128: the count must not increase"):
        tmem.alloc(256)
    for bad in (0, 16, 48, 1024):
        with pytest.raises(RuntimeError, match="power of two"):
            tmem.alloc(bad)
    with pytest.raises(RuntimeError, match="no live allocation"):
        tmem.dealloc(0, 128)
    tmem.relinquish()
    with pytest.raises(RuntimeError, match="relinquish"):
        tmem.alloc(32)


def test_columns_given_back_lose_their_data(core):
    tmem = core._Tmem()
    tmem.alloc(32), tmem.alloc(32)
    for column in (0, 31, 32, 63):
        for lane in (0, 127):
            tmem.set(lane, column, 5)
    tmem.dealloc(0, 32)
    with pytest.raises(RuntimeError, match="not allocated"):
        tmem.get(0, 0)
    assert tmem.alloc(32) == 0
    assert {tmem.get(lane, column) for lane in (0, 127) for column in (0, 31)} == {0xFFFFFFFF}
    assert {tmem.get(lane, column) for lane in (0, 127) for column in (32, 63)} == {5}


def test_access_is_checked(core):
    tmem, regs = core._Tmem(), np.zeros((32, 32), np.uint32)
    tmem.alloc(32)
    with pytest.raises(RuntimeError, match="not allocated"):
        tmem.load("32x32b", 32, 0, 1, regs)
    with pytest.raises(RuntimeError, match="outside"):
        tmem.load("32x32b", 32, 0, 500, regs)
    with pytest.raises(RuntimeError, match="not reachable"):
        tmem.load("32x32b", 32, 1, 0, regs)
    with pytest.raises(RuntimeError, match="not reachable"):
        tmem.load("32x32b", 32, 0, 16 << 16, regs)
    with pytest.raises(RuntimeError, match="repetition"):
        tmem.load("32x32b", 3, 0, 0, regs)


@pytest.mark.parametrize("shape", ["32x32b", "16x64b", "16x128b", "16x256b"])
def test_pack_joins_the_low_halves_of_column_pairs(core, shape):
    """Packed access to columns 2c and 2c + 1 equals plain access to column c of a TMEM that holds both halves."""
    rng, packed, plain = np.random.default_rng(6), core._Tmem(), core._Tmem()
    packed.alloc(32), plain.alloc(32)
    for lane in range(32):
        for column in range(16):
            low, high = (int(v) for v in rng.integers(0, 65536, 2))
            packed.set(lane, 2 * column, 0xABCD0000 | low)
            packed.set(lane, 2 * column + 1, 0x12340000 | high)
            plain.set(lane, column, high << 16 | low)
    registers = {"16x128b": 2, "16x256b": 4}.get(shape, 1)
    got, wanted = np.zeros((registers, 32), np.uint32), np.zeros((registers, 32), np.uint32)
    packed.load(shape, 1, 0, 4, got, pack=True)
    plain.load(shape, 1, 0, 2, wanted)
    np.testing.assert_array_equal(got, wanted)
    packed.store(shape, 1, 0, 4, got, pack=True)
    words = [packed.get(0, column) for column in (4, 5)]
    assert words == [plain.get(0, 2) & 0xFFFF, plain.get(0, 2) >> 16]
