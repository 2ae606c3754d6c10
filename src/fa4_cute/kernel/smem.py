"""Shared memory of one CTA: the layout of the tiles and of what lies behind them."""

from cutlass import BFloat16, Float16, Float32, Int32, Int64, cute
from cutlass.cute.nvgpu import tcgen05

from . import roles
from .channels import mbarrier_count

DTYPES = {"bf16": BFloat16, "fp16": Float16}
SWIZZLE_ROW_BYTES = 128
TILE_ALIGN_BYTES = 1024  # one 8-row atom of the 128-byte swizzle


def tile_layout(rows: int, cols: int, stages: int, dtype):
    """(rows, cols, stages) in 128-byte swizzle.

    64-column blocks of all rows lie one after the other, a row of a block is 128 bytes: the placement that a TMA
    box of (rows, 64) produces, that a K-major operand (Q, K) and an MN-major operand (V) can both be read from.
    """
    atom = tcgen05.make_smem_layout_atom(tcgen05.SmemLayoutAtomKind.K_SW128, dtype)  # (8, 64)
    return cute.tile_to_shape(atom, (rows, cols, stages), order=(0, 1, 2))


def swizzled_offset_bytes(row, col: int, rows: int):
    """Byte offset of a 16-byte aligned column in a tile of `rows` rows: within a row of 128 bytes, 16-byte chunk c
    lies at c ^ (row % 8)."""
    block, col_of_block = divmod(col, SWIZZLE_ROW_BYTES // 2)
    chunk_bytes = (2 * col_of_block) ^ ((row % 8) * 16)
    return block * rows * SWIZZLE_ROW_BYTES + row * SWIZZLE_ROW_BYTES + chunk_bytes


def shared_storage(cfg):
    """The @cute.struct of a configuration. O is staged where Q was: Q is dead once the last S has been computed.

    ValueError if it is larger than the configuration's budget, which is what a launch reserves.
    """
    dtype = DTYPES[cfg.dtype]

    @cute.struct
    class SharedStorage:
        q: cute.struct.Align[
            cute.struct.MemRange[dtype, roles.Q_HALVES * roles.HALF_ROWS * cfg.padded_head_dim], TILE_ALIGN_BYTES
        ]
        kv: cute.struct.Align[
            cute.struct.MemRange[dtype, cfg.kv_slots * cfg.block_n * cfg.padded_head_dim], TILE_ALIGN_BYTES
        ]
        stats: cute.struct.MemRange[Float32, roles.Q_HALVES * roles.HALF_ROWS]
        mbarriers: cute.struct.MemRange[Int64, mbarrier_count(cfg.kv_slots)]
        tmem_base: Int32

    # The struct's own size is padded to its alignment; nothing lies in that padding.
    tiles_bytes = (roles.Q_HALVES * roles.HALF_ROWS + cfg.kv_slots * cfg.block_n) * cfg.padded_head_dim * 2
    stats_bytes, tmem_base_bytes = 4 * roles.Q_HALVES * roles.HALF_ROWS, 4
    used_bytes = tiles_bytes + stats_bytes + 8 * mbarrier_count(cfg.kv_slots) + tmem_base_bytes
    if used_bytes > cfg.smem_bytes:
        raise ValueError(f"shared storage takes {used_bytes} bytes, the budget of {cfg} is {cfg.smem_bytes}")
    return SharedStorage
