"""fa4_cute as a FlashAttention implementation of torch itself (torch >= 2.11).

    from fa4_cute.integrations import torch_flash
    torch_flash.register()
    torch.nn.attention.activate_flash_attention_impl("FA4_CUTE")

From then on torch's scaled_dot_product_attention runs the kernel wherever torch would choose its FlashAttention on CUDA
and no gradient is wanted; `torch.nn.attention.restore_flash_attention_impl()` ends it. A compiled training step wants
none while its forward runs: its backward is torch's, from our O and LSE.
"""

from typing import Any

import torch

from ..api import served
from ..sdpa import Call

NAME = "FA4_CUTE"
_OPERATOR = "_scaled_dot_product_flash_attention"
_ARGUMENTS = ["query", "key", "value", "dropout_p", "is_causal", "return_debug_mask", "scale"]
_RETURNS = ["Tensor"] * 4 + ["int"] * 2 + ["Tensor"] * 3


class Handle:
    """Keeps the override alive; torch calls `remove` to end it."""

    def __init__(self, library: torch.library.Library) -> None:
        self._library: torch.library.Library | None = library

    def remove(self) -> None:
        if self._library is not None:
            self._library._destroy()
        self._library = None


def register(name: str = NAME) -> None:
    """Offers the kernel to torch under a name; nothing changes before the user activates it.

    Args:
        name: What torch.nn.attention.activate_flash_attention_impl will be given.

    Raises:
        NotImplementedError: This torch has no registry of FlashAttention implementations (before 2.11).
    """
    attention = torch.nn.attention
    if not hasattr(attention, "register_flash_attention_impl"):
        raise NotImplementedError(f"torch {torch.__version__}: no register_flash_attention_impl, wanted torch >= 2.11")
    attention.register_flash_attention_impl(name, register_fn=override)


def override(dispatch_key: str = "CUDA") -> Handle:
    """Takes over torch's forward operator for a dispatch key.

    Calls that the kernel does not serve, and those that want a gradient, go on to the kernel that was there before.

    Args:
        dispatch_key: "CUDA", or another backend's for tests.

    Returns:
        What torch keeps and ends the override with.

    Raises:
        RuntimeError: This torch's operator does not have the arguments and results known here, or no kernel.
    """
    check_schema(torch.ops.aten._scaled_dot_product_flash_attention.default._schema)
    try:
        before = torch.library.get_kernel(f"aten::{_OPERATOR}", dispatch_key)
    except RuntimeError as error:
        raise RuntimeError(
            f"torch {torch.__version__} was built without FlashAttention for {dispatch_key}: nothing to take over"
        ) from error
    library = torch.library.Library("aten", "IMPL")

    def forward(keys: Any, *args: Any, **kwargs: Any) -> Any:
        if _served(*args, **kwargs):
            return _forward(*args, **kwargs)
        return before.call_boxed(keys, *args, **kwargs)

    library.impl(_OPERATOR, forward, dispatch_key, with_keyset=True, allow_override=True)
    return Handle(library)


def check_schema(schema: Any) -> None:
    """Torch's private operator has changed its results before: say so here instead of returning what it cannot read."""
    arguments = [argument.name for argument in schema.arguments]
    returns = [str(result.type) for result in schema.returns]
    if arguments != _ARGUMENTS or returns != _RETURNS:
        raise RuntimeError(
            f"torch {torch.__version__}: aten::{_OPERATOR} has changed; got {schema}, wanted arguments {_ARGUMENTS} "
            f"and results {_RETURNS}"
        )


def _served(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> bool:
    # A row without a key has the LSE inf in torch's kernel, which its backward relies on, and -inf in ours.
    seqlen_q, seqlen_k = query.shape[2], key.shape[2]
    if return_debug_mask or seqlen_k == 0 or (is_causal and seqlen_q > seqlen_k):
        return False
    gqa = query.shape[1] != key.shape[1]
    return isinstance(served(query, key, value, None, dropout_p, is_causal, scale, gqa), Call)


def _forward(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    *,
    scale: float | None = None,
) -> tuple[Any, ...]:
    """The operator's nine results: O, natural-log LSE, no cumulative lengths, both lengths, and unused random state.

    Of this operator, unlike of scaled_dot_product_attention, is_causal means bottom-right: causal_lower_right calls it.
    """
    if any(stride == 0 for size, stride in zip(query.shape, query.stride(), strict=True) if size > 1):
        query = query.clone()  # has torch's order of dimensions, which O has to have; an expanded one has none
    options = {"scale": scale, "enable_gqa": query.shape[1] != key.shape[1], "causal_alignment": "bottom_right"}
    out, lse = torch.ops.fa4.mha_with_lse(query, key, value, None, 0.0, is_causal, **options)
    seed = query.new_zeros((2,), dtype=torch.uint64)
    return out, lse, None, None, query.shape[2], key.shape[2], seed, seed.new_zeros(()), query.new_empty((0,))
