"""Which calls of torch's scaled_dot_product_attention the kernel can serve, and as what call of fa4::mha.

SDPA takes 2 to 5 dimensions and broadcasts all but the last two; the kernel takes (batch, heads, seqlen, head_dim).
What is left over goes to torch's own SDPA, with a reason.
"""

import sys
from typing import Any, NamedTuple

import torch

from . import derivatives
from .plan import MAX_SEQLEN_Q
from .validate import unsupported_reason


class Call(NamedTuple):
    """A call of fa4::mha that computes what SDPA was asked for, once `restore` has given the result its shape."""

    query: torch.Tensor  # (batch, heads, seqlen, head_dim), like key and value
    key: torch.Tensor
    value: torch.Tensor
    is_causal: bool
    scale: float | None
    enable_gqa: bool
    causal_alignment: str
    batch_shape: tuple[int, ...]  # of the result, before (heads, seqlen, head_dim)
    rank: int  # of the result

    @property
    def tensors(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The positional arguments of fa4::mha, and of validate.check."""
        return self.query, self.key, self.value

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of both."""
        return {
            "is_causal": self.is_causal,
            "scale": self.scale,
            "enable_gqa": self.enable_gqa,
            "causal_alignment": self.causal_alignment,
        }

    def restore(self, out: torch.Tensor) -> torch.Tensor:
        """The result of the call, in SDPA's shape."""
        if self.rank == 4:
            return out
        if self.rank > 4:
            return out.reshape(*self.batch_shape, *out.shape[1:])
        return out[0] if self.rank == 3 else out[0, 0]


def route(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    causal_alignment: str = "top_left",
) -> Call | str:
    """The call of fa4::mha that serves a call of SDPA, or why none does.

    Bad input gets a reason too, so that torch's own rules and errors decide; except where torch would read past the end
    of a tensor or combine arguments it says it refuses: these are a ValueError (docs/semantics.md).
    """
    tensors = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    reason = _no_plain_arguments(tensors, is_causal, scale, enable_gqa)
    if reason is not None:
        return reason
    _check_what_torch_does_not(key, value, attn_mask, is_causal)
    if derivatives.wanted(*tensors):
        return "an input requires a gradient or has a tangent, and fa4::mha is forward only"
    aligned = None if attn_mask is None else _alignment(attn_mask, query, key)
    if aligned is not None:
        attn_mask, is_causal, causal_alignment = None, True, aligned
    query, key, value = autocast(query, key, value)
    if isinstance(scale, torch.Tensor):
        scale = float(scale)
    try:
        rank = max(query.dim(), key.dim(), value.dim())
        if min(query.dim(), key.dim(), value.dim()) < (3 if enable_gqa else 2):
            return f"query, key, value: got {query.dim()}, {key.dim()}, {value.dim()} dimensions, wanted 2 or more"
        query, key, value, enable_gqa, batch_shape = _four_dimensions(query, key, value, enable_gqa, rank)
        reason = unsupported_reason(
            query,
            key,
            value,
            attn_mask,
            dropout_p,
            is_causal,
            scale=scale,
            enable_gqa=enable_gqa,
            causal_alignment=causal_alignment,
        )
    except (ValueError, TypeError, RuntimeError) as error:  # RuntimeError: what cannot be broadcast
        return str(error)
    if reason is not None:
        return reason
    return Call(query, key, value, is_causal, scale, enable_gqa, causal_alignment, batch_shape, rank)


def _check_what_torch_does_not(
    key: torch.Tensor, value: torch.Tensor, attn_mask: torch.Tensor | None, is_causal: bool
) -> None:
    if attn_mask is not None and is_causal:
        raise ValueError("attn_mask: got a mask together with is_causal=True, wanted one of them")
    if key.dim() > 1 and value.dim() > 1 and key.shape[-2] != value.shape[-2]:
        raise ValueError(f"value: got length {value.shape[-2]}, wanted the key's {key.shape[-2]}")


def _no_plain_arguments(tensors: list[Any], is_causal: Any, scale: Any, enable_gqa: Any) -> str | None:
    """What the arguments' kinds say against the kernel, before any shape is looked at."""
    for tensor in tensors:
        if not isinstance(tensor, torch.Tensor):
            return f"an input is no tensor but {type(tensor).__name__}"
        if tensor.layout != torch.strided or tensor.is_nested:
            return "an input is nested or sparse; the kernel takes dense tensors"
        if type(tensor).__name__ == "DTensor":  # importing torch.distributed.tensor would cost a second
            return "an input is a DTensor; fa4::mha has no rule for how it is sharded"
    if isinstance(scale, torch.Tensor) and (scale.dim() or scale.requires_grad):
        return "scale: got a tensor with dimensions or that requires a gradient, wanted a number"
    if torch.compiler.is_compiling():  # numbers may be symbols
        return None
    if not isinstance(is_causal, bool) or not isinstance(enable_gqa, bool):
        return f"is_causal, enable_gqa: got {is_causal!r}, {enable_gqa!r}, wanted bools"
    return None


def _alignment(mask: torch.Tensor, query: torch.Tensor, key: torch.Tensor) -> str | None:
    """The kernel's name of a torch.nn.attention.bias mask of the tensors' lengths; None for any other mask.

    Importing that module costs seconds (it brings torch._dynamo): without it, a mask cannot be one of its own.
    """
    if type(mask) is torch.Tensor or torch.compiler.is_compiling():
        return None
    bias = sys.modules.get("torch.nn.attention.bias")
    if bias is None or not isinstance(mask, bias.CausalBias):
        return None
    if mask.seq_len_q != query.shape[-2] or mask.seq_len_kv != key.shape[-2]:
        return None
    return "top_left" if mask.variant == bias.CausalVariant.UPPER_LEFT else "bottom_right"


def autocast(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The tensors as SDPA sees them: under autocast in its type, as it casts all floating-point types but float64."""
    device_type = tensors[0].device.type
    if device_type not in ("cpu", "cuda") or not torch.is_autocast_enabled(device_type):
        return tensors
    dtype = torch.get_autocast_dtype(device_type)
    return tuple(
        t.to(dtype) if t.device.type == device_type and t.is_floating_point() and t.dtype != torch.float64 else t
        for t in tensors
    )


def _four_dimensions(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, enable_gqa: bool, rank: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, bool, tuple[int, ...]]:
    """(query, key, value, enable_gqa, batch shape) with everything broadcast that SDPA broadcasts.

    A single key head for several query heads becomes a group, which costs nothing; what else is expanded has a stride
    of 0, and the operator copies it.
    """
    alike = query.dim() == key.dim() == value.dim()
    query, key, value = (_leading_ones(t, max(rank, 4) - t.dim()) for t in (query, key, value))
    alike = alike and query.shape[:-3] == key.shape[:-3] == value.shape[:-3]
    if not enable_gqa:
        alike = alike and query.shape[-3] == key.shape[-3] == value.shape[-3]
    if not alike and any(0 in t.shape for t in (query, key, value)):
        raise ValueError("an input without elements would be broadcast, for which torch has rules of its own")
    batch_shape = _broadcast(query.shape[:-3], key.shape[:-3], value.shape[:-3])
    heads: list[int] = [t.shape[-3] for t in (query, key, value)]
    if not enable_gqa and not heads[0] == heads[1] == heads[2]:
        if heads[1] == heads[2] == 1:
            enable_gqa = True
        else:
            heads = [*_broadcast(*((count,) for count in heads))] * 3
    query, key, value = (
        t.expand(*batch_shape, count, *t.shape[-2:]).flatten(0, -4)
        for t, count in zip((query, key, value), heads, strict=True)
    )
    return query, key, value, enable_gqa, batch_shape


def _broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]


def _leading_ones(tensor: torch.Tensor, count: int) -> torch.Tensor:
    return tensor[(None,) * count] if count else tensor


def past_limits(call: Call) -> str | None:
    """Why the kernel cannot be planned for a call whose sizes may be symbols.

    torch.compile turns the comparison into a guard on the length's range: longer queries compile anew, and fall back.
    torch.export would refuse dimensions without an upper bound for it, so exported programs find out at run time.
    """
    seqlen_q = call.query.shape[2]
    if not torch.compiler.is_exporting() and seqlen_q > MAX_SEQLEN_Q:
        return f"query tiles: seqlen_q {seqlen_q} exceeds the {MAX_SEQLEN_Q} rows of a grid"
    return None
