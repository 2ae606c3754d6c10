"""Attention in float64, and the error of a naive evaluation in the input's own dtype, for (B, S, H, D) tensors."""

from __future__ import annotations

import math

import torch


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    dtype: torch.dtype = torch.float64,
    window: tuple[int | None, int | None] = (None, None),
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O (B, Sq, H, Dv), natural-log LSE (B, H, Sq)), every intermediate in `dtype`.

    Causal is aligned bottom-right: row i sees keys up to i + Sk - Sq; a window (left, right) sees from `left` keys
    before that one to `right` keys behind it, None: no bound.  A row without keys gives O = 0, LSE = -inf.
    """
    group = q.shape[2] // k.shape[2]
    rows, keys = (t.to(dtype).permute(0, 2, 1, 3) for t in (q, k.repeat_interleave(group, 2)))
    values = v.to(dtype).repeat_interleave(group, 2).permute(0, 2, 1, 3)
    scores = rows @ keys.mT * scale
    left, right = (None, 0) if causal else window
    diagonal = k.shape[1] - q.shape[1]
    visible = torch.ones(scores.shape[-2:], dtype=torch.bool)
    if right is not None:
        visible = visible.tril(diagonal + right)
    if left is not None:
        visible = visible.triu(diagonal - left)
    scores = scores.masked_fill(~visible, -math.inf)
    weights = torch.softmax(scores, -1).nan_to_num(0.0)
    return (weights @ values).permute(0, 2, 1, 3), torch.logsumexp(scores, -1)


def tolerance(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    scale: float,
    causal: bool,
    window: tuple[int | None, int | None] = (None, None),
) -> float:
    """Twice the largest error of the evaluation that rounds every intermediate to the inputs' dtype."""
    exact, _ = attention(q, k, v, scale, causal, window=window)
    naive, _ = attention(q, k, v, scale, causal, q.dtype, window)
    return 2.0 * (naive.double() - exact).abs().max().item()
