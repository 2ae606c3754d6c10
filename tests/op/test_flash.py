"""flash_attn's names and conventions."""

import math

import pytest
import torch

import fa4_cute
from fa4_cute import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache


def inputs(lengths=(33, 50), heads=(4, 4), head_dim=64, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    shapes = ((lengths[0], heads[0]), (lengths[1], heads[1]), (lengths[1], heads[1]))
    return tuple(torch.randn(2, *shape, head_dim, generator=generator).to(dtype) for shape in shapes)


def attend(q, k, v, scale, causal, dtype):
    """(O (batch, seqlen, heads, head_dim), LSE) with every step in dtype: bottom-right causal, empty rows 0."""
    q, k, v = (x.to(dtype).transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = q @ k.mT * scale
    if causal:
        hidden = torch.arange(k.shape[2]) > torch.arange(q.shape[2])[:, None] + k.shape[2] - q.shape[2]
        scores = scores.masked_fill(hidden, -math.inf)
    weights = torch.nan_to_num(torch.softmax(scores, -1), nan=0.0)
    return (weights @ v).transpose(1, 2), torch.logsumexp(scores, -1)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
@pytest.mark.parametrize("lengths", [(33, 50), (50, 33), (1, 40)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("scale", [None, 0.3])
def test_matches_float64(scale, causal, lengths, heads, dtype):
    q, k, v = inputs(lengths, heads, dtype=dtype)
    out, lse, probabilities = flash_attn_func(q, k, v, 0.0, scale, causal, return_attn_probs=True)
    scale = 64**-0.5 if scale is None else scale
    expected, expected_lse = attend(q, k, v, scale, causal, torch.float64)
    error = (attend(q, k, v, scale, causal, dtype)[0].double() - expected).abs().max()
    assert out.shape == q.shape and out.is_contiguous() and probabilities is None
    assert (out.double() - expected).abs().max() <= 2 * error + 1e-5
    seen = expected_lse > -math.inf
    assert torch.equal(lse > -math.inf, seen) and (lse[seen] - expected_lse[seen]).abs().max() < 1e-3
    assert torch.equal(flash_attn_func(q, k, v, softmax_scale=scale, causal=causal), out)


@pytest.mark.parametrize("window", [(-1, 0), (-1, 5), (None, 0), (49, 0), (60, -1)])
def test_windows_that_hide_nothing_more_than_causal(window):
    """TransformerEngine#3528, flash-attention#1133: -1 on one side is no bound there, not an empty band."""
    q, k, v = inputs((50, 50))
    assert torch.equal(flash_attn_func(q, k, v, causal=True, window_size=window), flash_attn_func(q, k, v, causal=True))


def test_windows_without_causal():
    q, k, v = inputs((50, 50))
    assert torch.equal(flash_attn_func(q, k, v, window_size=(-1, 0)), flash_attn_func(q, k, v, causal=True))
    assert torch.equal(flash_attn_func(q, k, v, window_size=(49, 49)), flash_attn_func(q, k, v))


def test_negative_windows_are_refused():
    """flash-attention#1116."""
    with pytest.raises(ValueError, match=r"window_size: got \(-1, -3\)"):
        flash_attn_func(*inputs(), causal=True, window_size=(-1, -3))


@pytest.mark.parametrize(
    "options",
    [
        {"dropout_p": 0.1},
        {"softcap": 30.0},
        {"alibi_slopes": torch.ones(4)},
        {"window_size": (16, 16)},
        {"window_size": (48, 0)},
        {"window_size": (-1, 31)},
    ],
    ids=str,
)
def test_not_there_yet(options):
    with pytest.raises(NotImplementedError, match=next(iter(options))):
        flash_attn_func(*inputs(), **options)


@pytest.mark.parametrize("function", [flash_attn_varlen_func, flash_attn_with_kvcache])
def test_variants_not_there_yet(function):
    with pytest.raises(NotImplementedError, match=function.__name__):
        function(*inputs())


def test_gradients_and_ranks_are_refused():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="q: got 3 dimensions"):
        flash_attn_func(q[0], k, v)
    with pytest.raises(NotImplementedError, match="forward only"):
        fa4_cute.flash_attn_func(q.requires_grad_(), k, v)
