"""reference.py against torch's own SDPA, in float64, and where SDPA has nothing to say."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.bias import causal_lower_right

from fa4_cute.problem import Problem
from fa4_cute.reference import attention


def make(q_length=5, k_length=7, heads=(2, 2), head_dim=8, mask="none", offset=0, scale=0.3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(2, heads[0], q_length, head_dim, generator=generator, dtype=torch.float64)
    key, value = (torch.randn(2, heads[1], k_length, head_dim, generator=generator, dtype=torch.float64) for _ in "kv")
    problem = Problem(2, heads[0], heads[1], q_length, k_length, head_dim, head_dim, "bf16", mask, offset, scale)
    return query, key, value, problem


def evaluate(query, key, value, problem):
    return attention(query, key, value, problem, compute_dtype=torch.float64)


@pytest.mark.parametrize("lengths", [(5, 7), (7, 5), (300, 600), (1, 1)])
@pytest.mark.parametrize("heads", [(2, 2), (6, 2)])
def test_matches_sdpa(lengths, heads):
    for causal in (False, True):
        query, key, value, problem = make(*lengths, heads=heads, mask="causal" if causal else "none")
        expected = F.scaled_dot_product_attention(query, key, value, is_causal=causal, scale=0.3, enable_gqa=True)
        torch.testing.assert_close(evaluate(query, key, value, problem)[0], expected, rtol=1e-12, atol=1e-12)


def test_matches_sdpa_bottom_right():
    query, key, value, problem = make(5, 9, mask="causal", offset=4)
    bias = causal_lower_right(5, 9)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=0.3)
    torch.testing.assert_close(evaluate(query, key, value, problem)[0], expected, rtol=1e-12, atol=1e-12)


def test_lse():
    query, key, value, problem = make(300, 400, mask="causal", offset=100)
    scores = query @ key.transpose(-1, -2) * 0.3
    hidden = torch.arange(400) > torch.arange(300)[:, None] + 100
    expected = scores.masked_fill(hidden, -math.inf).logsumexp(-1)
    torch.testing.assert_close(evaluate(query, key, value, problem)[1], expected, rtol=1e-12, atol=1e-12)


def test_rows_without_keys():
    out, lse = evaluate(*make(9, 4, mask="causal", offset=-5))
    assert (out[:, :, :5] == 0).all() and (lse[:, :, :5] == -math.inf).all()
    assert (lse[:, :, 5:] > -math.inf).all() and not torch.isnan(out).any()
    out, lse = evaluate(*make(3, 0))
    assert (out == 0).all() and (lse == -math.inf).all()


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf])
def test_hidden_keys_and_values_have_no_influence(poison):
    query, key, value, problem = make(6, 6, mask="causal")
    clean = evaluate(query, key, value, problem)
    key[:, :, 4:], value[:, :, 4:] = poison, poison
    dirty = evaluate(query, key, value, problem)
    assert torch.equal(clean[0][:, :, :4], dirty[0][:, :, :4]) and torch.equal(clean[1][:, :, :4], dirty[1][:, :, :4])
    assert not torch.isfinite(dirty[0][:, :, 4:]).any()


def test_visible_values_that_are_not_finite():
    query, key, value, problem = make(6, 6)
    value[0, 0, 1, 2], value[0, 0, 2, 3], value[0, 0, 3, 3] = math.inf, math.inf, -math.inf
    value[0, 0, 0, 5] = math.nan
    out, _ = evaluate(query, key, value, problem)
    assert (
        (out[0, 0, :, 2] == math.inf).all()
        and torch.isnan(out[0, 0, :, 3]).all()
        and torch.isnan(out[0, 0, :, 5]).all()
    )
    assert torch.isfinite(out[0, 0, :, [0, 1, 4, 6, 7]]).all()
