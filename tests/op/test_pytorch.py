"""vmap, autocast, export and CUDA-graph style compilation of the operators."""

import pytest
import torch

import fa4_cute


def inputs(*lead, heads=(4, 4), dtype=torch.bfloat16):
    generator = torch.Generator().manual_seed(0)
    shapes = ((heads[0], 13), (heads[1], 19), (heads[1], 19))
    return tuple(torch.randn(*lead, *shape, 64, generator=generator).to(dtype) for shape in shapes)


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (0, None, None), (None, 1, 1), (2, 0, 0)])
@pytest.mark.parametrize("with_lse", [False, True])
def test_vmap(in_dims, with_lse, recwarn):
    moved = [t[0] if dim is None else t.movedim(0, dim) for t, dim in zip(inputs(3, 2), in_dims, strict=True)]
    options = {"is_causal": True, "causal_alignment": "bottom_right", "return_lse": with_lse}

    def one(q, k, v):
        return fa4_cute.mha(q, k, v, **options)

    mapped = torch.vmap(one, in_dims)(*moved)
    each = [one(*(t if d is None else t.select(d, i) for t, d in zip(moved, in_dims, strict=True))) for i in range(3)]
    if not with_lse:
        mapped, each = (mapped,), [(out,) for out in each]
    for i, result in enumerate(mapped):
        assert torch.equal(result, torch.stack([results[i] for results in each]))
    assert not [w for w in recwarn if "vmap" in str(w.message) or "batching rule" in str(w.message)]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_operators_follow_autocast(dtype):
    q, k, v = inputs(2, dtype=torch.float32)
    with torch.autocast("cpu", dtype):
        out, lse = fa4_cute.mha(q, k, v, return_lse=True)
    expected, expected_lse = fa4_cute.mha(q.to(dtype), k.to(dtype), v.to(dtype), return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)


def test_autocast_within_a_compiled_function():
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def attend(q, k, v):
        with torch.autocast("cpu", torch.bfloat16):
            return fa4_cute.scaled_dot_product_attention(q, k, v, strict=True)

    q, k, v = inputs(2, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(attend(q, k, v), fa4_cute.mha(q.bfloat16(), k.bfloat16(), v.bfloat16()))


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return fa4_cute.scaled_dot_product_attention(q * 2, k, v, is_causal=True, enable_gqa=True)


def test_export_round_trip(tmp_path):
    length = torch.export.Dim("length", min=2)
    program = torch.export.export(
        Attention(), inputs(2, heads=(4, 2)), dynamic_shapes=({2: length}, None, None), strict=False
    )
    torch.export.save(program, tmp_path / "attention.pt2")
    loaded = torch.export.load(tmp_path / "attention.pt2").module()
    assert "fa4.mha.default" in str(program.graph)
    q, k, v = inputs(2, heads=(4, 2))
    for query in (q, torch.cat([q, q], 2)):
        assert torch.equal(loaded(query, k, v), Attention()(query, k, v))


def test_reduce_overhead():
    torch._dynamo.reset()
    q, k, v = inputs(2)
    compiled = torch.compile(lambda q, k, v: fa4_cute.mha(q + 1, k, v) * 2, fullgraph=True, mode="reduce-overhead")
    with torch.no_grad():
        assert torch.equal(compiled(q, k, v), fa4_cute.mha(q + 1, k, v) * 2)
