"""Tiny random models of transformers with fa4_cute against their eager attention."""

import logging

import pytest
import torch

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

from fa4_cute import api  # noqa: E402
from fa4_cute.integrations.transformers import attention, register  # noqa: E402

register()
SIZES = {
    "vocab_size": 50,
    "hidden_size": 256,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "head_dim": 64,
    "max_position_embeddings": 128,
    "pad_token_id": 0,
    "eos_token_id": None,
    "bos_token_id": None,
}


def model(heads_kv=4, kind="Llama", **options):
    config = getattr(transformers, f"{kind}Config")(**{**SIZES, "num_key_value_heads": heads_kv, **options})
    torch.manual_seed(0)
    return getattr(transformers, f"{kind}ForCausalLM")(config).to(torch.bfloat16).eval()


def tokens(length=20):
    return torch.randint(1, 50, (2, length), generator=torch.Generator().manual_seed(1))


def assert_same_logits(network, ids, mask=None):
    """As far from eager attention as sdpa is, at most twice."""
    wanted = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
    logits = {}
    with torch.no_grad():
        for name in ("eager", "sdpa", "fa4_cute"):
            if name == "sdpa" and network.config.model_type == "gemma2":
                continue  # refuses soft caps
            network.set_attn_implementation(name)
            logits[name] = network(ids, attention_mask=mask).logits[wanted].float()
    spread = logits["eager"].abs().max() * 2**-7
    bound = (logits["sdpa"] - logits["eager"]).abs().max() if "sdpa" in logits else spread
    assert (logits["fa4_cute"] - logits["eager"]).abs().max() <= 2 * bound + spread


@pytest.fixture
def reasons(caplog):
    api._logged.clear()
    caplog.set_level(logging.INFO, "fa4_cute")
    return lambda: [record.message for record in caplog.records if record.name == "fa4_cute"]


@pytest.mark.parametrize("heads_kv", [4, 2])
def test_logits(heads_kv, reasons):
    assert_same_logits(model(heads_kv), tokens())
    assert not reasons(), "no call fell back"


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["Llama", "Mistral", "GptOss"])
def test_compiled(kind, dynamic):
    """The kernel serves a compiled forward of whole sequences; padding and windows still get their masks."""
    from torch._dynamo.testing import AotEagerAndRecordGraphs

    options = {"sliding_window": 8} if kind != "Llama" else {}
    network, ids, padding = model(2, kind, **options), tokens(), torch.ones(2, 20, dtype=torch.long)
    padding[1, :7] = 0
    if kind == "GptOss":
        network = network.float()  # in bf16 the router's near ties go one way or the other
    backend = AotEagerAndRecordGraphs()
    torch._dynamo.reset()
    compiled = torch.compile(network, backend=backend, fullgraph=True, dynamic=dynamic)

    def logits(called, mask, *lengths):
        with torch.no_grad():
            return [called(ids[:, :n], attention_mask=None if mask is None else mask[:, :n]).logits for n in lengths]

    for mask in (None, padding):
        network.set_attn_implementation("eager")
        expected = logits(network, mask, 20, 13)
        network.set_attn_implementation("fa4_cute")
        seen = len(backend.graphs)
        for ours, theirs in zip(logits(compiled, mask, 20, 13), expected, strict=True):
            wanted = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
            wanted = wanted[:, : theirs.shape[1]]
            torch.testing.assert_close(ours[wanted], theirs[wanted], rtol=0, atol=3e-2)
        targets = [str(node.target) for graph in backend.graphs[seen:] for node in graph.graph.nodes]
        assert any("fa4.mha" in target for target in targets) == (kind == "Llama" and mask is None)


@pytest.mark.parametrize("heads_kv", [4, 2])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_batches_fall_back(heads_kv, side, reasons):
    ids, mask = tokens(), torch.ones(2, 20, dtype=torch.long)
    padding = slice(0, 7) if side == "left" else slice(13, 20)
    mask[1, padding] = 0
    ids[1, padding] = 0
    assert_same_logits(model(heads_kv), ids, mask)
    assert any("attn_mask" in reason for reason in reasons())


