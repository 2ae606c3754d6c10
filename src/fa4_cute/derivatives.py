"""Whether somebody wants a derivative of a call. The kernel has none, in neither mode."""

from typing import Any

import torch
from torch.autograd import forward_ad

_functorch = torch._C._functorch


def wanted(*arguments: Any) -> bool:
    """Whether a gradient of one of these would be recorded, or a tangent goes along with one (forward mode).

    Looks into the wrappers of torch.func: under grad(vmap(...)) the mapped tensor does not say itself that what it
    wraps requires a gradient.
    """
    return any(_wanted(argument) for argument in arguments if isinstance(argument, torch.Tensor))


def _wanted(tensor: torch.Tensor) -> bool:
    if tensor.requires_grad and torch.is_grad_enabled():
        return True
    if torch.compiler.is_dynamo_compiling():  # it cannot trace what follows, and the operator looks again
        return False
    wrapped = _functorch.is_functorch_wrapped_tensor(tensor)
    # A mapped tensor has no tangent of its own, and no rule to be asked for one.
    if forward_ad._current_level >= 0 and not (wrapped and _functorch.is_batchedtensor(tensor)):
        _, tangent = forward_ad.unpack_dual(tensor)  # type: ignore[no-untyped-call]
        if tangent is not None:
            return True
    return bool(wrapped) and _wanted(_functorch.get_unwrapped(tensor))
