"""fa4_cute.scaled_dot_product_attention against torch's own: shapes, values, error classes, and who serves the call."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import fa4_cute
from fa4_cute import api, sdpa

D = 64


def tensors(query, key, value=None, dtype=torch.bfloat16):
    """Random tensors of these shapes, without their last dimension D."""
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(*s, D, generator=generator).to(dtype) for s in (query, key, value or key))


def assert_as_torch(q, k, v, **options):
    """Right within the error of torch's SDPA in the same dtype, both against torch's SDPA in float64.

    By torch's MATH backend: its CPU flash kernel gives NaN for causal with a negative scale.
    """
    wide = {**options}
    if isinstance(options.get("attn_mask"), torch.Tensor) and options["attn_mask"].is_floating_point():
        wide["attn_mask"] = options["attn_mask"].double()
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), **wide)
        theirs = F.scaled_dot_product_attention(q, k, v, **options)
    ours = fa4_cute.scaled_dot_product_attention(q, k, v, **options)
    assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
    if expected.numel():
        error = (theirs.double() - expected).abs().max()
        assert (ours.double() - expected).abs().max() <= 2 * error + 1e-5
    return ours


def by_kernel(q, k, v, **options):
    return fa4_cute.explain(q, k, v, **options).startswith("fa4::mha")


SERVED = {
    "2-D": ((5,), (7,), None, {}),
    "3-D": ((4, 5), (4, 7), None, {}),
    "3-D GQA": ((4, 5), (2, 7), None, {"enable_gqa": True}),
    "4-D": ((2, 4, 5), (2, 4, 7), None, {}),
    "5-D": ((2, 3, 4, 5), (2, 3, 4, 7), None, {}),
    "5-D GQA": ((2, 3, 4, 5), (2, 3, 2, 7), None, {"enable_gqa": True}),
    "5-D broadcast": ((2, 1, 4, 5), (1, 3, 4, 7), None, {}),
    "ranks differ": ((2, 4, 5), (4, 7), (7,), {}),
    "query of lower rank": ((4, 5), (2, 4, 7), None, {}),
    "query batch 1": ((1, 4, 5), (2, 4, 7), None, {}),
    "key batch 1": ((2, 4, 5), (1, 4, 7), None, {}),
    "only value's batch": ((1, 4, 5), (1, 4, 7), (2, 4, 7), {}),
    "one key head": ((2, 4, 5), (2, 1, 7), None, {}),
    "one query head": ((2, 1, 5), (2, 4, 7), None, {}),
    "one value head": ((2, 4, 5), (2, 4, 7), (2, 1, 7), {}),
    "GQA and batch 1": ((2, 4, 5), (1, 2, 7), None, {"enable_gqa": True}),
    "causal": ((2, 4, 5), (2, 4, 5), None, {"is_causal": True}),
    "causal, more keys": ((2, 4, 5), (2, 4, 9), None, {"is_causal": True}),
    "causal, fewer keys": ((2, 4, 9), (2, 4, 5), None, {"is_causal": True}),
    "scale 0": ((2, 4, 5), (2, 4, 7), None, {"scale": 0.0}),
    "negative scale": ((2, 4, 5), (2, 4, 7), None, {"scale": -0.3, "is_causal": True}),
    "0-dim scale": ((2, 4, 5), (2, 4, 7), None, {"scale": torch.tensor(0.3)}),
    "no keys": ((2, 4, 5), (2, 4, 0), None, {}),
    "no keys, causal": ((2, 4, 5), (2, 4, 0), None, {"is_causal": True}),
    "no queries": ((2, 4, 0), (2, 4, 7), None, {}),
    "no batch": ((0, 4, 5), (0, 4, 7), None, {}),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", SERVED)
def test_the_kernel_serves(name, dtype):
    query, key, value, options = SERVED[name]
    q, k, v = tensors(query, key, value, dtype)
    assert_as_torch(q, k, v, **options)
    assert by_kernel(q, k, v, **options)
    fa4_cute.scaled_dot_product_attention(q, k, v, **options, strict=True)


MASKS = {
    "bool": torch.ones(5, 7, dtype=torch.bool).tril(1),
    "bool column": (torch.arange(5) % 2 == 0)[:, None],
    "bool per batch": torch.arange(14).view(2, 1, 1, 7) % 3 != 0,
    "bool with an empty row": torch.arange(5)[:, None].expand(5, 7) != 2,
    "float32": torch.linspace(-2, 2, 35).view(5, 7),
    "query's dtype": torch.linspace(-2, 2, 35).view(5, 7).bfloat16(),
    "-inf row": torch.zeros(5, 7).index_fill(0, torch.tensor(3), -math.inf),
    "finfo.min row": torch.ones(5, 7).index_fill(0, torch.tensor(0), torch.finfo(torch.bfloat16).min),
}


@pytest.mark.parametrize("name", MASKS)
def test_masks_fall_back(name):
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    out = assert_as_torch(q, k, v, attn_mask=MASKS[name])
    assert "attn_mask" in fa4_cute.explain(q, k, v, MASKS[name])
    for row in {"bool with an empty row": [2], "-inf row": [3], "bool column": [1, 3]}.get(name, []):
        assert (out[:, :, row] == 0).all()
    with pytest.raises(NotImplementedError, match=r"strict=True.*attn_mask"):
        fa4_cute.scaled_dot_product_attention(q, k, v, MASKS[name], strict=True)


@pytest.mark.parametrize("bias", [causal_lower_right, causal_upper_left])
def test_causal_biases_are_served(bias):
    q, k, v = tensors((2, 4, 5), (2, 4, 9))
    mask = bias(5, 9)
    out = fa4_cute.scaled_dot_product_attention(q, k, v, mask)
    seen = torch.ones(5, 9, dtype=torch.bool).tril(4 if bias is causal_lower_right else 0)
    expected = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), attn_mask=seen)
    error = (F.scaled_dot_product_attention(q, k, v, attn_mask=seen).double() - expected).abs().max()
    assert (out.double() - expected).abs().max() <= 2 * error + 1e-5
    assert by_kernel(q, k, v, attn_mask=mask)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda q, k, v: (q.float(), k.float(), v.float()), "float32"),
        (lambda q, k, v: (q[..., :24], k[..., :24], v), "head_dim 24"),
        (lambda q, k, v: (q, k, v[..., :24]), "head_dim 24"),
        (lambda q, k, v: (q.requires_grad_(), k, v), "gradient"),
        (lambda q, k, v: (q, k, v.requires_grad_()), "gradient"),
    ],
)
def test_what_the_kernel_does_not_serve_falls_back(change, reason):
    q, k, v = change(*tensors((2, 4, 5), (2, 4, 7)))
    out = fa4_cute.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v, is_causal=True))
    assert out.requires_grad == (reason == "gradient")
    with pytest.raises(NotImplementedError, match=reason):
        fa4_cute.scaled_dot_product_attention(q, k, v, is_causal=True, strict=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda q, k, v, o: (None, k, v, o),
        lambda q, k, v, o: (q, k, v.float().numpy(), o),
        lambda q, k, v, o: (q, k, v, {"attn_mask": "causal"}),
        lambda q, k, v, o: (q, k, v, {"is_causal": 1}),
        lambda q, k, v, o: (q, k, v, {"is_causal": torch.tensor(True)}),
        lambda q, k, v, o: (q, k, v, {"enable_gqa": None}),
        lambda q, k, v, o: (q, k, v, {"scale": torch.tensor([0.3])}),
        lambda q, k, v, o: (q, k, v, {"scale": torch.tensor([0.3, 0.4])}),
        lambda q, k, v, o: (q, k, v, {"scale": torch.tensor(0.3, requires_grad=True)}),
    ],
)
def test_arguments_of_other_kinds_get_torchs_error(change):
    q, k, v, options = change(*tensors((2, 4, 5), (2, 4, 7)), {})
    with pytest.raises(TypeError) as theirs:
        F.scaled_dot_product_attention(q, k, v, **options)
    with pytest.raises(TypeError) as ours:
        fa4_cute.scaled_dot_product_attention(q, k, v, **options)
    assert str(ours.value).split("must be")[1] == str(theirs.value).split("must be")[1]


@pytest.mark.parametrize("scale", [torch.tensor(0.3), torch.tensor(2), torch.tensor([0.3])])
def test_a_scale_in_a_tensor_breaks_the_graph_as_torchs(scale):
    """Its value is not known while compiling; without fullgraph that is no error in torch."""
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    torch._dynamo.reset()

    @torch.compile(backend="aot_eager")
    def attend(q, k, v, scale):
        return fa4_cute.scaled_dot_product_attention(q, k, v, scale=scale)

    if scale.dim():
        with pytest.raises(TypeError, match="argument 'scale' must be float, not Tensor"):
            attend(q, k, v, scale)
    else:
        assert torch.equal(attend(q, k, v, scale), fa4_cute.mha(q, k, v, scale=scale.item()))


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_torchs(layout):
    shape = (lambda n: (4, n, D)) if layout == torch.strided else (lambda n: (n, 4, D))
    nested = torch.nested.nested_tensor([torch.randn(shape(n)).bfloat16() for n in (3, 5)], layout=layout)
    nested = nested if layout == torch.strided else nested.transpose(1, 2)
    ours, theirs = (
        f(nested, nested, nested) for f in (fa4_cute.scaled_dot_product_attention, F.scaled_dot_product_attention)
    )
    for one, other in zip(ours.unbind(), theirs.unbind(), strict=True):
        assert torch.equal(one, other)
    assert "nested" in fa4_cute.explain(nested, nested, nested)


def test_distributed_tensors_are_torchs():
    """Whose operators know how they may be sharded."""
    distributed = pytest.importorskip("torch.distributed.tensor", reason="torch without distributed tensors")
    from torch.testing._internal.distributed.fake_pg import FakeStore

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
        q = distributed.distribute_tensor(torch.randn(2, 4, 5, D).bfloat16(), mesh, [distributed.Shard(1)])
        assert "DTensor" in fa4_cute.explain(q, q, q)
    finally:
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize(
    ("query", "key", "value"),
    [
        ((1, 2, 0), (0, 2, 0), (1, 2, 0)),
        ((1, 6, 33), (0, 6, 1), (0, 1, 1)),
        ((1, 0), (2, 1, 1, 0), (2, 1, 1, 0)),
        ((2, 2, 0), (2, 3, 0), (2, 3, 0)),
        ((4, 17), (1, 4, 0), (1, 4, 0)),
    ],
)
def test_what_has_no_elements_is_broadcast_as_torch_does(query, key, value):
    q, k, v = tensors(query, key, value)
    expected = F.scaled_dot_product_attention(q, k, v)
    for attend in (fa4_cute.scaled_dot_product_attention, compiled()):
        assert torch.equal(attend(q, k, v), expected)


def compiled():
    torch._dynamo.reset()
    return torch.compile(fa4_cute.scaled_dot_product_attention, backend="aot_eager", fullgraph=True)


def test_symbolic_tracing_records_torchs():
    class Attend(torch.nn.Module):
        def forward(self, q, k, v):
            return fa4_cute.scaled_dot_product_attention(q, k, v, is_causal=True)

    q, k, v = tensors((2, 4, 5), (2, 4, 5))
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert torch.equal(torch.fx.symbolic_trace(Attend())(q, k, v), expected)


def by_math(attend):
    """Under the backend of torch's that knows forward-mode AD."""

    def call(*args, **options):
        with sdpa_kernel(SDPBackend.MATH):
            return attend(*args, **options)

    return call


