"""The operator under PyTorch's own contracts."""

import math

import pytest
import torch
import torch.nn.functional as F

import fa4_cute
from fa4_cute.accuracy import naive_error, reference_float64


def inputs(batch=2, heads=(4, 4), lengths=(33, 50), head_dim=64, dtype=torch.bfloat16, layout="bhsd", seed=0):
    generator = torch.Generator().manual_seed(seed)

    def tensor(count, length):
        if layout == "bshd":
            return torch.randn(batch, length, count, head_dim, generator=generator).to(dtype).transpose(1, 2)
        return torch.randn(batch, count, length, head_dim, generator=generator).to(dtype)

    return tensor(heads[0], lengths[0]), tensor(heads[1], lengths[1]), tensor(heads[1], lengths[1])


@pytest.mark.parametrize("name", ["mha", "mha_with_lse"])
@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_opcheck(name, layout):
    operator = getattr(torch.ops.fa4, name).default
    torch.library.opcheck(operator, inputs(layout=layout), {"is_causal": True, "scale": 0.2})
    torch.library.opcheck(operator, inputs(heads=(4, 1)), {"enable_gqa": True, "causal_alignment": "bottom_right"})


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
def test_matches_float64(causal, heads):
    query, key, value = inputs(heads=heads)
    options = {"is_causal": causal, "enable_gqa": heads[0] != heads[1]}
    out, lse = fa4_cute.mha(query, key, value, return_lse=True, **options)
    expected, expected_lse = reference_float64(query, key, value, **options)
    assert (out.double() - expected).abs().max() <= 2 * naive_error(query, key, value, **options) + 1e-5
    assert (lse.double() - expected_lse).abs().max() < 1e-3
    assert torch.equal(out, fa4_cute.mha(query, key, value, **options))


def test_strides_follow_the_query():
    query, key, value = inputs(layout="bshd")
    out = fa4_cute.mha(query, key, value)
    assert out.transpose(1, 2).is_contiguous()
    assert out.stride() == F.scaled_dot_product_attention(query, key, value).stride()


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(dynamic):
    torch._dynamo.reset()

    def function(query, key, value):
        return fa4_cute.mha(query * 1.0, key, value, is_causal=True, causal_alignment="bottom_right") + 1

    compiled = torch.compile(function, fullgraph=True, dynamic=dynamic, backend="aot_eager")
    with torch.no_grad():
        for lengths in ((33, 50), (40, 64), (7, 19)):
            arguments = inputs(lengths=lengths)
            torch.testing.assert_close(compiled(*arguments), function(*arguments), rtol=0, atol=0)


def test_dynamic_length_compiles_once():
    torch._dynamo.reset()
    counter = torch._dynamo.testing.CompileCounter()
    compiled = torch.compile(lambda q, k, v: fa4_cute.mha(q, k, v), fullgraph=True, backend=counter)
    with torch.no_grad():
        for length in (30, 40, 50, 60):
            arguments = inputs(lengths=(length, length))
            for argument in arguments:
                torch._dynamo.mark_dynamic(argument, 2)
            compiled(*arguments)
    assert counter.frame_count == 1


def test_inductor():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: fa4_cute.mha(q + 1, k, v).float().sum(-1), fullgraph=True)
    arguments = inputs()
    with torch.no_grad():
        expected = fa4_cute.mha(arguments[0] + 1, *arguments[1:]).float().sum(-1)
        torch.testing.assert_close(compiled(*arguments), expected, rtol=1e-4, atol=1e-4)


def test_gradient_is_refused():
    query, key, value = inputs()
    value.requires_grad_()
    for operator in (torch.ops.fa4.mha, torch.ops.fa4.mha_with_lse):
        with pytest.raises(NotImplementedError, match="forward only"):
            operator(query, key, value)
        with torch.no_grad():
            operator(query, key, value)
    fa4_cute.mha(query, key, value.detach())


@pytest.mark.parametrize("lengths", [(0, 5), (5, 0), (0, 0)])
def test_empty(lengths):
    out, lse = fa4_cute.mha(*inputs(lengths=lengths), return_lse=True)
    assert out.shape == (2, 4, lengths[0], 64) and (out == 0).all() and (lse == -math.inf).all()


def test_empty_batch():
    assert fa4_cute.mha(*inputs(batch=0)).shape == (0, 4, 33, 64)


