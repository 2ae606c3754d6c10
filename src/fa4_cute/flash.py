"""The names of the flash_attn package, as far as the kernel serves them.

Tensors are (batch, seqlen, heads, head_dim); causal is aligned bottom-right.
"""

from typing import Any

import torch

from .api import mha


def flash_attn_func(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    dropout_p: float = 0.0,
    softmax_scale: float | None = None,
    causal: bool = False,
    window_size: tuple[int | None, int | None] = (-1, -1),
    softcap: float = 0.0,
    alibi_slopes: torch.Tensor | None = None,
    deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Any:
    """softmax(softmax_scale * Q K^T) V with flash_attn's conventions.

    Args:
        q: (batch, seqlen_q, heads_q, head_dim), bfloat16 or float16, head_dim 64 or 128, any strides.
        k: (batch, seqlen_k, heads_kv, head_dim), with heads_q a multiple of heads_kv.
        v: As k.
        dropout_p: 0; the kernel has no dropout.
        softmax_scale: Of the logits. None: 1/sqrt(head_dim).
        causal: Row i sees the keys 0..i + seqlen_k - seqlen_q.
        window_size: (left, right): row i sees the keys from left before to right after i + seqlen_k - seqlen_q, both
            included; -1 or None on a side: no bound there. Only windows that mean no mask or causal.
        softcap: 0; the kernel has no soft cap yet.
        alibi_slopes: None; the kernel has no ALiBi yet.
        deterministic: Changes nothing: results always are.
        return_attn_probs: Return what flash_attn does without dropout.

    Returns:
        O, shaped as q. With return_attn_probs (O, LSE, None): natural logarithm, float32, (batch, heads_q, seqlen_q),
            -inf for rows that see no key.

    Raises:
        ValueError: Bad shapes or values.
        TypeError: Bad types or dtypes.
        NotImplementedError: Dropout, softcap, alibi_slopes, a window that hides keys which causal does not, inputs
            that require a gradient.
    """
    if dropout_p:
        raise NotImplementedError(f"dropout_p: got {dropout_p}, the kernel has no dropout yet")
    if softcap:
        raise NotImplementedError(f"softcap: got {softcap}, the kernel has no soft cap yet")
    if alibi_slopes is not None:
        raise NotImplementedError("alibi_slopes: the kernel has no ALiBi yet")
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name}: got {tensor.dim()} dimensions, wanted 4: (batch, seqlen, heads, head_dim)")
    causal = _causal_for(window_size, causal, q.shape[1], k.shape[1])
    query, key, value = (tensor.transpose(1, 2) for tensor in (q, k, v))
    gqa = query.shape[1] != key.shape[1]
    alignment = "bottom_right" if causal else "top_left"
    result = mha(
        query,
        key,
        value,
        is_causal=causal,
        scale=softmax_scale,
        enable_gqa=gqa,
        causal_alignment=alignment,
        return_lse=return_attn_probs,
    )
    if return_attn_probs:
        return result[0].transpose(1, 2), result[1], None
    return result.transpose(1, 2)


def _causal_for(window_size: tuple[int | None, int | None], causal: bool, seqlen_q: int, seqlen_k: int) -> bool:
    """Whether a window means causal (True) or no mask (False). NotImplementedError for one that is neither."""
    left, right = (-1 if side is None else side for side in window_size)
    if left < -1 or right < -1:
        raise ValueError(f"window_size: got {tuple(window_size)}, wanted sizes of 0 or more, or -1 for no bound")
    if causal:
        right = 0  # causal bounds the right side already; a wider one changes nothing
    hides_left = left != -1 and left < seqlen_k - 1
    if not hides_left and right == 0:
        return True
    if not hides_left and (right == -1 or right >= seqlen_q - 1):
        return False
    raise NotImplementedError(f"window_size: got {tuple(window_size)}, the kernel has no windows yet")


def flash_attn_varlen_func(*args: Any, **kwargs: Any) -> Any:
    """Not there yet: sequences of different lengths packed into one tensor. Raises NotImplementedError."""
    raise NotImplementedError("flash_attn_varlen_func: the kernel takes no packed sequences yet; use flash_attn_func")


def flash_attn_with_kvcache(*args: Any, **kwargs: Any) -> Any:
    """Not there yet: attention to a cache that it also fills. Raises NotImplementedError."""
    raise NotImplementedError(
        "flash_attn_with_kvcache: the kernel takes no caches yet; use flash_attn_func on the filled part"
    )
