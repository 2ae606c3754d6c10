"""What is to be computed, without tensors."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Problem:
    """One attention forward call. Lengths in rows, scale multiplies Q K^T."""

    batch: int
    heads_q: int
    heads_kv: int
    seqlen_q: int
    seqlen_k: int
    head_dim: int
    head_dim_v: int
    dtype: str  # "bf16" or "fp16"
    mask: str  # "none" or "causal"
    causal_offset: int  # causal: row i sees keys 0 .. i + causal_offset
    scale: float
