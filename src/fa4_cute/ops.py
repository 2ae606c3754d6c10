"""torch.ops.fa4.mha and fa4.mha_with_lse: schemas and kernels for each dispatch key.

`Library.define`/`impl` rather than `torch.library.custom_op`, which costs several microseconds a call and imports
torch._dynamo on the first one.
"""

from typing import Any

import torch

from . import derivatives, fast, reference, sdpa
from .outputs import check_out, lse_like, output_like
from .plan import Plan
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
_library.define(f"mha_out({_ARGUMENTS}, Tensor(a!) out, Tensor(b!)? lse=None) -> ()", tags=_TAGS)
_library.define(f"mha_with_lse({_ARGUMENTS}) -> (Tensor, Tensor)", tags=_TAGS)


def _mha_cpu(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return _mha_with_lse_cpu(query, key, value, *args, **kwargs)[0]


def _mha_with_lse_cpu(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor]:
    return reference.forward(query, key, value, check(query, key, value, *args, **kwargs))


def _mha_cuda(_: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return _forward_cuda(False, query, key, value, *args, **kwargs)[0]


def _mha_with_lse_cuda(
    _: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> Any:
    return _forward_cuda(True, query, key, value, *args, **kwargs)


def _forward_cuda(
    with_lse: bool, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Checks, plans and launches a call, and makes it known to the hot path (fast.py)."""
    problem = check(query, key, value, *args, **kwargs)
    out = output_like(query, problem.head_dim_v)
    lse = lse_like(query) if with_lse else None
    planned, ready = _launch(problem, (query, key, value), out, lse)
    if all(tensor is given for tensor, given in zip(ready, (query, key, value), strict=True)):
        fast.remember(planned, problem, ready, _options(*args, **kwargs), out)
    return out, lse


def _launch(
    problem: Problem, tensors: tuple[torch.Tensor, ...], out: torch.Tensor, lse: torch.Tensor | None
) -> tuple[Plan, tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Plans a checked call and launches it; returns the plan, and query, key and value as TMA read them."""
    from . import arch, launch
    from .plan import plan

    planned = plan(problem, arch.of_device(out.device))
    query, key, value = tensors
    ready = tma_ready(query), tma_ready(key), tma_ready(value)
    launch.forward(planned, problem, *ready, out, lse)
    return planned, ready


def _mha_out_cpu(*args: Any, out: torch.Tensor, lse: torch.Tensor | None = None, **kwargs: Any) -> None:
    problem = check(*args, **kwargs)
    check_out(args[0], args[1], args[2], out, lse)
    result, result_lse = reference.forward(args[0], args[1], args[2], problem)
    out.copy_(result)
    if lse is not None:
        lse.copy_(result_lse)


def _mha_out_cuda(*args: Any, out: torch.Tensor, lse: torch.Tensor | None = None, **kwargs: Any) -> None:
    problem = check(*args, **kwargs)
    check_out(args[0], args[1], args[2], out, lse)
    _launch(problem, args[:3], out, lse)
    for written in (
        out,
        lse,
    ):  # autograd refuses a backward that has kept the old contents; the launch tells it nothing
        if written is not None:
            torch.autograd.graph.increment_version(written)


def _mha_out_fake(*args: Any, out: torch.Tensor, lse: torch.Tensor | None = None, **kwargs: Any) -> None:
    check(*args, **kwargs)
    check_out(args[0], args[1], args[2], out, lse, addresses=False)


def _options(
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
    causal_alignment: str = "top_left",
) -> tuple[bool, float | None, bool, str]:
    """What of a call's arguments behind the tensors tells two served calls apart."""
    return is_causal, scale, enable_gqa, causal_alignment


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
    """Autograd kernel: passes on, unless a gradient or a tangent would be wanted."""
    operator = getattr(torch.ops.fa4, name).default

    def autograd(_: Any, *args: Any, **kwargs: Any) -> Any:
        if derivatives.wanted(*args, *kwargs.values()):
            raise NotImplementedError(
                f"fa4::{name} is forward only and an input requires a gradient, or has a tangent (forward-mode AD). "
                "Call it under torch.no_grad() or on detached inputs, or use "
                "torch.nn.functional.scaled_dot_product_attention for training."
            )
        with torch._C._AutoDispatchBelowAutograd():
            return operator(*args, **kwargs)

    return autograd


def _autocast(name: str, device_type: str) -> Any:
    """Autocast kernel: casts what SDPA under autocast casts, to the type that is active."""
    operator = getattr(torch.ops.fa4, name).default
    key = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, f"Autocast{device_type.upper()}"))

    def autocast(_: Any, *args: Any, **kwargs: Any) -> Any:
        tensors = sdpa.autocast(*args[:3])  # outside the guard: within it, autocast counts as disabled
        with torch._C._ExcludeDispatchKeyGuard(key):
            return operator(*tensors, *args[3:], **kwargs)

    return autocast


def _vmap(name: str) -> Any:
    """vmap rule: the mapped dimension becomes part of the batch. A tensor that is not mapped is repeated."""
    operator = getattr(torch.ops.fa4, name).default
    results = 2 if name == "mha_with_lse" else 1

    def rule(info: Any, in_dims: tuple[int | None, ...], *args: Any, **kwargs: Any) -> Any:
        if any(dim is not None for dim in in_dims[3:]):
            raise NotImplementedError("attn_mask: the kernel takes no mask tensor yet")
        count = info.batch_size
        tensors = [
            tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip(args[:3], in_dims[:3], strict=True)
        ]
        batch = tensors[0].shape[1]
        out = operator(*(tensor.flatten(0, 1) for tensor in tensors), *args[3:], **kwargs)
        if results == 1:
            return out.unflatten(0, (count, batch)), 0
        return tuple(result.unflatten(0, (count, batch)) for result in out), (0, 0)

    return rule


_library.impl("mha_out", _mha_out_cpu, "CPU")
_library.impl("mha_out", _mha_out_cuda, "CUDA")
torch.library.register_fake("fa4::mha_out", _mha_out_fake, lib=_library)
_library.impl("mha_out", _refuse_gradient("mha_out"), "Autograd", with_keyset=True)

for _name, _cpu, _cuda, _fake in (
    ("mha", _mha_cpu, _mha_cuda, _mha_fake),
    ("mha_with_lse", _mha_with_lse_cpu, _mha_with_lse_cuda, _mha_with_lse_fake),
):
    _library.impl(_name, _cpu, "CPU")
    torch.library.register_fake(f"fa4::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"fa4::{_name}", _vmap(_name), lib=_library)
    _autograd = _refuse_gradient(_name)
    _library.impl(_name, _autograd, "Autograd", with_keyset=True)
    for _device_type in ("cpu", "cuda"):
        _key = f"Autocast{_device_type.upper()}"
        _library.impl(_name, _autocast(_name, _device_type), _key, with_keyset=True)
    fast.register(_library, _name, _cuda, _autograd)
