"""torch.ops.fa4.mha and fa4.mha_with_lse: schemas and kernels for each dispatch key.

`Library.define`/`impl` rather than `torch.library.custom_op`, which costs several microseconds a call and imports
torch._dynamo on the first one.
"""

from typing import Any

import torch

from . import reference
from .outputs import lse_like, output_like
from .problem import Problem
from .validate import check

_ARGUMENTS = (
    "Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, float dropout_p=0.0, bool is_causal=False, *, "
    'float? scale=None, bool enable_gqa=False, str causal_alignment="top_left"'
)
# Any strides are taken as they are; inductor may not reorder dimensions, but need not copy to the eager strides.
_TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)

_library = torch.library.Library("fa4", "DEF")  # module global: the registrations live as long as this object
_library.define(f"mha({_ARGUMENTS}) -> Tensor", tags=_TAGS)
_library.define(f"mha_with_lse({_ARGUMENTS}) -> (Tensor, Tensor)", tags=_TAGS)


def _mha_cpu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _mha_with_lse_cpu(query, key, value, *args, **kwargs)[0]


def _mha_with_lse_cpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.forward(query, key, value, check(query, key, value, *args, **kwargs))


def _mha_cuda(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    problem = check(query, key, value, *args, **kwargs)
    out = output_like(query, problem.head_dim_v)
    _launch(problem, query, key, value, out, None)
    return out


def _mha_with_lse_cuda(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    problem = check(query, key, value, *args, **kwargs)
    out, lse = output_like(query, problem.head_dim_v), lse_like(query)
    _launch(problem, query, key, value, out, lse)
    return out, lse


def _launch(
    problem: Problem,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor | None,
) -> None:
    from . import arch, launch
    from .plan import plan

    planned = plan(problem, arch.of_device(query.device))
    launch.forward(planned, problem, tma_ready(query), tma_ready(key), tma_ready(value), out, lse)


def tma_ready(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if TMA can read it, else a dense copy.

    TMA wants a dense innermost dimension, and addresses and strides that are multiples of 16 bytes.
    """
    unit = 16 // tensor.element_size()
    strides = [stride for size, stride in zip(tensor.shape[:-1], tensor.stride()[:-1], strict=True) if size > 1]
    aligned = tensor.data_ptr() % 16 == 0 and all(stride % unit == 0 and stride > 0 for stride in strides)
    if aligned and tensor.stride(-1) == 1:
        return tensor
    return tensor.clone(memory_format=torch.contiguous_format)  # contiguous() would keep a misaligned dense tensor


def _mha_fake(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    check(query, key, value, *args, **kwargs)
    return output_like(query, value.shape[-1])


def _mha_with_lse_fake(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return _mha_fake(query, key, value, *args, **kwargs), lse_like(query)


def _refuse_gradient(name: str) -> Any:
    """Autograd kernel: passes on, unless a gradient would be wanted."""
    operator = getattr(torch.ops.fa4, name).default

    def autograd(*args: Any, **kwargs: Any) -> Any:
        tensors = [a for a in (*args, *kwargs.values()) if isinstance(a, torch.Tensor)]
        if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            raise NotImplementedError(
                f"fa4::{name} is forward only and an input requires a gradient. Call it under torch.no_grad() or on "
                "detached inputs, or use torch.nn.functional.scaled_dot_product_attention for training."
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **kwargs)

    return autograd


for _name, _cpu, _cuda, _fake in (
    ("mha", _mha_cpu, _mha_cuda, _mha_fake),
    ("mha_with_lse", _mha_with_lse_cpu, _mha_with_lse_cuda, _mha_with_lse_fake),
):
    _library.impl(_name, _cpu, "CPU")
    _library.impl(_name, _cuda, "CUDA")
    torch.library.register_fake(f"fa4::{_name}", _fake, lib=_library)
    _library.impl(_name, _refuse_gradient(_name), "Autograd")
