"""Load role (one warp): Q once, then K and V tiles through the ring, by TMA.

TMA fills rows past the end of Q, K or V with zeros, whatever lies behind them in memory, and counts the full box
in the transaction bytes, so every expectation is a compile-time number.
"""

from dataclasses import dataclass
from typing import Any

import cutlass
from cutlass import Int32, cute
from cutlass.cute.nvgpu import cpasync

from . import roles


def tma_tiles(tensor, smem, rows: int, cols: int, head, batch):
    """((rows, cols) boxes in shared memory by stage, the same boxes of one head in global memory by tile)."""
    per_head = tensor.coordinates[None, None, head, batch]  # (seqlen, head dim)
    tiles = cute.local_tile(per_head, (rows, cols), (None, 0))  # (rows, cols, tile)
    return cpasync.tma_partition(
        tensor.atom,
        0,
        cute.make_layout(1),
        cute.group_modes(smem, 0, 2),  # ((rows, cols), stage)
        cute.group_modes(tiles, 0, 2),  # ((rows, cols), tile)
    )


@dataclass(frozen=True)
class Loader:
    """Boxes of one TMA tensor and the channel that announces them."""

    tensor: Any
    shared: Any  # ((rows, cols), stage)
    source: Any  # ((rows, cols), tile)
    full: Any
    box_bytes: int

    def load(self, tile, stage) -> None:
        """Starts the copy of a box; the stage must be free."""
        with cute.arch.elect_one():
            self.full.expect(stage, self.box_bytes)
        # cute.copy elects its own thread: it has to be called by the whole warp.
        barrier = self.full.base + stage
        cute.copy(self.tensor.atom, self.source[None, tile], self.shared[None, stage], tma_bar_ptr=barrier)


@cute.jit
def load(ctx, work):
    """The load warp."""
    if work.tiles > 0:
        load_all(ctx, work)


@cute.jit
def load_all(ctx, work):
    """All boxes of the CTA; at least one K/V tile."""
    cfg, channels = ctx.cfg, ctx.channels

    def loader(tensor, smem, rows: int, head, full):
        shared, source = tma_tiles(tensor, smem, rows, cfg.head_dim, head, work.batch)
        return Loader(tensor, shared, source, full, rows * cfg.head_dim * 2)

    q = loader(ctx.q, ctx.smem_q, roles.HALF_ROWS, work.head, channels.q_full)
    k = loader(ctx.k, ctx.smem_kv, cfg.block_n, work.kv_head, channels.kv_full)
    v = loader(ctx.v, ctx.smem_kv, cfg.block_n, work.kv_head, channels.kv_full)

    q_tile, last = work.q_tile * roles.Q_HALVES, work.tiles - 1
    q.load(q_tile, 0)
    k.load(last, 0)
    q.load(q_tile + 1, 1)
    v.load(last, 1)
    slot, phase = Int32(2), Int32(0)
    for i in cutlass.range(last, unroll=1):
        # A fresh mbarrier counts as "phase 1 done", so the first round does not block.
        channels.kv_empty.wait(slot, phase ^ 1)
        k.load(last - 1 - i, slot)
        slot, phase = channels.next_slot(slot, phase)
        channels.kv_empty.wait(slot, phase ^ 1)
        v.load(last - 1 - i, slot)
        slot, phase = channels.next_slot(slot, phase)