@pytest.mark.parametrize(
    "derive",
    [
        lambda f: lambda *t: torch.func.jvp(f, t, t)[1],
        lambda f: lambda q, k, v: torch.func.jvp(lambda k: f(q, k, v), (k,), (k,))[1],
        lambda f: lambda *t: torch.func.jvp(torch.func.vmap(f), t, t)[1],
        lambda f: lambda *t: torch.func.vmap(lambda *t: torch.func.jvp(f, t, t)[1])(*t),
        lambda f: torch.func.grad(lambda *t: f(*t).float().sum()),
        lambda f: torch.func.grad(lambda *t: torch.func.vmap(f)(*t).float().sum()),
        lambda f: torch.func.vmap(torch.func.grad(lambda *t: f(*t).float().sum())),
        lambda f: torch.func.grad(lambda *t: torch.func.jvp(torch.func.vmap(f), t, t)[1].float().sum()),
    ],
)
def test_derivatives_of_torch_func_are_torchs(derive):
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    with torch.no_grad():
        ours = derive(by_math(fa4_cute.scaled_dot_product_attention))(q, k, v)
    assert torch.equal(ours, derive(by_math(F.scaled_dot_product_attention))(q, k, v)) and ours.any()


def test_a_mask_that_wants_a_gradient_gets_it():
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    mask = torch.zeros(5, 7, requires_grad=True)
    assert "gradient" in fa4_cute.explain(q, k, v, mask)
    fa4_cute.scaled_dot_product_attention(q, k, v, mask).float().square().sum().backward()
    assert mask.grad.abs().sum() > 0


