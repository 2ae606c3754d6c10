"""Checks of a call -> Problem. Works on real, fake and meta tensors alike.

Bad input is a ValueError or TypeError that names the argument, what came and what is wanted. Input that is fine but
not served by the kernel is a NotImplementedError with the reason.
"""

import math
from typing import Any

import torch

from .problem import Problem

DTYPE_NAMES = {torch.bfloat16: "bf16", torch.float16: "fp16"}
HEAD_DIMS = (64, 128)
_AXES = "(batch, heads, seqlen, head_dim)"


def check(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
) -> Problem:
    """The problem of a call of fa4::mha. Sizes may be symbolic while torch.compile traces."""
    tensors = {"query": query, "key": key, "value": value}
    _check_types(tensors)
    _check_shapes(query, key, value, enable_gqa)
    if causal_alignment not in ("top_left", "bottom_right"):
        raise ValueError(f"causal_alignment: got {causal_alignment!r}, wanted 'top_left' or 'bottom_right'")
    if not 0.0 <= dropout_p <= 1.0:
        raise ValueError(f"dropout_p: got {dropout_p}, wanted a probability in [0, 1]")
    if not (scale is None or _symbolic(scale) or math.isfinite(scale)):
        raise ValueError(f"scale: got {scale}, wanted a finite number")
    _check_served(query, value, attn_mask, dropout_p)
    batch, heads_q, seqlen_q, head_dim = query.shape
    seqlen_k = key.shape[2]
    bottom_right = is_causal and causal_alignment == "bottom_right"
    return Problem(
        batch=batch,
        heads_q=heads_q,
        heads_kv=key.shape[1],
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        head_dim=head_dim,
        head_dim_v=value.shape[3],
        dtype=DTYPE_NAMES[query.dtype],
        mask="causal" if is_causal else "none",
        causal_offset=seqlen_k - seqlen_q if bottom_right else 0,
        scale=1.0 / math.sqrt(head_dim) if scale is None else scale if _symbolic(scale) else float(scale),
    )


def _symbolic(scale: Any) -> bool:
    """Whether the number is not known while torch.compile traces; the operator looks at it when it runs.

    To ask for its value would compile the graph anew for each.
    """
    return isinstance(scale, torch.SymFloat) or torch.compiler.is_dynamo_compiling()


def _check_types(tensors: dict[str, torch.Tensor]) -> None:
    query = tensors["query"]
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: got {type(tensor).__name__}, wanted a torch.Tensor")
        if tensor.dim() != 4:
            raise ValueError(f"{name}: got {tensor.dim()} dimensions, wanted 4: {_AXES}")
        if tensor.dtype != query.dtype:
            raise ValueError(f"{name}: got dtype {tensor.dtype}, wanted the query's {query.dtype}")
        if tensor.device != query.device:
            raise ValueError(f"{name}: got device {tensor.device}, wanted the query's {query.device}")
    if not query.dtype.is_floating_point:
        raise TypeError(f"query: got dtype {query.dtype}, wanted a floating-point type")


def _check_shapes(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool) -> None:
    for name, tensor in (("key", key), ("value", value)):
        if tensor.shape[0] != query.shape[0]:
            raise ValueError(f"{name}: got batch {tensor.shape[0]}, wanted the query's {query.shape[0]}")
    if key.shape[3] != query.shape[3]:
        raise ValueError(f"key: got head_dim {key.shape[3]}, wanted the query's {query.shape[3]}")
    for axis, what in ((1, "heads"), (2, "length")):
        if value.shape[axis] != key.shape[axis]:
            raise ValueError(f"value: got {what} {value.shape[axis]}, wanted the key's {key.shape[axis]}")
    heads_q, heads_kv = query.shape[1], key.shape[1]
    if heads_q != heads_kv and not enable_gqa:
        raise ValueError(f"key: got {heads_kv} heads for {heads_q} query heads, wanted as many, or enable_gqa=True")
    if heads_kv == 0 or heads_q % heads_kv:
        raise ValueError(f"key: got {heads_kv} heads, wanted a number that divides the query's {heads_q}")
    if query.shape[3] == 0:
        raise ValueError("query: got head_dim 0, wanted at least 1")


def _check_served(query: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, dropout_p: float) -> None:
    if attn_mask is not None:
        raise NotImplementedError("attn_mask: the kernel takes no mask tensor yet; use is_causal or torch's SDPA")
    if dropout_p:
        raise NotImplementedError(f"dropout_p: got {dropout_p}, the kernel has no dropout; use torch's SDPA")
    if query.dtype not in DTYPE_NAMES:
        raise NotImplementedError(f"query: dtype {query.dtype} is not served, only bfloat16 and float16")
    if query.shape[3] not in HEAD_DIMS:
        raise NotImplementedError(f"query: head_dim {query.shape[3]} is not served yet, only {HEAD_DIMS}")
    if value.shape[3] != query.shape[3]:
        raise NotImplementedError(
            f"value: head_dim {value.shape[3]} other than the query's {query.shape[3]} is not served yet"
        )


def unsupported_reason(*args: Any, **kwargs: Any) -> str | None:
    """Why the kernel does not serve a call, None if it does. Bad input raises as in `check`."""
    try:
        check(*args, **kwargs)
    except NotImplementedError as reason:
        return str(reason)
    return None