def test_a_decoders_preset_has_what_generation_asks_for(monkeypatch):
    """Where nothing may be compiled, a kernel that is missing would end the generation at its second token."""
    from fa4_cute.presets import PRESETS

    asked, mha = set(), api.mha

    def record(*args, is_causal, **options):
        asked.add("causal" if is_causal else "none")
        return mha(*args, is_causal=is_causal, **options)

    monkeypatch.setattr(api, "mha", record)
    network = model(2)
    network.set_attn_implementation("fa4_cute")
    with torch.no_grad():
        network.generate(tokens(), max_new_tokens=3, do_sample=False)
    assert asked == {"causal", "none"}
    for name in ("gpt2", "llama2-7b", "llama3-8b", "llama3.2-1b", "mixtral-8x7b", "qwen3-8b"):
        assert asked <= set(PRESETS[name].masks)


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_generation_with_a_cache(cache):
    network = model(2).float().to(torch.bfloat16)
    generated = {}
    for name in ("sdpa", "fa4_cute"):
        network.set_attn_implementation(name)
        options = {"max_new_tokens": 6, "do_sample": False, "disable_compile": True, "output_logits": True}
        options |= {"cache_implementation": "static"} if cache == "static" else {}
        result = network.generate(tokens(), return_dict_in_generate=True, **options)
        generated[name] = torch.stack(result.logits).float()
    first, second = generated["sdpa"][0], generated["fa4_cute"][0]
    assert generated["sdpa"].shape == generated["fa4_cute"].shape == (6, 2, 50)
    assert (first - second).abs().max() <= first.abs().max() * 2**-6


def test_sliding_window(reasons):
    assert_same_logits(model(2, "Mistral", sliding_window=8), tokens())
    assert any("attn_mask" in reason for reason in reasons())


def test_soft_cap_falls_back(reasons):
    network = model(2, "Gemma2", sliding_window=8, attn_logit_softcapping=2.0, query_pre_attn_scalar=16)
    assert_same_logits(network, tokens())
    assert any("softcap" in reason for reason in reasons())


@pytest.mark.parametrize("softcap", [None, 1.5])
def test_sinks(softcap, reasons):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, h, 9, 64, generator=generator) for h in (4, 2, 2))
    sinks = torch.tensor([-3.0, 0.0, 5.0, 1.0])
    out, _ = attention(torch.nn.Module(), q, k, v, None, s_aux=sinks, softcap=softcap)
    logits = q.double() @ k.double().repeat_interleave(2, 1).mT / 8
    logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    weights = torch.exp(logits).tril()
    weights = weights / (weights.sum(-1, keepdim=True) + torch.exp(sinks.double())[:, None, None])
    expected = (weights @ v.double().repeat_interleave(2, 1)).transpose(1, 2)
    assert (out.double() - expected).abs().max() < 1e-5
    assert any("sinks" in reason for reason in reasons())


def test_window_without_a_mask():
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 4, 9, 64, generator=generator) for _ in range(3))
    out, _ = attention(torch.nn.Module(), q, k, v, None, sliding_window=3)
    seen = torch.ones(9, 9).tril().triu(-2).bool()
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen)
    torch.testing.assert_close(out, expected.transpose(1, 2))


@pytest.mark.parametrize("cache", ["dynamic", "static"])
def test_query_rows_dropped_behind_the_mask(cache):
    """Gemma 4's last layers compute the rows of the wanted logits alone: without a mask, causal would mean others."""
    layers = {"layer_types": ["sliding_attention", "full_attention"] * 2, "num_hidden_layers": 4}
    shared = {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 50}
    torch.manual_seed(0)
    sizes = {**SIZES, "hidden_size": 64, "num_attention_heads": 2, "num_key_value_heads": 1, "global_head_dim": 64}
    network = transformers.Gemma4ForCausalLM(transformers.Gemma4TextConfig(**{**sizes, **layers, **shared})).eval()
    results = {}
    for name in ("eager", "fa4_cute"):
        network.set_attn_implementation(name)
        options = {"max_new_tokens": 3, "do_sample": False, "disable_compile": True, "output_logits": True}
        options |= {"cache_implementation": "static"} if cache == "static" else {}
        with torch.no_grad():
            generated = network.generate(tokens(), return_dict_in_generate=True, **options).logits
            results[name] = torch.stack([*generated, *network(tokens(), logits_to_keep=3).logits.unbind(1)])
    torch.testing.assert_close(results["fa4_cute"], results["eager"], rtol=0, atol=1e-4)


