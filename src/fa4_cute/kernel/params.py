"""What the kernel is called with, and the bundle that every role gets."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Scalars:
    """Kernel parameters that vary from call to call; none is compiled in. Int32 unless noted."""

    seqlen_q: Any
    seqlen_k: Any
    heads_q: Any
    group: Any  # query heads that share a K/V head
    batch_heads: Any  # batch * heads_q
    causal_offset: Any  # row i sees keys 0 .. i + causal_offset
    scale_log2: Any  # Float32: softmax scale * log2(e), not zero; its sign negates Q in the MMA


@dataclass(frozen=True)
class TmaTensor:
    """A TMA atom (it carries the descriptor) and its coordinate tensor (rows, head dim, head, batch)."""

    atom: Any
    coordinates: Any


@dataclass(frozen=True)
class Context:
    """What all roles share; they have the signature role(ctx, work), `work` being the CTA's WorkTile."""

    cfg: Any
    scalars: Scalars
    channels: Any
    q: TmaTensor
    k: TmaTensor
    v: TmaTensor
    o: TmaTensor
    lse: Any  # Int64 address of float32 (batch, heads_q, seqlen_q), 0: not wanted
    smem_q: Any  # (128, head dim, 2): Q, later O
    smem_kv: Any  # (block_n, head dim, slots)
    smem_stats: Any  # (256,) float32: factor, at the end the sum, of each row
    tmem_base: Any  # pointer to the word that tcgen05.alloc wrote
