"""Faults that users met in other attention kernels, as far as the op can express them."""

import math

import pytest
import torch
import torch.nn.functional as F

import fa4_cute
from fa4_cute.accuracy import naive


def inputs(q_shape, k_shape, dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator).to(dtype) for shape in (q_shape, k_shape, k_shape))


def oracle(query, key, value, is_causal=False, causal_alignment="top_left", scale=None, enable_gqa=False):
    """(O, LSE) by torch's SDPA and logsumexp in float64: shares no code with the op's CPU kernel, reference.py."""
    q_length, k_length = query.shape[2], key.shape[2]
    offset = k_length - q_length if causal_alignment == "bottom_right" else 0
    seen = torch.ones(q_length, k_length, dtype=torch.bool)
    seen = seen.tril(offset) if is_causal else seen
    query, key, value = query.double(), key.double(), value.double()
    scale = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=seen, scale=scale, enable_gqa=enable_gqa)
    batch, heads, head_dim = query.shape[0], key.shape[1], query.shape[-1]
    grouped = query.reshape(batch, heads, -1, q_length, head_dim)  # query heads of one key head lie side by side
    scores = (grouped @ key[:, :, None].transpose(-1, -2) * scale).masked_fill(~seen, -math.inf)
    return out, scores.logsumexp(-1).reshape(query.shape[:-1])


def assert_right(tensors, **options):
    out, lse = fa4_cute.mha(*tensors, return_lse=True, **options)
    expected, expected_lse = oracle(*tensors, **options)
    naive_error = (naive(*tensors, **options).double() - expected).abs().max()
    assert (out.double() - expected).abs().max() <= 2 * naive_error + 1e-5
    assert torch.equal(lse == -math.inf, expected_lse == -math.inf)
    seen = lse > -math.inf
    assert (lse[seen] - expected_lse[seen]).abs().max() < 1e-3
    return out, lse


@pytest.mark.parametrize("scale", [-0.3, 0.0])
@pytest.mark.parametrize("causal", [False, True])
def test_scale_of_any_sign(scale, causal):
    query, key, value = inputs((1, 2, 40, 64), (1, 2, 300, 64))
    out, lse = assert_right((query, key, value), is_causal=causal, scale=scale)
    if scale == 0.0:  # all keys weigh the same
        assert torch.allclose(lse[:, :, -1], torch.tensor(math.log(40 if causal else 300)))
    else:  # softmax(-s Q K^T) is softmax(s (-Q) K^T), exactly
        assert torch.equal(out, fa4_cute.mha(-query, key, value, is_causal=causal, scale=-scale))


def test_bottom_right_with_more_queries_than_keys():
    """flash-attention#1778: the rows before the first key are empty, the others are not."""
    options = {"is_causal": True, "causal_alignment": "bottom_right"}
    out, lse = assert_right(inputs((1, 1, 256, 64), (1, 1, 128, 64)), **options)
    assert (out[:, :, :128] == 0).all() and (lse[:, :, :128] == -math.inf).all()
    assert torch.isfinite(lse[:, :, 128:]).all()


def test_bottom_right_decode_sees_every_key():
    """flash-attention#282."""
    tensors = inputs((1, 2, 1, 128), (1, 2, 300, 128))
    decoded = fa4_cute.mha(*tensors, is_causal=True, causal_alignment="bottom_right")
    assert torch.equal(decoded, fa4_cute.mha(*tensors))


def test_single_key():
    """flashinfer PR#4401: one valid key gives its value and its score."""
    query, key, value = inputs((2, 2, 3, 64), (2, 2, 1, 64))
    out, lse = fa4_cute.mha(query, key, value, return_lse=True)
    assert torch.equal(out, value.expand_as(out))
    scores = (query.double() * key.double()).sum(-1) / 8
    assert (lse.double() - scores).abs().max() < 1e-3


@pytest.mark.parametrize("fused_heads", [False, True])
def test_slices_of_a_fused_buffer(fused_heads):
    """flash-attention#2541: q, k and v are slices of one buffer."""
    generator = torch.Generator().manual_seed(0)
    if fused_heads:
        buffer = torch.randn(200, 2, 4 + 2 * 2, 64, generator=generator).bfloat16()  # (seqlen, batch, heads, head dim)
        tensors = [part.permute(1, 2, 0, 3) for part in buffer.split((4, 2, 2), 2)]
    else:
        buffer = torch.randn(2, 200, 3, 2, 64, generator=generator).bfloat16()
        tensors = [buffer[:, :, i].transpose(1, 2) for i in range(3)]
    dense = [x.contiguous() for x in tensors]
    out = fa4_cute.mha(*tensors, enable_gqa=fused_heads)
    assert torch.equal(out, fa4_cute.mha(*dense, enable_gqa=fused_heads))
    assert_right(tensors, enable_gqa=fused_heads)


