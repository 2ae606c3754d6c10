"""Correction role (one warpgroup for both halves; one row a thread): rescales O when a row's reference maximum has
moved, and at the end normalises O and stores it.

It takes the halves in turn and gives a half's stats slot back only after the other half's factor has arrived.
That paces the two softmax warpgroups half a tile apart, so that one computes exponentials while the other loads,
reduces and waits.
"""

import cutlass
from cutlass import Float32, Int32, cute

from . import ptx, roles, smem, umma
from .load import tma_tiles

COLUMNS = 16  # O columns in registers at a time while rescaling
STORE_COLUMNS = 32  # O columns in registers at a time in the epilogue


def rescale(o_col, factor, head_dim: int):
    """O *= factor on this thread's lane, loads one block ahead of the multiplications."""
    blocks = range(0, head_dim, COLUMNS)
    for first in blocks:
        values = ptx.tmem_load(o_col + first, COLUMNS)
        ptx.tmem_wait_load()
        scaled = []
        for i in range(0, COLUMNS, 2):
            scaled += ptx.mul2((values[i], values[i + 1]), (factor, factor))
        ptx.tmem_store(o_col + first, scaled)
    ptx.tmem_wait_store()


def store_row(tile, row, first_col: int, words: list):
    """16-bit pairs `words` of a row to columns first_col.. of a swizzled (128, cols) tile, 16 bytes at a time."""
    for i in range(0, len(words), 4):
        offset = smem.swizzled_offset_bytes(row, first_col + 2 * i, roles.HALF_ROWS)
        ptx.store_shared_v4(umma.shared_address(tile) + offset, words[i : i + 4])


@cute.jit
def correction(ctx, work):
    """The correction warpgroup."""
    cfg, channels = ctx.cfg, ctx.channels
    row = cute.arch.thread_idx()[0] % roles.WARPGROUP_THREADS
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4
    lanes = warp << 21
    o_cols = (lanes + cfg.o0_col, lanes + cfg.o1_col)

    if work.tiles > 0:
        # The first tile's factors are for an O that does not exist yet.
        for half in cutlass.range_constexpr(roles.Q_HALVES):
            channels.wait_stats(half, warp)
            channels.p_first.arrive(half)
        channels.stats_free.arrive(0)
        for _ in cutlass.range(work.tiles - 1, unroll=1):
            for half in cutlass.range_constexpr(roles.Q_HALVES):
                channels.wait_stats(half, warp)
                factor = ctx.smem_stats[half * roles.HALF_ROWS + row]
                # s_full of this tile followed the previous PV, so O is complete: no barrier of its own.
                if cute.arch.vote_any_sync(factor < Float32(1.0)):
                    ptx.tcgen05_fence_after_sync()
                    rescale(o_cols[half], factor, cfg.head_dim)
                channels.p_first.arrive(half)
                channels.stats_free.arrive(1 - half)
        channels.stats_free.arrive(1)
        for half in cutlass.range_constexpr(roles.Q_HALVES):
            channels.wait_stats(half, warp)
            total = ctx.smem_stats[half * roles.HALF_ROWS + row]
            channels.o_full.wait(half, 0)
            write_output(ctx, work, half, row, o_cols[half], total)
    else:
        for half in cutlass.range_constexpr(roles.Q_HALVES):
            channels.wait_stats(half, warp)  # softmax posts its sum, 0, here too
            write_output(ctx, work, half, row, None, Float32(0.0))
    cute.arch.cp_async_bulk_wait_group(0, read=True)  # shared memory must outlive the reads of the TMA stores


def normalised_row(cfg, tile, row, o_col, total) -> None:
    """O / total of one row, rounded, to its row of `tile`; zeros if o_col is None or total 0: the row sees no key."""
    dtype = smem.DTYPES[cfg.dtype]
    empty = total == Float32(0.0)
    inverse = cute.arch.rcp_approx(total)
    for first in range(0, cfg.head_dim, STORE_COLUMNS):
        words = [Int32(0)] * (STORE_COLUMNS // 2)
        if o_col is not None:
            values = ptx.tmem_load(o_col + first, STORE_COLUMNS)
            ptx.tmem_wait_load()
            pairs = [ptx.mul2((values[i], values[i + 1]), (inverse, inverse)) for i in range(0, STORE_COLUMNS, 2)]
            words = [ptx.select(empty, Int32(0), ptx.pack_half2(*pair, dtype)) for pair in pairs]
        store_row(tile, row, first, words)


@cute.jit
def write_output(ctx, work, half: cutlass.Constexpr, row, o_col, total):
    """The half's O to shared memory (where Q was), then to global memory by TMA, which drops rows past seqlen_q."""
    normalised_row(ctx.cfg, ctx.smem_q[None, None, half], row, o_col, total)
    cute.arch.fence_view_async_shared()  # generic-proxy writes, then the TMA store reads them
    cute.arch.barrier(barrier_id=roles.NamedBarrier.EPILOGUE, number_of_threads=roles.WARPGROUP_THREADS)
    if cute.arch.make_warp_uniform(cute.arch.warp_idx()) == roles.CORRECTION_WARPS[0]:
        o_shared, o_global = tma_tiles(ctx.o, ctx.smem_q, roles.HALF_ROWS, ctx.cfg.head_dim, work.head, work.batch)
        with cute.arch.elect_one():  # unlike a TMA load, cute.copy does not elect the thread of a store
            cute.copy(ctx.o.atom, o_shared[None, half], o_global[None, work.q_tile * roles.Q_HALVES + half])
            cute.arch.cp_async_bulk_commit_group()
