"""The registration with torch, with the CPU's dispatch key in place of CUDA's and a stand-in for torch's own kernel."""

import pytest
import torch

pytest.importorskip("torch.nn.attention", reason="no torch.nn.attention")
if not hasattr(torch.nn.attention, "register_flash_attention_impl"):
    pytest.skip("torch has no registry of FlashAttention implementations", allow_module_level=True)

import fa4_cute
from fa4_cute.integrations import torch_flash

FORWARD = torch.ops.aten._scaled_dot_product_flash_attention


def inputs(head_dim=64):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 4, n, head_dim, generator=generator).bfloat16() for n in (13, 19, 19))


@pytest.fixture
def active(torchs):
    """The override is in force."""
    handle = torch_flash.override("CPU")
    yield
    handle.remove()


@pytest.fixture
def torchs():
    """Calls that reached what stands for torch's own kernel."""
    calls = []

    def kernel(query, key, value, *args, **kwargs):
        calls.append(query)
        empty = query.new_empty(0)
        return query.clone(), empty, empty, empty, 0, 0, empty, empty, empty

    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention", kernel, "CPU")
    yield calls
    library._destroy()


def test_register_activates_nothing():
    torch_flash.register()
    assert torch_flash.NAME in torch.nn.attention.list_flash_attention_impls()
    assert torch.nn.attention.current_flash_attention_impl() is None


def test_activate_and_restore(torchs, monkeypatch):
    from torch.nn.attention import _registry

    torch.nn.attention.register_flash_attention_impl("FA4_CUTE_CPU", register_fn=lambda: torch_flash.override("CPU"))
    torch.nn.attention.activate_flash_attention_impl("FA4_CUTE_CPU")
    try:
        q, k, v = inputs()
        out, lse, cum_q, cum_k, max_q, max_k, seed, unused, debug = FORWARD(q, k, v, 0.0, True, scale=0.2)
        options = {"is_causal": True, "scale": 0.2, "causal_alignment": "bottom_right"}
        expected, expected_lse = fa4_cute.mha(q, k, v, **options, return_lse=True)
        assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
        assert (cum_q, cum_k, max_q, max_k) == (None, None, 13, 19)
        assert seed.dtype == unused.dtype == torch.uint64 and debug.numel() == 0
        assert not torchs
        FORWARD(*inputs(head_dim=32))
        FORWARD(q, k, v, 0.5)
        FORWARD(q, k, v, 0.0, False, True)
        assert len(torchs) == 3
    finally:
        torch.nn.attention.restore_flash_attention_impl()
        monkeypatch.delitem(_registry._FLASH_ATTENTION_IMPLS, "FA4_CUTE_CPU")
    FORWARD(q, k, v)
    assert len(torchs) == 4


def test_gradients_keep_torchs_path(torchs):
    handle = torch_flash.override("CPU")
    try:
        q, k, v = inputs()
        FORWARD(q.requires_grad_(), k, v)
        assert len(torchs) == 1
        with torch.no_grad():
            FORWARD(q, k, v)
        assert len(torchs) == 1
    finally:
        handle.remove()


def test_causal_is_aligned_as_torchs_own_callers_expect(torchs, active, monkeypatch):
    """torch.nn.attention.bias calls the operator with is_causal for a mask aligned bottom-right."""
    from torch.nn.attention import bias

    q, k, v = inputs()
    mask = bias.causal_lower_right(13, 19)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask._materialize("cpu"))
    monkeypatch.setattr(bias, "can_use_flash_attention", lambda parameters: True)
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask)
    torch.testing.assert_close(out, expected, rtol=2e-2, atol=2e-2)
    assert not torchs


def backward(gradient, query, key, value, out, lse, cum_q, cum_k, max_q, max_k, dropout_p, is_causal, *_, scale=None):
    """What torch's backward computes from the forward's results, which it takes P from."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    q, k, v, g = (t.float() for t in (query, key, value, gradient))
    hidden = torch.ones(max_q, max_k).triu(1 + max_k - max_q).bool() if is_causal else torch.tensor(False)
    p = torch.exp((q @ k.mT * scale).masked_fill(hidden, -torch.inf) - lse[..., None])
    ds = p * (g @ v.mT - (g * out).sum(-1, keepdim=True)) * scale
    return tuple(a.to(b.dtype) for a, b in ((ds @ k, query), (ds.mT @ q, key), (p.mT @ g, value)))


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_compiled_training_step_has_the_right_gradients(torchs, active, is_causal):
    """Its forward runs the kernel, since no gradient is wanted while it runs, and its backward is torch's."""
    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_dot_product_flash_attention_backward", backward, "CPU")
    try:
        torch._dynamo.reset()
        step = torch.compile(lambda *t: FORWARD(*t, 0.0, is_causal)[0], backend="aot_eager", fullgraph=True)
        tensors = [t.requires_grad_() for t in inputs()]
        mask = torch.ones(13, 19).tril(19 - 13).bool() if is_causal else None
        expected = torch.nn.functional.scaled_dot_product_attention(*tensors, mask)
        expected = torch.autograd.grad(expected.float().pow(2).sum(), tensors)
        found = torch.autograd.grad(step(*tensors).float().pow(2).sum(), tensors)
        for ours, theirs in zip(found, expected, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=4e-2, atol=4e-2)
        assert not torchs
    finally:
        library._destroy()


def test_rows_without_keys_are_torchs(torchs, active):
    """Whose backward wants another LSE there than fa4::mha_with_lse gives."""
    k, q, _ = inputs()
    FORWARD(q, k, k, 0.0, True)
    FORWARD(q, k[:, :, :0], k[:, :, :0])
    assert len(torchs) == 2
    FORWARD(q, k, k)
    assert len(torchs) == 2


@pytest.mark.parametrize("expanded", [None, 0, 1, 2])
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (1, 0, 2, 3), (2, 1, 0, 3)])
def test_output_has_the_layout_that_compiled_code_counts_on(torchs, active, order, expanded):
    q, k, v = inputs()
    q = q.permute(order).contiguous().permute([order.index(d) for d in range(4)])
    if expanded is not None:
        q = q.narrow(expanded, 0, 1).expand(q.shape)
    out = FORWARD(q, k, v)[0]
    assert out.stride() == FORWARD(*(t.to("meta") if t is not q else meta_of(q) for t in (q, k, v)))[0].stride()
    assert torch.equal(out, fa4_cute.mha(q, k, v)) and not torchs


def meta_of(tensor):
    """With its strides, which `to` would make dense."""
    return torch.empty(0, dtype=tensor.dtype, device="meta").as_strided(tensor.shape, tensor.stride())


def test_a_torch_without_flash_attention_says_so():
    with pytest.raises(RuntimeError, match="built without FlashAttention for CPU"):
        torch_flash.override("CPU")


@pytest.mark.parametrize("change", ["Tensor, SymInt, SymInt, Tensor, Tensor, Tensor, Tensor", "Tensor"])
def test_another_schema_is_refused(change):
    """pytorch#190212: the private tuple of results has grown before."""
    schema = torch._C.parse_schema(
        "x(Tensor query, Tensor key, Tensor value, float dropout_p=0., bool is_causal=False, "
        f"bool return_debug_mask=False, *, float? scale=None) -> (Tensor, Tensor, Tensor, {change})"
    )
    with pytest.raises(RuntimeError, match="_scaled_dot_product_flash_attention has changed"):
        torch_flash.check_schema(schema)
    torch_flash.check_schema(FORWARD.default._schema)
