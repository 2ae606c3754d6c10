"""What surrounds the operators in PyTorch, on a GPU: mha_out, autocast, torch's own choice of FlashAttention."""

import pytest
import torch
import torch.nn.functional as F
from test_operator import check, inputs

import fa4_cute
from fa4_cute import fast, launch, native
from fa4_cute.integrations import torch_flash

SQUARE = (200, 200)  # torch's FlashAttention takes no other shape with is_causal


def test_kernels_are_registered_from_cpp():
    assert native.operator() is not None, "built for another torch than this"


@pytest.mark.parametrize("by_way_of_python", [False, True])
def test_both_ways_of_the_hot_path(served, by_way_of_python, monkeypatch):
    """Operators of another library with the same kernels: torch.ops.fa4 has been registered one way already."""
    served("attention")
    if by_way_of_python:
        monkeypatch.setattr(native, "operator", lambda: None)
    name = f"fa4_gpu_{int(by_way_of_python)}"
    library = torch.library.Library(name, "DEF")
    schema = str(torch.ops.fa4.mha.default._schema).removeprefix("fa4::")
    library.define(schema)

    def otherwise(keyset, *args, **kwargs):
        return torch.ops.fa4.mha(*args, **kwargs)

    fast.register(library, "mha", otherwise, otherwise)
    tensors = inputs()
    for _ in range(2):
        check(getattr(torch.ops, name).mha(*tensors), None, tensors)
    monkeypatch.setattr(launch, "forward", None)
    check(getattr(torch.ops, name).mha(*tensors), None, tensors)


def test_out_variant(served):
    served("attention")
    tensors = inputs()
    out, lse = torch.empty_like(tensors[0]), torch.empty(2, 4, 300, device="cuda")
    torch.ops.fa4.mha_out(*tensors, out=out, lse=lse)
    check(out, lse, tensors)
    before = torch.cuda.memory_stats()["allocation.all.allocated"]
    torch.ops.fa4.mha_out(*tensors, is_causal=True, out=out, lse=lse)
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == before
    check(out, lse, tensors, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.ops.fa4.mha_out(*tensors, out=out)
    tensors[0].normal_()
    graph.replay()
    check(out, None, tensors)
    with pytest.raises(ValueError, match="out: got shape"):
        torch.ops.fa4.mha_out(*tensors, out=out[..., :32])


def test_autocast(served):
    served("attention")
    dtype = torch.bfloat16  # the sm_90a kernel's
    wide = [tensor.float() for tensor in inputs()]
    with torch.autocast("cuda", dtype):
        for _ in range(2):
            out, lse = torch.ops.fa4.mha_with_lse(*wide)
            assert out.dtype == dtype
            check(out, lse, [tensor.to(dtype) for tensor in wide])
            same = fa4_cute.scaled_dot_product_attention(*wide)
            assert torch.equal(same, out)


@pytest.fixture
def activated(served):
    served("attention")
    torch_flash.register()
    torch.nn.attention.activate_flash_attention_impl(torch_flash.NAME)
    yield
    torch.nn.attention.restore_flash_attention_impl()


@pytest.fixture
def flash_only():
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        yield


def test_torch_chooses_the_kernel(activated, flash_only):
    tensors = inputs(lengths=SQUARE)
    out = F.scaled_dot_product_attention(*tensors, is_causal=True)
    assert len(fast.calls()) == 1, "the kernel has served"
    check(out, None, tensors, is_causal=True)
    compiled = torch.compile(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True), fullgraph=True)
    assert torch.equal(compiled(*tensors), out)


@pytest.mark.parametrize("compiled", [False, True])
def test_training_keeps_torchs_own_gradients(activated, flash_only, compiled):
    torch._dynamo.reset()
    attention = lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True)
    if compiled:
        attention = torch.compile(attention, fullgraph=True)
    torch.manual_seed(0)
    tensors = inputs(lengths=SQUARE)
    weight = torch.randn_like(tensors[0])
    exact = gradients(naive_causal, [tensor.double() for tensor in tensors], weight)
    naive = gradients(naive_causal, tensors, weight)
    for got, low, wanted in zip(gradients(attention, tensors, weight), naive, exact, strict=True):
        assert (got - wanted).abs().max() <= 2 * (low - wanted).abs().max()


def naive_causal(q, k, v):
    """Every step in the inputs' dtype; torch's MATH backend computes in float32 what is bfloat16."""
    logits = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
    ahead = torch.ones(logits.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return torch.softmax(logits.masked_fill(ahead, -torch.inf), -1) @ v


def gradients(attention, tensors, weight):
    """Of the weighted sum of the outputs, in q, k and v; float64."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in tensors]
    (attention(*leaves) * weight).sum().backward()
    return [leaf.grad.double() for leaf in leaves]
