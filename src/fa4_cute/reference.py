"""The semantics of fa4::mha in plain PyTorch: the op's CPU kernel and, in float64, the oracle of the tests.

Tiled over query rows, so that long sequences fit. Formula: O = softmax(scale * Q K^T + mask) V over the keys a row
sees; LSE = ln(sum of exp of its logits). A row that sees no key gives O = 0 and LSE = -inf.
"""

import math

import torch

from .outputs import lse_like, output_like
from .problem import Problem

ROWS_PER_TILE = 256


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    problem: Problem,
    *,
    compute_dtype: torch.dtype = torch.float32,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) of a checked problem: O (batch, heads_q, seqlen_q, head_dim_v) and LSE (batch, heads_q, seqlen_q), both
    in compute_dtype.

    Whatever a masked key or value holds, NaN included, has no influence on a row that does not see it.
    """
    group = problem.heads_q // problem.heads_kv
    out = query.new_empty((*query.shape[:-1], problem.head_dim_v), dtype=compute_dtype)
    lse = query.new_empty(query.shape[:-1], dtype=compute_dtype)
    keys = key.to(compute_dtype).repeat_interleave(group, 1)
    values = value.to(compute_dtype).repeat_interleave(group, 1)
    columns = torch.arange(problem.seqlen_k, device=query.device)
    clean = torch.where(torch.isfinite(values), values, 0.0)
    all_finite = torch.equal(clean, values)
    for first in range(0, problem.seqlen_q, ROWS_PER_TILE):
        rows = slice(first, min(first + ROWS_PER_TILE, problem.seqlen_q))
        scores = query[:, :, rows].to(compute_dtype) @ keys.transpose(-1, -2) * problem.scale
        seen = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device)
        if problem.mask == "causal":
            seen = columns <= torch.arange(rows.start, rows.stop, device=query.device)[:, None] + problem.causal_offset
            scores = scores.masked_fill(~seen, -math.inf)
        maximum = scores.new_full((*scores.shape[:-1], 1), -math.inf)
        if problem.seqlen_k:
            maximum = scores.amax(-1, keepdim=True)
        weights = torch.exp(scores - torch.where(maximum == -math.inf, 0.0, maximum))
        total = weights.sum(-1, keepdim=True)
        result = weights @ clean / torch.where(total == 0, 1.0, total)
        if not all_finite:
            result = _with_non_finite(result, seen.to(compute_dtype), values)
        out[:, :, rows] = result
        lse[:, :, rows] = (maximum + torch.log(total))[..., 0]
    return out, lse


def _with_non_finite(result: torch.Tensor, seen: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """`result`, computed without the values that are not finite, with what they do to the rows that see them.

    Multiplying a NaN by the weight 0 of a hidden key would leak it into rows that must not see it.
    """

    def sees_any(kind: torch.Tensor) -> torch.Tensor:
        return seen @ kind.to(seen.dtype) > 0

    up, down = sees_any(values == math.inf), sees_any(values == -math.inf)
    result = torch.where(up, math.inf, torch.where(down, -math.inf, result))
    return torch.where(sees_any(torch.isnan(values)) | (up & down), math.nan, result)


def forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, problem: Problem
) -> tuple[torch.Tensor, torch.Tensor]:
    """The op on the CPU: (O in the query's dtype and dimension order, LSE in float32)."""
    out, lse = attention(query, key, value, problem)
    result, result_lse = output_like(query, problem.head_dim_v), lse_like(query)
    result.copy_(out)
    result_lse.copy_(lse)
    return result, result_lse
