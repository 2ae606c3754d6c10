"""torch.ops.fa4 on a GPU, with an sm_90a kernel of the forward kernel's parameters and semantics in its place.

What this proves is the way to the kernel; the SM100 kernel itself has not run here.
"""

import gc

import pytest
import torch

import fa4_cute
from fa4_cute import fast, launch
from fa4_cute.accuracy import naive_error, reference_float64


def inputs(batch=2, heads=(4, 4), lengths=(300, 200), layout="bhsd", dtype=torch.bfloat16):
    def tensor(count, length):
        if layout == "bshd":
            return torch.randn(batch, length, count, 64, device="cuda").to(dtype).transpose(1, 2)
        if layout == "fused":
            return torch.randn(batch, length, 3, count, 64, device="cuda").to(dtype)[:, :, 1].transpose(1, 2)
        return torch.randn(batch, count, length, 64, device="cuda").to(dtype)

    return tensor(heads[0], lengths[0]), tensor(heads[1], lengths[1]), tensor(heads[1], lengths[1])


def check(out, lse, tensors, **options):
    on_cpu = [t.cpu() for t in tensors]
    expected, expected_lse = reference_float64(*on_cpu, **options)
    assert (out.cpu().double() - expected).abs().max() <= 2 * naive_error(*on_cpu, **options) + 1e-5
    if lse is not None:
        finite = expected_lse.isfinite()
        assert torch.equal(lse.cpu().isfinite(), finite)
        assert (lse.cpu().double() - expected_lse)[finite].abs().max() < 1e-3


@pytest.mark.parametrize("layout", ["bhsd", "bshd", "fused"])
@pytest.mark.parametrize("heads", [(4, 4), (4, 2)])
@pytest.mark.parametrize("mask", [None, "top_left", "bottom_right"])
@pytest.mark.parametrize("lengths", [(300, 200), (1, 77), (257, 513)])
def test_planned_and_known_calls_are_right(served, layout, heads, mask, lengths, monkeypatch):
    served("attention")
    options = {
        "is_causal": mask is not None,
        "causal_alignment": mask or "top_left",
        "enable_gqa": heads[0] != heads[1],
    }
    tensors = inputs(heads=heads, lengths=lengths, layout=layout)
    out, lse = torch.ops.fa4.mha_with_lse(*tensors, **options)
    check(out, lse, tensors, **options)
    assert len(fast.calls()) == 1
    others = inputs(heads=heads, lengths=lengths, layout=layout)
    check(*torch.ops.fa4.mha_with_lse(*others, **options), others, **options)
    monkeypatch.setattr(launch, "forward", None)  # from here on only the hot path can serve
    again, lse_again = torch.ops.fa4.mha_with_lse(*tensors, **options)
    alone = torch.ops.fa4.mha(*tensors, **options)
    assert torch.equal(again, out) and torch.equal(lse_again, lse) and torch.equal(alone, out)
    assert again.stride() == out.stride()
    monkeypatch.setattr(torch.ops.fa4, "mha", None)  # nor the dispatcher
    monkeypatch.setattr(torch.ops.fa4, "mha_with_lse", None)
    direct, lse_direct = fa4_cute.mha(*tensors, **options, return_lse=True)
    assert torch.equal(direct, out) and torch.equal(lse_direct, lse)
    assert torch.equal(fa4_cute.mha(*tensors, **options), out)
    if options["causal_alignment"] == "top_left":
        options.pop("causal_alignment")
        assert torch.equal(fa4_cute.scaled_dot_product_attention(*tensors, **options), out)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_grad_modes_and_scale(served, mode):
    served("attention")
    with mode():
        tensors = inputs()
        for scale in (None, 0.25, -0.125, 0.0):
            for _ in range(2):
                check(torch.ops.fa4.mha(*tensors, scale=scale), None, tensors, scale=scale)
        assert len(fast.calls()) == 4


def test_gradient_is_refused_on_known_calls(served):
    served("attention")
    query, key, value = inputs()
    torch.ops.fa4.mha(query, key, value)
    with pytest.raises(NotImplementedError, match="forward only"):
        torch.ops.fa4.mha(query.requires_grad_(), key, value)
    with torch.no_grad():
        torch.ops.fa4.mha(query, key, value)


