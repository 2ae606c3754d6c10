"""fa4::mha_out writes into memory that the caller has."""

import pytest
import torch

import fa4_cute
from fa4_cute import ops

MHA_OUT = torch.ops.fa4.mha_out


def inputs():
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(2, 4, n, 64, generator=generator).bfloat16() for n in (13, 19, 19))


@pytest.mark.parametrize("layout", ["bhsd", "bshd"])
def test_writes_where_it_is_told(layout):
    q, k, v = inputs()
    out = torch.empty(2, 13, 4, 64, dtype=q.dtype).transpose(1, 2) if layout == "bshd" else torch.empty_like(q)
    lse = torch.empty(2, 4, 13)
    addresses = out.data_ptr(), lse.data_ptr()
    assert MHA_OUT(q, k, v, is_causal=True, out=out, lse=lse) is None
    expected, expected_lse = fa4_cute.mha(q, k, v, is_causal=True, return_lse=True)
    assert torch.equal(out, expected) and torch.equal(lse, expected_lse)
    assert (out.data_ptr(), lse.data_ptr()) == addresses
    MHA_OUT(q, k, v, out=out)
    assert torch.equal(out, fa4_cute.mha(q, k, v))


@pytest.mark.parametrize("kernel", [ops._mha_out_cpu, ops._mha_out_cuda])
def test_autograd_notices_the_write(kernel, monkeypatch):
    """A backward that needs what was in `out` before must fail, not use what is there now."""
    monkeypatch.setattr(ops, "_launch", lambda problem, tensors, out, lse: None)
    q, k, v = inputs()
    out, lse = torch.zeros_like(q), torch.zeros(2, 4, 13)
    weight = torch.ones(q.shape, requires_grad=True)
    for kept, arguments in ((out, {"out": out}), (lse[..., None], {"out": torch.empty_like(q), "lse": lse})):
        loss = (weight * kept).sum()
        kernel(q, k, v, **arguments)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_opcheck():
    q, k, v = inputs()
    torch.library.opcheck(MHA_OUT.default, (q, k, v), {"out": torch.empty_like(q), "lse": torch.empty(2, 4, 13)})


def test_functionalised():
    torch._dynamo.reset()
    q, k, v = inputs()
    out = torch.zeros_like(q)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def attend(q, k, v, out):
        MHA_OUT(q + 1, k, v, out=out)
        return out * 2

    with torch.no_grad():
        expected = fa4_cute.mha(q + 1, k, v)
        assert torch.equal(attend(q, k, v, out), expected * 2) and torch.equal(out, expected)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda q: torch.empty(2, 4, 12, 64, dtype=q.dtype), "out: got shape"),
        (lambda q: torch.empty(q.shape), "out: got dtype"),
        (lambda q: q.to("meta"), "out: got device"),
        (lambda q: torch.empty(2, 4, 13, 128, dtype=q.dtype)[..., ::2], "out: got strides"),
        (lambda q: torch.empty(1, 1, 1, 64, dtype=q.dtype).expand(q.shape), "out: got strides"),
        (lambda q: torch.empty(q.numel() + 1, dtype=q.dtype)[1:].view(q.shape), "out: got an address 2 bytes off"),
        (
            lambda q: torch.empty(20000, dtype=q.dtype).as_strided(q.shape, (9984, 832, 32, 1)),
            "rows that share no memory",
        ),
        (
            lambda q: torch.empty(20000, dtype=q.dtype).as_strided(q.shape, (832, 832, 64, 1)),
            "rows that share no memory",
        ),
        (lambda q: q, "out: shares memory with query"),
    ],
)
def test_refuses_what_it_cannot_write(make, why):
    q, k, v = inputs()
    with pytest.raises((ValueError, RuntimeError), match=why):
        MHA_OUT(q, k, v, out=make(q))


def test_takes_strides_of_any_order():
    q, k, v = inputs()
    out = torch.empty(13, 2, 3, 4, 128, dtype=q.dtype)[:, :, 1, :, :64].permute(1, 2, 0, 3)
    MHA_OUT(q, k, v, out=out)
    assert torch.equal(out, fa4_cute.mha(q, k, v))
    MHA_OUT(q[:, :, :0], k, v, out=out[:, :, :0])


def test_bad_inputs_are_named_before_out():
    q, k, v = inputs()
    with pytest.raises(ValueError, match="query: got 3 dimensions"):
        MHA_OUT(q[0], k, v, out=torch.empty_like(q))


@pytest.mark.parametrize(
    ("lse", "why"),
    [(torch.empty(2, 4, 12), "shape"), (torch.empty(2, 4, 13).half(), "dtype"), (torch.empty(2, 13, 4).mT, "strides")],
)
def test_refuses_another_lse(lse, why):
    q, k, v = inputs()
    with pytest.raises(ValueError, match=f"lse: got {why}"):
        MHA_OUT(q, k, v, out=torch.empty_like(q), lse=lse)


def test_gradient_is_refused():
    q, k, v = inputs()
    with pytest.raises(NotImplementedError, match="forward only"):
        MHA_OUT(q.requires_grad_(), k, v, out=torch.empty_like(k[:, :, :13]))
