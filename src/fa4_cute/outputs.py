"""Layout of the results."""

import torch


def output_like(query: torch.Tensor, head_dim_v: int) -> torch.Tensor:
    """Empty tensor (..., head_dim_v) that is dense and has the query's dimension order, as SDPA's output has.

    A query that is a transposed (batch, seqlen, heads, head_dim) tensor gives a transposed output. The head dimension
    is always the innermost one.
    """
    strides = query.stride()
    order = [*sorted(range(query.dim() - 1), key=lambda d: (-strides[d], d)), query.dim() - 1]
    shape = [*query.shape[:-1], head_dim_v]
    dense = query.new_empty([shape[d] for d in order])
    return dense.permute([order.index(d) for d in range(query.dim())])


def lse_like(query: torch.Tensor) -> torch.Tensor:
    """Empty float32 (batch, heads, seqlen_q), contiguous."""
    return query.new_empty(query.shape[:-1], dtype=torch.float32)
