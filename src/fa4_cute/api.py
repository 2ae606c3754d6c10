"""Functions for users, thin over torch.ops.fa4."""

import logging
from typing import Any, cast

import torch
import torch.nn.functional as F

from . import arch as archs
from . import cache, fast, sdpa
from . import ops as _ops  # registers the operators
from .plan import plan
from .validate import check

_log = logging.getLogger("fa4_cute")
_logged: set[str] = set()
_direct, _direct_with_lse = fast.direct(with_lse=False), fast.direct(with_lse=True)


def mha(
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
    return_lse: bool = False,
) -> Any:
    """softmax(scale * Q K^T) V.

    Args:
        query: (batch, heads_q, seqlen_q, head_dim), bfloat16 or float16, head_dim 64 or 128, any strides.
        key: (batch, heads_kv, seqlen_k, head_dim), dtype and device of the query.
        value: As key.
        attn_mask: None; the kernel takes no mask tensors yet.
        dropout_p: 0; the kernel has no dropout.
        is_causal: Row i sees the keys 0..i, or as causal_alignment says.
        scale: Of the logits, any finite number. None: 1/sqrt(head_dim).
        enable_gqa: heads_q may be a multiple of heads_kv.
        causal_alignment: "top_left" as in SDPA: row i sees keys 0..i. "bottom_right" as in FlashAttention and with KV
            caches: row i sees keys 0..i + seqlen_k - seqlen_q.
        return_lse: Also return the LSE.

    Returns:
        O with the query's shape and dimension order, 0 in rows that see no key. With return_lse (O, LSE): natural
            logarithm, float32, (batch, heads_q, seqlen_q), -inf for rows that see no key.

    Raises:
        ValueError: Bad shapes or values; the message names the argument, what came and what is wanted.
        TypeError: Bad types or dtypes.
        NotImplementedError: What the kernel does not serve, a gradient included.
    """
    if not torch.compiler.is_compiling():
        direct = _direct_with_lse if return_lse else _direct
        known = direct(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment)
        if known is not None:
            return known
    op = torch.ops.fa4.mha_with_lse if return_lse else torch.ops.fa4.mha
    options = {"scale": scale, "enable_gqa": enable_gqa, "causal_alignment": causal_alignment}
    return op(query, key, value, attn_mask, dropout_p, is_causal, **options)


def scaled_dot_product_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    strict: bool = False,
) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, by the fa4 kernel where it serves the call.

    Elsewhere torch's own runs, with its rules and errors; `explain` says why, and each reason is logged once (logger
    "fa4_cute"). docs/semantics.md lists what is stricter than torch's.

    Args:
        query: (..., heads_q, seqlen_q, head_dim): 2 to 5 dimensions, all but the last two broadcast.
        key: (..., heads_kv, seqlen_k, head_dim).
        value: As key.
        attn_mask: As torch's; the causal biases of torch.nn.attention.bias are served by the kernel.
        dropout_p: As torch's.
        is_causal: Row i sees the keys 0..i.
        scale: Of the logits. None: 1/sqrt(head_dim).
        enable_gqa: heads_q may be a multiple of heads_kv.
        strict: Raise in place of falling back.

    Returns:
        O in the broadcast shape (..., heads_q, seqlen_q, head_dim), 0 in rows that see no key.

    Raises:
        NotImplementedError: With strict, the reason for which the kernel does not serve the call.
        ValueError: A value of another length than the key, or attn_mask with is_causal.
    """
    if not torch.compiler.is_compiling():
        known = _direct(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, "top_left")
        if known is not None:
            return cast(torch.Tensor, known)
    call = served(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if isinstance(call, sdpa.Call):
        return call.restore(mha(*call.tensors, **call.options))
    if strict:
        raise NotImplementedError(f"strict=True and the kernel does not serve this call: {call}")
    log_fallback(call)
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def log_fallback(reason: str) -> None:
    """Says once a reason that torch's SDPA is used."""
    if not torch.compiler.is_compiling() and reason not in _logged:
        _logged.add(reason)
        _log.info("torch's scaled_dot_product_attention is used: %s", reason)


def served(*arguments: Any) -> sdpa.Call | str:
    """sdpa.route, and whether the tensors' device can be planned for."""
    call = sdpa.route(*arguments)
    if isinstance(call, str):
        return call
    try:
        target = target_of(call.query.device)
        if target is None:
            return call
        reason = sdpa.past_limits(call)
        if reason is not None:
            return reason
        if not torch.compiler.is_compiling():  # sizes may be symbols, and a plan would specialise on them
            plan(check(*call.tensors, **call.options), target)
    except NotImplementedError as error:
        return str(error)
    return call


def target_of(device: torch.device) -> str | None:
    """The architecture that calls on a device are planned for; None: any call is computed by the reference.

    NotImplementedError for a GPU that the kernel does not run on.
    """
    return archs.of_device(device) if device.type == "cuda" else None


def explain(
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
    arch: str | None = None,
) -> str:
    """What `scaled_dot_product_attention` would do, without doing it: the plan of the kernel, or why torch's is used.

    The plan tells the problem, the tiles, the grid, and where the compiled kernel would come from: memory, a file, or
    the compiler. Arguments are those of `mha`, and:

    Args:
        arch: Plan for this architecture. None: that of the query's device, "sm_100a" for tensors that are not on a GPU.

    Returns:
        A text of a few lines.
    """
    call = sdpa.route(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, causal_alignment)
    if isinstance(call, str):
        return f"torch's scaled_dot_product_attention: {call}"
    problem = check(*call.tensors, **call.options)
    try:
        target = arch or target_of(query.device) or "sm_100a"
        planned = plan(problem, target)
    except NotImplementedError as error:
        return f"torch's scaled_dot_product_attention: {error}"
    section, q_tiles, sections = planned.grid
    lines = [
        f"fa4::mha: {problem}",
        f"  {planned.config}",
        f"  grid {planned.grid} of 512 threads: {q_tiles} query tiles of {sections} x {section} (batch, head) pairs",
        f"  kernel: {cache.whereabouts(planned.config)}",
    ]
    if query.device.type != "cuda":
        lines.append(f"  on {query.device} the op is computed by the PyTorch reference; the plan is for {target}")
    return "\n".join(lines)


__all__ = ["_ops", "explain", "mha", "scaled_dot_product_attention"]