def test_sinks_with_a_position_bias():
    """Both count: transformers' own "sdpa" function would drop the sinks. Here each row has its own (Inkling 2)."""
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, h, 9, 64, generator=generator) for h in (4, 2, 2))
    bias, sinks = (torch.randn(1, 4, 9, n, generator=generator) for n in (9, 1))
    out, _ = attention(torch.nn.Module(), q, k, v, None, position_bias=bias, sinks=sinks)
    logits = q.double() @ k.double().repeat_interleave(2, 1).mT / 8 + bias
    weights = torch.exp(logits).tril()
    weights = weights / (weights.sum(-1, keepdim=True) + torch.exp(sinks.double()))
    expected = (weights @ v.double().repeat_interleave(2, 1)).transpose(1, 2)
    assert (out.double() - expected).abs().max() < 1e-5
    with pytest.raises(NotImplementedError, match="sinks: not with a paged cache"):
        attention(torch.nn.Module(), q, k, v, None, sinks=sinks, cache=object())


def test_selected_keys(reasons):
    """DeepSeek V3.2 hands over the indices of the keys that each query may see, without a mask of them."""
    ranks = {"q_lora_rank": 32, "kv_lora_rank": 32, "qk_rope_head_dim": 16, "qk_nope_head_dim": 48, "v_head_dim": 64}
    experts = {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1, "topk_group": 1}
    indexer = {"index_topk": 4, "index_head_dim": 32, "index_n_heads": 2, "first_k_dense_replace": 2}
    sizes = {name: size for name, size in SIZES.items() if name != "head_dim"}
    torch.manual_seed(0)
    config = transformers.DeepseekV32Config(**sizes, num_key_value_heads=4, **ranks, **experts, **indexer)
    network = transformers.DeepseekV32ForCausalLM(config).eval()
    logits = {}
    for name in ("eager", "fa4_cute"):
        network.set_attn_implementation(name)
        with torch.no_grad():
            logits[name] = network(tokens()).logits
    torch.testing.assert_close(logits["fa4_cute"], logits["eager"], rtol=0, atol=1e-4)
    assert any("indices" in reason for reason in reasons())


def test_selected_blocks_of_keys_are_refused():
    q, k, v = (torch.zeros(1, 2, 9, 64) for _ in range(3))
    with pytest.raises(NotImplementedError, match="block_indices"):
        attention(torch.nn.Module(), q, k, v, None, block_indices=torch.zeros(1, 2, 9, 1, dtype=torch.long))


def test_models_whose_layers_do_not_say_that_they_are_causal():
    """BigBird-Pegasus runs with "eager" alone in transformers, and its decoder's layers rely on a mask."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 128, "decoder_layers": 2, "decoder_attention_heads": 2, "decoder_ffn_dim": 64}
    config = transformers.BigBirdPegasusConfig(**sizes, pad_token_id=0, max_position_embeddings=64, dropout=0.0)
    network = transformers.BigBirdPegasusForCausalLM(config).eval()
    logits = {}
    for name in ("eager", "fa4_cute"):
        network.set_attn_implementation(name)
        with torch.no_grad():
            logits[name] = network(tokens()).logits
    torch.testing.assert_close(logits["fa4_cute"], logits["eager"], rtol=0, atol=1e-4)


@pytest.mark.parametrize("kind", ["BigBirdPegasus", "PegasusX"])
def test_models_that_need_the_masks_of_eager(kind):
    """Their encoders add masks to the logits themselves, and a decoder's layers may not say that they are causal."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "d_model": 64, "pad_token_id": 0, "decoder_start_token_id": 1, "dropout": 0.0}
    for side in ("encoder", "decoder"):
        sizes |= {f"{side}_layers": 2, f"{side}_attention_heads": 2, f"{side}_ffn_dim": 64}
    config = getattr(transformers, f"{kind}Config")(**sizes, max_position_embeddings=64)
    network = getattr(transformers, f"{kind}ForConditionalGeneration")(config).eval()
    padding = torch.ones(2, 20, dtype=torch.long)
    padding[1, 13:] = 0
    for mask in (None, padding):
        logits = {}
        for name in ("eager", "fa4_cute"):
            network.set_attn_implementation(name)
            with torch.no_grad():
                logits[name] = network(tokens(), attention_mask=mask, decoder_input_ids=tokens(7)).logits
        torch.testing.assert_close(logits["fa4_cute"], logits["eager"], rtol=0, atol=1e-4)
