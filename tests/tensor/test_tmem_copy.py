"""tcgen05.cp: rows of a K-major matrix in shared memory to lanes of tensor memory (PTX ISA 9.7.16.9)."""

import numpy as np
import operands
import pytest

# shape -> columns, and the row that each of the 128 lanes receives
LANES = np.arange(128)
ROWS = {
    "128x256b": (8, LANES),
    "128x128b": (4, LANES),
    "64x128b.02_13": (4, LANES % 64),  # warps 0 and 2 receive rows 0-31, warps 1 and 3 rows 32-63
    "64x128b.01_23": (4, LANES % 32 + 32 * (LANES // 64)),  # warps 0 and 1 rows 0-31, warps 2 and 3 rows 32-63
    "32x128b": (4, LANES % 32),
}


def source(shared, rows, columns, swizzle):
    """Numbered words (rows, columns) at 1024, and their descriptor."""
    words = np.arange(rows * columns, dtype=np.uint32).reshape(rows, columns) + 7
    lbo, sbo, starts = operands.place_k_major(shared, 1024, words, swizzle)
    return words, operands.descriptor(starts[0], lbo, sbo, swizzle)


def contents(tmem, columns):
    return np.array([[tmem.get(int(lane), c) for c in range(columns)] for lane in LANES], np.uint32)


@pytest.mark.parametrize("swizzle", ["none", "32B", "64B", "128B"])
@pytest.mark.parametrize("shape", list(ROWS))
def test_rows_reach_their_lanes(core, shape, swizzle):
    tmem, shared = core._Tmem(), np.zeros(32768, np.uint8)
    tmem.alloc(32)
    columns, row_of_lane = ROWS[shape]
    words, descriptor = source(shared, int(row_of_lane.max()) + 1, 8, swizzle)  # 128-bit shapes read half of a row
    core._tmem_copy(tmem, shared, shape, 4, descriptor)
    got = contents(tmem, 16)
    np.testing.assert_array_equal(got[:, 4 : 4 + columns], words[row_of_lane, :columns])
    assert (np.delete(got, np.s_[4 : 4 + columns], axis=1) == 0xFFFFFFFF).all()


@pytest.mark.parametrize("lane", [0, 31])
def test_four_rows_go_to_one_lane_of_each_warp(core, lane):
    tmem, shared = core._Tmem(), np.zeros(32768, np.uint8)
    tmem.alloc(32)
    words, descriptor = source(shared, 8, 8, "none")
    core._tmem_copy(tmem, shared, "4x256b", lane << 16, descriptor)
    got = contents(tmem, 8)
    np.testing.assert_array_equal(got[lane::32], words[:4])
    assert (np.delete(got, np.s_[lane::32], axis=0) == 0xFFFFFFFF).all()


@pytest.mark.parametrize("bits", [4, 6])
def test_expansion_to_bytes(core, bits):
    """16 packed elements and padding to 16 bytes: 4 bits to bits 2-5 of a byte, 6 bits to bits 0-5."""
    rng, tmem, shared = np.random.default_rng(1), core._Tmem(), np.zeros(32768, np.uint8)
    tmem.alloc(32)
    codes = rng.integers(0, 1 << bits, (128, 16))
    stream = np.packbits(
        ((codes[:, :, None] >> np.arange(bits)) & 1).reshape(128, -1).astype(np.uint8), axis=1, bitorder="little"
    )
    raw = np.full((128, 32), 0x5A, np.uint8)
    raw[:, : stream.shape[1]] = stream
    lbo, sbo, starts = operands.place_k_major(shared, 0, raw, "32B")
    core._tmem_copy(tmem, shared, "128x128b", 0, operands.descriptor(starts[0], lbo, sbo, "32B"), source_bits=bits)
    wanted = (codes << 2 if bits == 4 else codes).astype(np.uint8).view(np.uint32)
    np.testing.assert_array_equal(contents(tmem, 4), wanted)


def test_faults(core):
    tmem, shared = core._Tmem(), np.zeros(32768, np.uint8)
    tmem.alloc(32)
    _, good = source(shared, 128, 8, "32B")
    cases = [
        ("128x256b", 1 << 16, good, "lane 1 "),
        ("4x256b", 32 << 16, good, "0 to 31"),
        ("128x256b", 28, good, "not allocated"),
        ("128x256b", 0, good | 0x3FFF, "outside the CTA"),
        ("128x128b", 0, good & ~(7 << 61) | 1 << 61, "32 B atoms"),
        ("128x128b", 0, good & ~(7 << 46), "bits 46-48"),
    ]
    for shape, address, descriptor, message in cases:
        with pytest.raises(RuntimeError, match=message):
            core._tmem_copy(tmem, shared, shape, address, descriptor)
