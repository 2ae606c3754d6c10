"""Layout of the results."""

import torch


def output_like(query: torch.Tensor, head_dim_v: int) -> torch.Tensor:
    """Empty tensor (..., head_dim_v) that is dense and has the query's dimension order, as SDPA's output has.

    A query that is a transposed (batch, seqlen, heads, head_dim) tensor gives a transposed output. The head dimension
    is always the innermost one.
    """
    strides = query.stride()
    order = [*sorted(range(query.dim() - 1), key=lambda d: (-strides[d], d)), query.dim() - 1]
    shape = [*query.shape[:-1], head_dim_v]
    dense = query.new_empty([shape[d] for d in order])
    return dense.permute([order.index(d) for d in range(query.dim())])


def lse_like(query: torch.Tensor) -> torch.Tensor:
    """Empty float32 (batch, heads, seqlen_q), contiguous."""
    return query.new_empty(query.shape[:-1], dtype=torch.float32)


def check_out(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    addresses: bool = True,
) -> None:
    """ValueError unless the kernel can write O to `out` and the LSE to `lse`.

    out: the query's shape, with value's head_dim, dtype and device; head dim dense, other strides and the address
    multiples of 16 bytes, so that TMA can store. lse: contiguous float32 (batch, heads, seqlen_q). Neither may share
    memory with an input or with the other: that is judged by the first and the last byte, so interleaved slices of one
    buffer are refused too. addresses: False for fake tensors, which have none.
    """
    wanted = (*query.shape[:-1], value.shape[-1])
    results = [("out", out, wanted, query.dtype)]
    if lse is not None:
        results.append(("lse", lse, tuple(query.shape[:-1]), torch.float32))
    for name, tensor, shape, dtype in results:
        if tuple(tensor.shape) != tuple(shape):
            raise ValueError(f"{name}: got shape {tuple(tensor.shape)}, wanted {tuple(shape)}")
        if tensor.dtype != dtype:
            raise ValueError(f"{name}: got dtype {tensor.dtype}, wanted {dtype}")
        if tensor.device != query.device:
            raise ValueError(f"{name}: got device {tensor.device}, wanted the query's {query.device}")
    if lse is not None and not lse.is_contiguous():
        raise ValueError(f"lse: got strides {lse.stride()}, wanted a contiguous tensor")
    unit = 16 // out.element_size()
    strides = [stride for size, stride in zip(out.shape[:-1], out.stride()[:-1], strict=True) if size > 1]
    if out.stride(-1) != 1 or any(stride <= 0 or stride % unit for stride in strides):
        raise ValueError(f"out: got strides {out.stride()}, wanted a dense head dim and multiples of {unit} before it")
    if not addresses:
        return
    if _rows_overlap(out):
        raise ValueError(
            f"out: got strides {out.stride()} for shape {tuple(out.shape)}, wanted rows that share no memory"
        )
    if out.data_ptr() % 16:
        raise ValueError(f"out: got an address {out.data_ptr() % 16} bytes off, wanted a multiple of 16 bytes")
    others = [("query", query), ("key", key), ("value", value)]
    for name, tensor, _, _ in results:
        first, last = _extent(tensor)
        for other_name, other in others:
            other_first, other_last = _extent(other)
            if first < other_last and other_first < last:
                raise ValueError(f"{name}: shares memory with {other_name}, wanted memory of its own")
        others.append((name, tensor))


def _rows_overlap(tensor: torch.Tensor) -> bool:
    """Whether dimensions reach into each other; also true for a few odd layouts that only look like it."""
    if tensor.numel() == 0:
        return False
    reach = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride < reach:
            return True
        reach += (size - 1) * stride
    return False


def _extent(tensor: torch.Tensor) -> tuple[int, int]:
    """First byte of a tensor and the one past its last."""
    if tensor.numel() == 0:
        return 0, 0
    reach = sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return tensor.data_ptr(), tensor.data_ptr() + (reach + 1) * tensor.element_size()
