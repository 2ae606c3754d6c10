"""How wrong is too wrong: errors against float64, of a result and of a naive evaluation in the input's own dtype."""

import math
from typing import Any

import torch

from .reference import attention
from .validate import check


def reference_float64(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O, LSE) in float64 from the already rounded inputs; options as fa4_cute.mha."""
    problem = check(query, key, value, **options)
    return attention(query, key, value, problem, compute_dtype=torch.float64)


def naive(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> torch.Tensor:
    """softmax(scale * Q K^T) V with every intermediate rounded to the input's dtype, as a plain program has it."""
    problem = check(query, key, value, **options)
    group = problem.heads_q // problem.heads_kv
    keys, values = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
    scores = (query @ keys.transpose(-1, -2)) * problem.scale
    if problem.mask == "causal":
        rows = torch.arange(problem.seqlen_q)[:, None] + problem.causal_offset
        scores = scores.masked_fill(torch.arange(problem.seqlen_k) > rows, -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
    return weights @ values


def naive_error(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, **options: Any) -> float:
    """Largest absolute error of `naive` against float64; 0 for an empty result."""
    if query.numel() == 0 or key.numel() == 0:
        return 0.0
    expected, _ = reference_float64(query, key, value, **options)
    return float((naive(query, key, value, **options).double() - expected).abs().max())