def test_dropout_falls_back():
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    torch.manual_seed(0)
    out = fa4_cute.scaled_dot_product_attention(q, k, v, dropout_p=0.5)
    torch.manual_seed(0)
    assert torch.equal(out, F.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    assert "dropout" in fa4_cute.explain(q, k, v, dropout_p=0.5)


ERRORS = {
    "1-D": (lambda q, k, v: (q[0, 0, 0], k[0, 0, 0], v[0, 0, 0]), {}),
    "heads without enable_gqa": (lambda q, k, v: (q, k[:, :2], v[:, :2]), {}),
    "heads that do not divide": (lambda q, k, v: (q, k[:, :3], v[:, :3]), {"enable_gqa": True}),
    "2-D GQA": (lambda q, k, v: (q[0, 0], k[0, 0], v[0, 0]), {"enable_gqa": True}),
    "batches": (lambda q, k, v: (q, k.expand(2, 3, 4, 7, D)[0], v.expand(2, 3, 4, 7, D)[0]), {}),
    "head_dim of the key": (lambda q, k, v: (q, k[..., :32], v), {}),
    "dtype of the key": (lambda q, k, v: (q, k.half(), v), {}),
    "dtype of the value": (lambda q, k, v: (q, k, v.half()), {}),
    "integers": (lambda q, k, v: (q.int(), k.int(), v.int()), {}),
    "device": (lambda q, k, v: (q, k.to("meta"), v), {}),
    "dropout 2": (lambda q, k, v: (q, k, v), {"dropout_p": 2.0}),
    "negative dropout": (lambda q, k, v: (q, k, v), {"dropout_p": -0.1}),
    "int mask": (lambda q, k, v: (q, k, v), {"attn_mask": torch.ones(5, 7, dtype=torch.int)}),
    "1-D mask": (lambda q, k, v: (q, k, v), {"attn_mask": torch.ones(7, dtype=torch.bool)}),
    "mask of another shape": (lambda q, k, v: (q, k, v), {"attn_mask": torch.ones(5, 6, dtype=torch.bool)}),
}


@pytest.mark.parametrize("name", ERRORS)
def test_bad_input_raises_what_torch_raises(name):
    change, options = ERRORS[name]
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    if name == "batches":
        k, v = k[:1].expand(3, 4, 7, D), v[:1].expand(3, 4, 7, D)
    else:
        q, k, v = change(q, k, v)
    with pytest.raises(Exception) as theirs:
        F.scaled_dot_product_attention(q, k, v, **options)
    with pytest.raises(type(theirs.value)) as ours:
        fa4_cute.scaled_dot_product_attention(q, k, v, **options)
    assert type(ours.value) is type(theirs.value) and str(ours.value) == str(theirs.value)


def test_stricter_than_torch():
    """docs/semantics.md: torch's CPU kernel combines the mask with causal, and reads values past their end."""
    q, k, v = tensors((2, 4, 5), (2, 4, 7))
    with pytest.raises(ValueError, match="attn_mask: got a mask together with is_causal=True"):
        fa4_cute.scaled_dot_product_attention(q, k, v, torch.ones(5, 7, dtype=torch.bool), is_causal=True)
    with pytest.raises(ValueError, match="value: got length 6, wanted the key's 7"):
        fa4_cute.scaled_dot_product_attention(q, k, v[:, :, :6])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_autocast_as_torch(dtype):
    q, k, v = tensors((2, 4, 5), (2, 4, 7), dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        theirs = F.scaled_dot_product_attention(q, k, v)
        ours = fa4_cute.scaled_dot_product_attention(q, k, v, strict=True)
    assert ours.dtype == theirs.dtype == torch.bfloat16
    assert torch.equal(ours, fa4_cute.mha(q.bfloat16(), k.bfloat16(), v.bfloat16()))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_calls_past_the_limits_fall_back(dynamic, monkeypatch):
    """A length's guard sends long queries to torch's SDPA and keeps short ones on the kernel, compiled or not."""
    monkeypatch.setattr(api, "target_of", lambda device: "sm_100a")
    monkeypatch.setattr(sdpa, "MAX_SEQLEN_Q", 20)
    torch._dynamo.reset()
    graphs = []

    def backend(graph, _):
        graphs.append({str(node.target) for node in graph.graph.nodes if node.op == "call_function"})
        return graph

    def attend(q, k, v):
        return fa4_cute.scaled_dot_product_attention(q, k, v)

    compiled = torch.compile(attend, fullgraph=True, dynamic=dynamic, backend=backend)
    with torch.no_grad():
        for length in (11, 30, 12, 31):
            q, k, v = tensors((2, 4, length), (2, 4, 7))
            torch.testing.assert_close(compiled(q, k, v), attend(q, k, v), rtol=0, atol=0)
    assert ["fa4.mha" in names for names in graphs][:2] == [True, False]


def test_any_number_of_heads_can_be_planned():
    from fa4_cute.plan import plan
    from fa4_cute.problem import Problem

    heads = 70000 * 64
    planned = plan(Problem(1, heads, heads, 8, 1 << 24, 64, 64, "bf16", "none", 0, 1.0), "sm_100a")
    section, _, sections = planned.grid
    assert sections <= 65535 and section * sections >= heads
