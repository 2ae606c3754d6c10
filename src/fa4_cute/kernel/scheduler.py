"""Which rows and keys this CTA works on.

The grid is (section, query tiles, sections). x runs fastest, so all heads of a section start their longest query
tile before any starts a shorter one (causal rows see more keys the further down they are), while a section holds
only as many heads as have their K and V in L2 together.
"""

from dataclasses import dataclass
from typing import Any

from cutlass import Int32, cute

from . import ptx, roles

CTA_ROWS = roles.Q_HALVES * roles.HALF_ROWS


@dataclass(frozen=True)
class WorkTile:
    """256 query rows of one head. Apart from `causal` and `block_n` the fields are device values (Int32)."""

    batch: Any
    head: Any
    kv_head: Any
    q_tile: Any
    row: Any  # first query row
    tiles: Any  # K/V tiles that any of the rows sees; worked on from the last to the first
    seqlen_k: Any
    causal_offset: Any
    causal: bool
    block_n: int

    def visible_keys(self, row):
        """How many keys query row `row` sees, counted from key 0; negative for rows above the diagonal."""
        if self.causal:
            return ptx.minimum(row + self.causal_offset + 1, self.seqlen_k)
        return self.seqlen_k

    def unmasked_tiles(self, half):
        """How many tiles, from tile 0 on, every row of a half sees in full."""
        first_row_sees = self.visible_keys(self.row + half * roles.HALF_ROWS)
        return ptx.maximum(first_row_sees, Int32(0)) // self.block_n


def head_batch_index():
    """batch * heads_q + head of the calling CTA; batch * heads_q or more for CTAs that fill up the last section."""
    return ptx.reread_grid_position()


def work_tile(cfg, scalars) -> WorkTile:
    """The tile of the calling CTA. Called by every role for itself: computed once before the roles part, these
    values would be spilled in the large role."""
    y, q_tiles = cute.arch.block_idx()[1], cute.arch.grid_dim()[1]
    head_batch = head_batch_index()
    batch = head_batch // scalars.heads_q
    head = head_batch - batch * scalars.heads_q
    causal = cfg.mask == "causal"
    q_tile = q_tiles - 1 - y if causal else y
    row = q_tile * CTA_ROWS
    seen = scalars.seqlen_k
    if causal:
        last_row = ptx.minimum(row + CTA_ROWS, scalars.seqlen_q) - 1
        seen = ptx.minimum(last_row + scalars.causal_offset + 1, seen)
    return WorkTile(
        batch=batch,
        head=head,
        kv_head=head // scalars.group,
        q_tile=q_tile,
        row=row,
        tiles=(ptx.maximum(seen, Int32(0)) + (cfg.block_n - 1)) // cfg.block_n,
        seqlen_k=scalars.seqlen_k,
        causal_offset=scalars.causal_offset,
        causal=causal,
        block_n=cfg.block_n,
    )