def test_meta_tensors():
    arguments = [x.to("meta") for x in inputs(layout="bshd")]
    out, lse = fa4_cute.mha(*arguments, return_lse=True)
    assert out.device.type == "meta" and out.stride() == arguments[0].stride() and lse.dtype == torch.float32


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"attn_mask": torch.ones(33, 50, dtype=torch.bool)}, "attn_mask"),
        ({"head_dim": 80}, "head_dim 80"),
        ({"dtype": torch.float32}, "float32"),
        ({"grad": True}, "forward only"),
    ],
)
def test_sdpa_falls_back_and_says_why(change, why, caplog):
    fa4_cute.api._logged.clear()
    made = {k: v for k, v in change.items() if k in ("head_dim", "dtype")}
    query, key, value = inputs(**made)
    if "grad" in change:
        query.requires_grad_()
    mask = change.get("attn_mask")
    with caplog.at_level("INFO", logger="fa4_cute"):
        out = fa4_cute.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        fa4_cute.scaled_dot_product_attention(query, key, value, attn_mask=mask)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(query, key, value, attn_mask=mask))
    assert [why in record.message for record in caplog.records] == [True], "logged once"
    assert why in fa4_cute.explain(query, key, value, mask)
    if "grad" not in change:
        with pytest.raises(NotImplementedError, match=why):
            torch.ops.fa4.mha(query, key, value, mask)


def test_sdpa_bad_input_gets_torchs_error():
    query, key, value = inputs()
    with pytest.raises(RuntimeError):
        fa4_cute.scaled_dot_product_attention(query, key[..., :32], value)


def test_explain_shows_the_plan():
    text = fa4_cute.explain(*inputs(head_dim=128), is_causal=True)
    assert "128" in text and "FA4Config(bf16 d128 causal sm_100a" in text and "grid (8, 1, 1)" in text


def test_explain_says_when_a_problem_is_too_large():
    query = torch.empty(1, 1, 65535 * 256 + 1, 64, dtype=torch.bfloat16, device="meta")
    key = query[:, :, :1]
    assert "scaled_dot_product_attention: query tiles: 65536 exceed" in fa4_cute.explain(query, key, key)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x[..., ::2],
        lambda x: x.as_strided(x.shape, x.stride(), x.storage_offset()),
        lambda x: x[:, :1].expand(-1, 4, -1, -1),
    ],
    ids=["strided head dim", "same", "broadcast heads"],
)
def test_any_strides(view):
    query, key, value = (view(x) for x in inputs(head_dim=128))
    expected = (
        fa4_cute.mha(query.contiguous(), key.contiguous(), value.contiguous()) if query.shape[-1] in (64, 128) else None
    )
    torch.testing.assert_close(fa4_cute.mha(query, key, value), expected, rtol=0, atol=0)


def test_tma_ready_copies_only_what_tma_cannot_read():
    from fa4_cute.ops import tma_ready

    dense = inputs()[0]
    assert tma_ready(dense) is dense
    assert tma_ready(dense.transpose(1, 2)).stride(-1) == 1
    fused = torch.zeros(2, 33, 3, 4, 64, dtype=torch.bfloat16)[:, :, 1].transpose(1, 2)
    assert tma_ready(fused) is fused
    for bad in (
        dense[..., ::2],
        torch.zeros(dense.numel() + 1, dtype=dense.dtype)[1:].view(dense.shape),
        dense[:, :1].expand(-1, 4, -1, -1),
    ):
        ready = tma_ready(bad)
        assert ready.data_ptr() % 16 == 0 and all(s * 2 % 16 == 0 and s > 0 for s in ready.stride()[:-1])
        assert torch.equal(ready, bad)


@pytest.mark.parametrize("name", ["mha", "mha_with_lse"])
def test_a_tangent_is_refused(name):
    """Forward-mode AD would otherwise take the result for a constant."""
    op = getattr(torch.ops.fa4, name)
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="tangent"):
        torch.func.jvp(lambda k: op(q, k, v), (k,), (k,))
    with torch.no_grad(), torch.autograd.forward_ad.dual_level():
        with pytest.raises(NotImplementedError, match="tangent"):
            op(q, k, torch.autograd.forward_ad.make_dual(v, v))
        op(q, k, v)


def test_gradient_is_refused_while_compiling():
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: fa4_cute.mha(q, k, v), fullgraph=True, backend="aot_eager")
    query, key, value = inputs()
    query.requires_grad_()
    with pytest.raises(Exception, match="forward only"):  # dynamo wraps it in its own error
        compiled(query, key, value)
    with torch.no_grad():
        assert torch.equal(compiled(query, key, value), fa4_cute.mha(query, key, value))


def test_fake_strides():
    arguments = inputs(layout="bshd")
    with torch._subclasses.FakeTensorMode() as mode:
        out, lse = torch.ops.fa4.mha_with_lse(*(mode.from_tensor(x) for x in arguments))
    real, real_lse = torch.ops.fa4.mha_with_lse(*arguments)
    assert (out.stride(), lse.stride()) == (real.stride(), real_lse.stride())
    assert out.stride() != out.contiguous().stride()
