"""fa4_cute as an attention implementation of Hugging Face transformers.

    from fa4_cute.integrations import transformers as fa4_transformers
    fa4_transformers.register()
    model.set_attn_implementation("fa4_cute")

docs/integrations.md says which calls the kernel serves.
"""

from typing import Any

import torch

from ..api import log_fallback, scaled_dot_product_attention

NAME = "fa4_cute"
# Keyword arguments of attention functions that change the result and that the kernel does not take.
_EAGER = ("softcap", "s_aux", "sinks")
_SDPA = ("position_bias", "cache")


def register(name: str = NAME) -> None:
    """Makes `name` an attention implementation of transformers, with the masks of its "sdpa" (but see `mask`).

    Without a mask function under the same name, transformers would pass no mask at all, even for padded batches.

    Args:
        name: What a model's attn_implementation will be set to.
    """
    from transformers import AttentionInterface, AttentionMaskInterface

    # Its look-ups are not for torch.compile to trace.
    torch.compiler.assume_constant_result(_takes_sdpas_masks)  # type: ignore[no-untyped-call]
    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(name, mask)


def mask(**kwargs: Any) -> torch.Tensor | None:
    """transformers' sdpa_mask, which leaves out a mask that is not needed, in one case more.

    Under torch.compile sdpa_mask never leaves it out (before torch 2.14: it cannot tell compiling from exporting),
    and a mask keeps a call from the kernel. Without padding, window and cached tokens none is needed there either.

    Args:
        **kwargs: Of sdpa_mask.

    Returns:
        (batch, 1, seqlen_q, seqlen_k), or None: causal, or as the attention layer says. That of "eager" for models that
            transformers does not run with "sdpa".
    """
    from transformers.masking_utils import eager_mask, sdpa_mask

    made: torch.Tensor | None
    config: Any = kwargs.get("config")
    # Models with shared layers (Gemma 4) may drop query rows behind the mask's making: then "causal" alone means other
    # rows. Where their attention is called "sdpa" they look for the mask first; else they rely on there being one.
    if getattr(config, "num_kv_shared_layers", 0):
        kwargs["allow_is_causal_skip"] = False
    if not _takes_sdpas_masks(config.__class__):
        made = eager_mask(**kwargs)
        return made
    if torch.compiler.is_dynamo_compiling() and kwargs.get("allow_is_causal_skip", True) and "q_length" in kwargs:
        from torch.fx.experimental.symbolic_shapes import statically_known_true

        plain = kwargs.get("attention_mask") is None and kwargs.get("local_size") is None
        from_start = not isinstance(kwargs.get("q_offset"), torch.Tensor)
        if plain and from_start and statically_known_true(kwargs["q_length"] == kwargs["kv_length"]):
            return None
    made = sdpa_mask(**kwargs)
    return made


def _takes_sdpas_masks(config: Any) -> bool:
    """Whether the model of a configuration class can do with masks of bools, or none where its layers say "causal".

    One that transformers does not run with "sdpa" may add masks to its logits itself (BigBird-Pegasus), and may not
    say in its layers that they are causal (Pegasus-X): "eager" always makes a mask, to be added.
    """
    from transformers import MODEL_MAPPING

    found = MODEL_MAPPING.get(config, None)
    models = found if isinstance(found, tuple) else (found,)
    return any(model is None or model._supports_sdpa for model in models)


def attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """The attention function that transformers calls.

    What the kernel does not serve goes to torch's SDPA (masks: padding, sliding windows, selected keys), to plain
    PyTorch (soft caps, sinks) or to transformers' own "sdpa" function, with the reason logged once (logger "fa4_cute").

    Args:
        module: The attention layer; its is_causal counts where the argument is None.
        query: (batch, heads_q, seqlen_q, head_dim).
        key: (batch, heads_kv, seqlen_k, head_dim), not repeated.
        value: As key.
        attention_mask: As of "sdpa".
        dropout: Probability.
        scaling: Of the logits. None: 1/sqrt(head_dim).
        is_causal: Counts without a mask and with more than one query row.
        **kwargs: sliding_window, softcap, s_aux, sinks, indices, position_bias and cache count.

    Returns:
        Output (batch, seqlen_q, heads_q, head_dim), and the attention weights where plain PyTorch has computed it.

    Raises:
        NotImplementedError: Keys selected by blocks; soft caps or sinks with a paged cache.
    """
    _refuse(kwargs)
    eager = [name for name in _EAGER if kwargs.get(name) is not None]
    others = [name for name in _SDPA if kwargs.get(name) is not None]
    if others and not eager:
        from transformers.integrations.sdpa_attention import sdpa_attention_forward

        log_fallback(f"transformers passes {', '.join(others)}")
        result: tuple[torch.Tensor, None] = sdpa_attention_forward(
            module, query, key, value, attention_mask, dropout, scaling, is_causal, **kwargs
        )
        return result

    seqlen_q = query.shape[2]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    is_causal = bool(is_causal) and attention_mask is None and seqlen_q > 1
    if is_causal:  # the first tokens in a static cache: what is behind them is not filled yet
        key, value = key[:, :, :seqlen_q], value[:, :, :seqlen_q]
    seqlen_k = key.shape[2]
    passed = [*others, *("s_aux (sinks)" if name == "s_aux" else name for name in eager)]
    window, indices = kwargs.get("sliding_window"), kwargs.get("indices")
    if attention_mask is not None or (window is not None and window >= seqlen_k):
        window = None  # the mask has it, or it hides nothing
    if window is not None:
        passed.append(f"sliding_window {window} without a mask")
    if indices is not None:  # sparse attention: models make a mask of them for "sdpa" and "eager" alone
        passed.append("indices of keys")
    if window is not None or (is_causal and passed):
        attention_mask = _position_mask(seqlen_q, seqlen_k, window, is_causal, query.device)
        is_causal = False
    if indices is not None:
        attention_mask = _selected(indices, attention_mask, seqlen_k)
    if passed:
        log_fallback(f"transformers passes {', '.join(passed)}")

    if eager:
        sinks = kwargs.get("s_aux") if kwargs.get("sinks") is None else kwargs["sinks"]
        bias = kwargs.get("position_bias")
        bias = bias if bias is None else bias[..., :seqlen_k]  # as the keys above
        weights = _weights(query, key, attention_mask, scaling, kwargs.get("softcap"), sinks, bias)
        weights = torch.nn.functional.dropout(weights, dropout)
        values = value.repeat_interleave(query.shape[1] // value.shape[1], 1)
        return (weights @ values).transpose(1, 2).contiguous(), weights
    gqa = query.shape[1] != key.shape[1]
    out = scaled_dot_product_attention(
        query, key, value, attention_mask, dropout, is_causal, scale=scaling, enable_gqa=gqa
    )
    return out.transpose(1, 2).contiguous(), None


def _refuse(kwargs: dict[str, Any]) -> None:
    """What would be computed wrong."""
    if kwargs.get("block_indices") is not None:
        raise NotImplementedError(
            "block_indices: the model selects blocks of keys for each query, and makes the mask of them only for the "
            'attention implementations "sdpa" and "eager"; use one of these'
        )
    eager = [name for name in _EAGER if kwargs.get(name) is not None]
    if eager and kwargs.get("cache") is not None:
        raise NotImplementedError(f"{', '.join(eager)}: not with a paged cache; use another attention implementation")


def _position_mask(
    seqlen_q: int, seqlen_k: int, window: int | None, is_causal: bool, device: torch.device
) -> torch.Tensor:
    """True where a query of the last seqlen_q positions sees a key: less than `window` back, ahead if not causal."""
    rows = torch.arange(seqlen_k - seqlen_q, seqlen_k, device=device)[:, None]
    back = rows - torch.arange(seqlen_k, device=device)
    window = seqlen_k if window is None else window
    seen = back < window
    return seen & (back >= 0) if is_causal else seen & (back > -window)


def _selected(indices: torch.Tensor, mask: torch.Tensor | None, seqlen_k: int) -> torch.Tensor:
    """The mask without the keys that are not among a query's indices (batch, seqlen_q, keys)."""
    selected = torch.zeros((*indices.shape[:2], seqlen_k), dtype=torch.bool, device=indices.device)
    selected = selected.scatter(-1, indices.long(), True).unsqueeze(1)
    if mask is None:
        return selected
    return mask & selected if mask.dtype == torch.bool else mask.masked_fill(~selected, -torch.inf)


def _weights(
    query: torch.Tensor,
    key: torch.Tensor,
    mask: torch.Tensor | None,
    scaling: float | None,
    softcap: float | None,
    sinks: torch.Tensor | None,
    position_bias: torch.Tensor | None,
) -> torch.Tensor:
    """Attention weights, with a soft cap (cap * tanh(logit / cap)) and a sink logit, which only takes weight.

    position_bias: added to the logits. sinks: (heads,), or (batch, heads, seqlen_q, 1).
    """
    keys = key.repeat_interleave(query.shape[1] // key.shape[1], 1)
    logits = (query @ keys.mT).float() * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    if position_bias is not None:
        logits = logits + position_bias
    if mask is not None:
        logits = logits.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else logits + mask
    if sinks is not None:
        column = (sinks if sinks.dim() == 4 else sinks.reshape(1, -1, 1, 1)).float()
        column = column.expand(*logits.shape[:2], logits.shape[2], 1)
        logits = torch.cat([logits, column], -1)
    weights = torch.nan_to_num(torch.softmax(logits, -1), nan=0.0)
    return (weights if sinks is None else weights[..., :-1]).to(query.dtype)
