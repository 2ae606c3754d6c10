"""tcgen05.mma operands: matrix descriptors in shared memory, the instruction descriptor, and runs of K blocks.

Formats after the PTX ISA, "Matrix descriptor" and "Instruction descriptor" of tcgen05. All tiles lie as smem.py
places them: blocks of 64 columns, rows of 128 bytes, 128-byte swizzle.
"""

from dataclasses import dataclass
from typing import Any

from cutlass import Int32, Int64, cute

from . import ptx

MMA_K = 16
_ATOM_BYTES = 1024  # 8 rows of 128 bytes
_BLOCK_COLUMNS = 64  # 16-bit columns of a swizzled row
_VERSION_AND_SWIZZLE_128B = (1 << 14) | (2 << 29)  # bits 46..47 and 61..63 of the descriptor, seen in its high word
_UNIT_SHIFT = 4  # descriptors count in 16 bytes


@dataclass(frozen=True)
class SmemOperand:
    """A K-major (Q, K) or MN-major (V) operand of `rows` stored rows.

    start: Int32 shared address of its first byte.
    """

    start: Any
    rows: int
    mn_major: bool

    def _leading_offset(self) -> int:
        # MN-major: distance of 64-column blocks. K-major: ignored for swizzled layouts, 1 by convention.
        return self.rows * 128 >> _UNIT_SHIFT if self.mn_major else 1

    def _block_offset_bytes(self, k_block: int) -> int:
        """Where K block `k_block` (16 of the contracted elements) starts."""
        if self.mn_major:  # contracted along rows: 16 rows of 128 bytes further
            return k_block * MMA_K * 128
        column = k_block * MMA_K  # contracted along columns: 32 bytes further, then the next 64-column block
        return column // _BLOCK_COLUMNS * self.rows * 128 + column % _BLOCK_COLUMNS * 2

    def low_word(self):
        """Low descriptor word of K block 0; the others differ by a constant."""
        return (self.start >> _UNIT_SHIFT) | (self._leading_offset() << 16)

    def descriptor(self, low_word, k_block: int) -> Int64:
        """64-bit descriptor of a K block."""
        high = (_ATOM_BYTES >> _UNIT_SHIFT) | _VERSION_AND_SWIZZLE_128B
        low = low_word + (self._block_offset_bytes(k_block) >> _UNIT_SHIFT)
        return ptx.join_words(low, Int32(high))


def instruction_descriptor(dtype: str, n: int, b_mn_major: bool) -> int:
    """kind::f16 descriptor of a 128 x n MMA, fp32 accumulation, A K-major."""
    half_type = {"fp16": 0, "bf16": 1}[dtype]
    return (1 << 4) | (half_type << 7) | (half_type << 10) | (b_mn_major << 16) | (n >> 3) << 17 | (128 >> 4) << 24


NEGATE_A_BIT = 13


def mma_smem(d_col, a: SmemOperand, b: SmemOperand, idesc, k_blocks: range) -> None:
    """D = A * B over the K blocks, both operands in shared memory; overwrites D. One thread."""
    a_low, b_low = a.low_word(), b.low_word()
    for k in k_blocks:
        ptx.mma_f16(d_col, a.descriptor(a_low, k), b.descriptor(b_low, k), idesc, k != k_blocks[0], a_in_tmem=False)


def mma_tmem(d_col, a_col, b: SmemOperand, idesc, k_blocks: range, accumulate) -> None:
    """D (+)= A * B over the K blocks, A in TMEM (two 16-bit values a column). One thread.

    accumulate: whether the first of the blocks adds to D; the others always do.
    """
    b_low = b.low_word()
    for k in k_blocks:
        adds = accumulate if k == k_blocks[0] else True
        ptx.mma_f16(d_col, a_col + k * MMA_K // 2, b.descriptor(b_low, k), idesc, adds, a_in_tmem=True)


def shared_address(tensor) -> Int32:
    """Shared-window address of a tensor's first element, the same in all lanes."""
    return cute.arch.make_warp_uniform(Int32(tensor.iterator.toint()))
