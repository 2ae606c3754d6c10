"""The hot path of the operators: calls that were planned once are launched by C++ straight from torch's dispatcher.

A call is known by dtype, device, shapes, strides and options of its arguments. What is not known, and whatever needs
more than a launch (gradients, dispatch modes, tensor subclasses, odd arguments), goes to the Python kernels.
"""

import functools
from collections.abc import Callable
from typing import Any, cast

import torch

from . import binding, cache, call, native, outputs
from .native import launcher
from .plan import Plan
from .problem import Problem

KNOWN_CALLS = 4096
KNOWN_TENSOR_MAPS = 16384  # four a call


@functools.cache
def calls() -> Any:
    """The calls of this process, for CUDA."""
    return make_calls(encode=None)


def make_calls(
    encode: Callable[[tuple[Any, ...]], bytes] | None, capacity: int = KNOWN_CALLS, encodings: int = KNOWN_TENSOR_MAPS
) -> Any:
    """A table of planned calls. encode: of TensorMapArgs.core_arguments(); None: by the CUDA driver."""
    torch_facts = {
        "Tensor": torch.Tensor,
        "is_grad_enabled": torch.is_grad_enabled,
        "empty_like": torch.empty_like,
        "output_like": lambda query: outputs.output_like(query, query.shape[-1]),
        "lse_like": outputs.lse_like,
        "forward_ad": vars(torch.autograd.forward_ad),
    }
    return launcher().Calls(torch_facts, encode, capacity, encodings)


def _usable(table: Any) -> Any | None:
    """The table, by default this process's; None where there is no hot path.

    That is where the launcher was not built, or torch has no table of C functions to read tensors by (before 2.10).
    """
    try:
        table = calls() if table is None else table
    except ImportError:
        return None
    return table if table.reads_tensors else None


def register(
    library: torch.library.Library,
    name: str,
    otherwise: Callable[..., Any],
    autograd: Callable[..., Any],
    *,
    table: Any = None,
    backend: str = "CUDA",
) -> None:
    """Registers the kernels of an operator for the backend's key and for its Autograd key, with the hot path in them.

    otherwise and autograd, called as (keyset, query, key, value, *args, **kwargs), serve what the hot path does not.

    The kernels are C++ (csrc/operator) where that was built for this torch. Else C++ is called through torch's kernels
    in Python, some microseconds dearer; or, where there is no hot path at all, the two given are the kernels.
    """
    table = _usable(table)
    operator = native.operator()
    if table is not None and operator is not None:
        operator.add_kernels(library.ns, name, backend, table.known_calls, otherwise, autograd)
        return
    with_lse = name == "mha_with_lse"
    for kernel, key in ((otherwise, backend), (autograd, f"Autograd{backend}")):
        if table is not None:
            kernel = _kernel(table, kernel, with_lse, backend)
        library.impl(name, kernel, key, with_keyset=True)  # type: ignore[no-untyped-call]


def _kernel(table: Any, otherwise: Callable[..., Any], with_lse: bool, backend: str) -> Any:
    """The hot path as a kernel to be registered with_keyset."""
    keys = torch._C.DispatchKey
    # Of the keys below autograd, a plain tensor has its backend's and ADInplaceOrView, which only counts for views.
    relevant = torch._C._after_autograd_keyset.remove(keys.ADInplaceOrView).raw_repr()
    plain = torch._C.DispatchKeySet(getattr(keys, backend)).raw_repr() & relevant
    return launcher().FastOp(table, otherwise, with_lse, relevant, plain)


def direct(*, with_lse: bool, table: Any = None) -> Callable[..., Any]:
    """The hot path for callers in Python: skips torch's dispatcher where that had nothing to do but call our kernel.

    The result is called as (query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment)
    and returns what the operator does, or None if the operator has to be called. Not for code that is being compiled.
    """
    table = _usable(table)
    if table is None:
        return lambda *_: None
    keys = torch._C.DispatchKey
    harmless = torch._C.DispatchKeySet(keys.BackendSelect) | torch._C.DispatchKeySet(keys.ADInplaceOrView)
    busy = [
        torch._C._len_torch_function_stack,
        torch._C._autograd._profiler_enabled,
        torch._C._is_any_autocast_enabled,
    ]
    included = torch._C._dispatch_tls_local_include_set
    return cast(Callable[..., Any], launcher().Direct(table, with_lse, included, harmless.raw_repr(), busy))


def remember(plan: Plan, problem: Problem, tensors: tuple[Any, Any, Any], options: tuple[Any, ...], out: Any) -> bool:
    """Makes a call that was just launched known, with the kernel of the plan. False if the hot path cannot take it.

    tensors: query, key, value as they came, which must be what was launched; options: is_causal, scale, enable_gqa,
    causal_alignment as they came.
    """
    from . import launch

    artifact = cache.get(plan.config)
    values = call.scalar_values(problem, 0)
    return put(calls(), artifact.record, launch.load(artifact), plan.grid, values, tensors, options, out)


def put(
    table: Any,
    record: Any,
    target: Any,
    grid: tuple[int, int, int],
    values: dict[str, int | float],
    tensors: tuple[Any, Any, Any],
    options: tuple[Any, ...],
    out: Any,
) -> bool:
    """`remember` with the launch's parts. target: a loaded kernel, or called as target(block, grid) in its place.

    values: the scalars by parameter name; "lse" is filled in at each call.
    """
    if any(tensor.numel() == 0 for tensor in (*tensors, out)):
        return False
    as_query = torch.empty_like(tensors[0]).stride() == out.stride() and tensors[0].shape == out.shape
    output = as_query, out.stride()
    known: bool = table.remember(tensors, options, binding.packer(record), target, grid, values, output)
    return known