def test_inputs_that_tma_cannot_read_are_copied(served):
    served("attention")
    query, key, value = inputs()
    shifted = torch.empty(query.numel() + 1, device="cuda", dtype=query.dtype)[1:].view(query.shape).copy_(query)
    for _ in range(2):
        check(torch.ops.fa4.mha(shifted, key, value), None, (query, key, value))
    spread = torch.empty(*key.shape, 2, device="cuda", dtype=key.dtype)[..., 0].copy_(key)
    for _ in range(2):
        check(torch.ops.fa4.mha(query, spread, value), None, (query, key, value))
    assert not len(fast.calls())


def test_no_keys_and_no_queries(served):
    served("attention")
    query, key, value = inputs(lengths=(300, 0))
    for _ in range(2):
        out, lse = torch.ops.fa4.mha_with_lse(query, key, value)
        assert (out == 0).all() and (lse == -torch.inf).all()
    assert torch.ops.fa4.mha(*inputs(lengths=(0, 5))).shape == (2, 4, 0, 64)


def test_side_streams(served):
    """The launch is on the current stream: it waits for the slow producer there, and nothing else does."""
    served("attention")
    tensors = inputs()
    expected = torch.ops.fa4.mha(*tensors)
    for _ in range(3):
        stream = torch.cuda.Stream()
        late = torch.zeros_like(tensors[0])
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(50_000_000)
            late.copy_(tensors[0])
            out = torch.ops.fa4.mha(late, *tensors[1:])
        stream.synchronize()
        assert torch.equal(out, expected)


def test_cuda_graphs(served):
    served("attention")
    tensors = inputs()
    torch.ops.fa4.mha_with_lse(*tensors)  # loads the kernel
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, lse = torch.ops.fa4.mha_with_lse(*tensors)
    for _ in range(3):
        for tensor in tensors:
            tensor.normal_()
        out.fill_(torch.nan)
        graph.replay()
        torch.cuda.synchronize()
        check(out, lse, tensors)


def test_compiled(served):
    served("attention")
    torch._dynamo.reset()
    compiled = torch.compile(lambda q, k, v: torch.ops.fa4.mha(q * 1.0, k, v) * 2, fullgraph=True)
    with torch.no_grad():
        for _ in range(3):
            tensors = inputs()
            check(compiled(*tensors) / 2, None, tensors)


def test_more_than_2_to_the_31_elements(served):
    served("timing")
    query = torch.empty(1, 64, 1 << 20, 64, device="cuda", dtype=torch.bfloat16)
    assert query.numel() > 2**31
    query[0, -1, -5000:].normal_()
    query[0, 33, :5000].normal_()
    key, value = (torch.randn(1, 64, 10, 64, device="cuda").bfloat16() for _ in range(2))
    for _ in range(2):
        out, lse = torch.ops.fa4.mha_with_lse(query, key, value)
        assert torch.equal(out[0, -1, -5000:], query[0, -1, -5000:])
        assert torch.equal(out[0, 33, :5000], query[0, 33, :5000])
        assert (lse == 10).all()


def test_ten_thousand_launches_leave_nothing_behind(served):
    import resource

    served("timing")
    batches = [inputs(batch=1, lengths=(128, 128)) for _ in range(50)]

    def launches(count):
        for i in range(count):
            (torch.ops.fa4.mha, fa4_cute.mha)[i % 2](*batches[i % len(batches)])
        torch.cuda.synchronize()
        gc.collect()
        return torch.cuda.mem_get_info()[0], resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    free, resident_kb = launches(2000)
    free_after, resident_kb_after = launches(10000)
    assert free_after == free
    assert resident_kb_after - resident_kb < 2048
    assert len(fast.calls()) == 1


def test_what_this_gpu_gets_without_the_test_kernel():
    query, key, value = inputs()
    with pytest.raises(NotImplementedError, match=r"compute capability 9\.0"):
        torch.ops.fa4.mha(query, key, value)
    assert "compute capability 9.0" in fa4_cute.explain(query, key, value)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value)
    assert torch.equal(fa4_cute.scaled_dot_product_attention(query, key, value), expected)