@pytest.mark.parametrize("expanded_first", [False, True])
def test_broadcast_keys_then_dense_ones(expanded_first):
    """flash-attention PR#2189, pytorch#191937: nothing remembers the stride 0 of an earlier call."""
    query, key, value = inputs((1, 4, 33, 64), (1, 1, 33, 64))
    broadcast = (query, key.expand(1, 4, 33, 64), value.expand(1, 4, 33, 64))
    dense = inputs((1, 4, 33, 64), (1, 4, 33, 64))
    for tensors in (broadcast, dense) if expanded_first else (dense, broadcast):
        assert_right(tensors)
        assert torch.equal(fa4_cute.mha(*tensors), fa4_cute.mha(*(x.contiguous() for x in tensors)))


def test_one_hot_values_keep_their_columns():
    """flash-attention PR#2553: right norms, wrong element order. Value j is the unit vector j."""
    query, key, _ = inputs((1, 1, 5, 64), (1, 1, 64, 64), torch.float16)
    value = torch.eye(64, dtype=torch.float16)[None, None]
    out, _ = assert_right((query, key, value))
    weights = torch.softmax(query.double() @ key.double().transpose(-1, -2) / 8, -1)
    assert torch.equal(out.argmax(-1), weights.argmax(-1))
    assert (out.double() - weights).abs().max() < 2**-11 + 1e-5  # weights are at most 1: half an fp16 ulp there


@pytest.mark.parametrize("group", [3, 5, 7, 10])
@pytest.mark.parametrize("length", [1, 17, 130])
def test_groups_that_divide_no_tile(group, length):
    """flash-attention#2300."""
    tensors = inputs((1, group, length, 64), (1, 1, length, 64))
    assert_right(tensors, is_causal=True, enable_gqa=True)


def test_broadcast_heads_need_enable_gqa():
    """pytorch PR#191085: a clear error where one key head would have to be broadcast."""
    with pytest.raises(ValueError, match=r"key: got 1 heads for 4 query heads.*enable_gqa=True"):
        fa4_cute.mha(*inputs((2, 4, 64, 64), (2, 1, 64, 64)))


def test_decode_with_few_key_heads():
    """pytorch#193893: 14 query heads on 2 key heads, one query."""
    for length in (65, 200):
        assert_right(inputs((1, 14, 1, 64), (1, 2, length, 64)), enable_gqa=True)


def test_lse_far_below_what_exp_can_hold():
    """pytorch#196678: every logit is -120, so exp(LSE) is 0 in float32."""
    query, key = (torch.zeros(1, 1, 192, 64, dtype=torch.bfloat16) for _ in range(2))
    query[..., 0], key[..., 0] = 1, -120 * 8
    value = inputs((1, 1, 192, 64), (1, 1, 192, 64))[2]
    out, lse = assert_right((query, key, value))
    assert torch.isfinite(out).all() and (lse + 120 - math.log(192)).abs().max() < 1e-3


@pytest.mark.parametrize("kind", ["head dim strided", "2 bytes off"])
def test_tensors_that_tma_cannot_read(kind):
    """pytorch PR#187506, flash-attention PR#2745."""
    if kind == "head dim strided":
        tensors = [x[..., ::2] for x in inputs((1, 2, 40, 128), (1, 2, 50, 128))]
    else:
        dense = inputs((1, 2, 40, 64), (1, 2, 50, 64))
        tensors = [torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape) for x in dense]
    assert torch.equal(assert_right(tensors)[0], fa4_cute.mha(*(x.clone() for x in tensors)))


def test_first_key_tile_at_the_lowest_number():
    """pytorch#109517: an additive mask with finfo.min in the first 128 columns hides them and makes no NaN."""
    query, key, value = inputs((1, 1, 150, 64), (1, 1, 441, 64))
    mask = torch.zeros(150, 441)
    mask[:, :128] = torch.finfo(torch.float32).min
    out = fa4_cute.scaled_dot_product_attention(query, key, value, mask)
    expected, _ = oracle(query, key[:, :, 128:], value[:, :, 128:])
    naive_error = (naive(query, key[:, :, 128:], value[:, :, 128:]).double() - expected).abs().max()
    assert (out.double() - expected).abs().max() <= 2 * naive_error + 1e-5


@pytest.mark.parametrize("head_dim", [72, 80, 88, 512])
def test_head_dims_without_a_kernel_are_named(head_dim):
    """flash-attention#1599, vllm#40677: the reason names the supported ones, before anything runs."""
    tensors = inputs((1, 2, 8, head_dim), (1, 2, 8, head_dim))
    with pytest.raises(NotImplementedError, match=rf"head_dim {head_dim} is not served yet, only \(64, 128\)"):
        fa4_cute.mha(*tensors)
    assert f"head_dim {head_dim}" in fa4_cute.explain(*tensors)
