"""Independent placement of MMA operands in shared memory, and the descriptors that name them.

The swizzle is written here as its pattern (which 16-byte slot a chunk takes in its row), not as an address XOR.
"""

import numpy as np

PITCH = {"none": 16, "32B": 32, "64B": 64, "128B": 128}
LAYOUT = {"none": 0, "128B/32B": 1, "128B": 2, "64B": 4, "32B": 6}


def slot(row: int, chunk: int, swizzle: str) -> int:
    """Slot of a 16-byte chunk in row `row` of an 8-row atom."""
    if swizzle == "128B":
        return chunk ^ row
    if swizzle == "64B":
        return chunk ^ (row // 2)
    if swizzle == "32B":
        return chunk ^ (row // 4)
    return chunk


def descriptor(start: int, lbo: int, sbo: int, swizzle: str) -> int:
    return (start >> 4) | (lbo >> 4) << 16 | (sbo >> 4) << 32 | 1 << 46 | LAYOUT[swizzle] << 61


def idesc(m: int, n: int, *, bf16=True, d_f32=True, a_mn=False, b_mn=False, neg_a=False, neg_b=False) -> int:
    bits = (int(d_f32) << 4) | (int(bf16) << 7) | (int(bf16) << 10) | (int(neg_a) << 13) | (int(neg_b) << 14)
    return bits | (int(a_mn) << 15) | (int(b_mn) << 16) | (n >> 3) << 17 | (m >> 4) << 24


def place_k_major(shared: np.ndarray, start: int, bits: np.ndarray, swizzle: str) -> tuple[int, int, list[int]]:
    """Store (rows, K) elements with K innermost. Returns LBO, SBO and the start address of each 32 bytes of K."""
    rows = len(bits)
    raw = np.ascontiguousarray(bits).view(np.uint8).reshape(rows, -1, 16)
    chunks = raw.shape[1]
    pitch = PITCH[swizzle]
    per_row = pitch // 16
    sbo = 8 * pitch
    block = rows // 8 * sbo  # all rows of one atom width of K
    for row in range(rows):
        for chunk in range(chunks):
            at = start + (chunk // per_row) * block + (row // 8) * sbo + (row % 8) * pitch
            at += 16 * slot(row % 8, chunk % per_row, swizzle)
            shared[at : at + 16] = raw[row, chunk]
    starts = [start + byte // pitch * block + byte % pitch for byte in range(0, 16 * chunks, 32)]
    return (block if swizzle == "none" else 0), sbo, starts


def place_mn_major(shared: np.ndarray, start: int, bits: np.ndarray, swizzle: str) -> tuple[int, int, list[int]]:
    """Store (rows, K) elements with rows innermost; atoms of 8 of K by pitch bytes of rows, first along K.

    Returns LBO, SBO and the start address of each 32 bytes' worth of K (16 elements of 2 bytes, 32 of 1).
    """
    k = bits.shape[1]
    raw = np.ascontiguousarray(bits.T).view(np.uint8).reshape(k, -1, 16)
    pitch = PITCH[swizzle]
    per_row = pitch // 16
    along_k, along_mn = 8 * pitch, (k // 8) * 8 * pitch
    for col in range(k):
        for chunk in range(raw.shape[1]):
            at = start + (chunk // per_row) * along_mn + (col // 8) * along_k + (col % 8) * pitch
            at += 16 * slot(col % 8, chunk % per_row, swizzle)
            shared[at : at + 16] = raw[col, chunk]
    lbo, sbo = (along_k, along_mn) if swizzle == "none" else (along_mn, along_k)
    return lbo, sbo, [start + col // 8 * along_k for col in range(0, k, 32 // bits.itemsize)]


def place_mn_major_32(shared: np.ndarray, start: int, bits: np.ndarray) -> tuple[int, int, list[int]]:
    """Store (rows, K) 32-bit words with rows innermost, 128 B layout with 32 B atoms: blocks of 32 rows by 4 of K,
    first along the rows, in which 32-byte piece c of line k lies at piece c ^ (k % 4). Returns LBO, SBO and the start
    of each 8 of K."""
    rows, k = bits.shape
    raw = np.ascontiguousarray(bits.T).view(np.uint8).reshape(k, rows // 32, 4, 32)
    along_k, along_mn = rows // 32 * 4 * 128, 4 * 128
    for col in range(k):
        for block in range(rows // 32):
            line = start + block * along_mn + col // 4 * along_k + col % 4 * 128
            for piece in range(4):
                at = line + 32 * (piece ^ (col % 4))
                shared[at : at + 32] = raw[col, block, piece]
    return along_mn, along_k, [start + col // 4 * along_k for col in range(0, k, 8)]
