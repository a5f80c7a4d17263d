"""Language models of `transformers`: encoders, decoders, mixtures of experts, state spaces, encoder-decoders."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from conformance.models.entry import Entry, Make, Subject, disable_dropout, loss_of

__all__ = ["ENTRIES", "hf_entry", "resolved"]

VOCABULARY, LENGTH = 99, 12

#: Options of most configurations. A configuration ignores those that it does not use.
SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
KV2 = {"num_key_value_heads": 2}
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64,
    "decoder_start_token_id": 1,
    "forced_eos_token_id": None,
}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0}


def tokens(count: int = 2, length: int = LENGTH) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (count, length))


def padded() -> dict[str, torch.Tensor]:
    """Return token ids and an attention mask; the second row ends with padding."""
    ids, mask = tokens(), torch.ones(2, LENGTH, dtype=torch.long)
    mask[1, -3:] = 0
    return {"input_ids": ids * mask, "attention_mask": mask}


def _with_labels(batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {**batch, "labels": batch["input_ids"].masked_fill(batch["attention_mask"] == 0, -100)}


#: Kind of model head -> a function that creates its batch.
BATCHES = {
    "tokens": lambda: _with_labels(padded()),
    "unpadded": lambda: {"input_ids": (ids := tokens()), "labels": ids},
    "classes": lambda: {**padded(), "labels": torch.tensor([0, 1])},
    "span": lambda: {**padded(), "start_positions": torch.tensor([1, 2]), "end_positions": torch.tensor([3, 5])},
    "plain": padded,
    "sequence": lambda: {**padded(), "labels": tokens(2, 7)},
}


def _forward(model: nn.Module, batch: Any) -> Any:
    return model(**batch)


def _loss(model: nn.Module, batch: Any) -> torch.Tensor:
    return loss_of(model(**batch))


def _generate(model: Any, batch: Any) -> torch.Tensor:
    tokens: torch.Tensor = model.generate(batch["input_ids"][:1], max_new_tokens=6, do_sample=False, use_cache=True)
    return tokens


def resolved(options: dict[str, Any]) -> dict[str, Any]:
    """Call the functions among the options, which create inner configurations. They are functions to avoid an early import."""
    return {name: value() if callable(value) else value for name, value in options.items()}


def _subject_factory(config: str, model: str, kind: Any, options: dict[str, Any], generates: bool) -> Make:
    def make() -> Subject:
        import transformers

        network = getattr(transformers, model)(getattr(transformers, config)(**resolved(options)))
        batch = (BATCHES[kind] if isinstance(kind, str) else kind)()
        return Subject(disable_dropout(network), batch, _forward, _loss, _generate if generates else None)

    return make


def hf_entry(name: str, config: str, model: str, kind: Any, options: dict[str, Any], *, generates: bool = False) -> Entry:
    """Return an entry for a model of `transformers`.

    Args:
        config: the name of its configuration class.
        model: the name of its model class.
        kind: a key of `BATCHES`, or a function that creates the batch.
        options: options of the configuration.
        generates: add the column "generate".
    """
    columns = ("eval", "inference_mode", "train", *(("generate",) if generates else ()))
    return Entry(name, _subject_factory(config, model, kind, options, generates), ("transformers",), columns=columns)


def _encoder(name: str, config: str, model: str, kind: str = "tokens", **options: Any) -> Entry:
    return hf_entry(name, config, model, kind, {**SMALL, **options})


def _decoder(name: str, config: str, model: str, kind: str = "tokens", **options: Any) -> Entry:
    return hf_entry(name, config, model, kind, {**SMALL, **options}, generates=True)


ENCODERS = (
    _encoder("bert", "BertConfig", "BertForMaskedLM"),
    _encoder("bert, eager attention", "BertConfig", "BertForQuestionAnswering", "span", attn_implementation="eager"),
    _encoder("roberta", "RobertaConfig", "RobertaForSequenceClassification", "classes"),
    _encoder("xlm-roberta", "XLMRobertaConfig", "XLMRobertaForTokenClassification", "plain"),
    _encoder(
        "deberta-v2",
        "DebertaV2Config",
        "DebertaV2ForMaskedLM",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
        position_buckets=8,
    ),
    _encoder(
        "deberta",
        "DebertaConfig",
        "DebertaForSequenceClassification",
        "classes",
        relative_attention=True,
        pos_att_type=["p2c", "c2p"],
    ),
    _encoder("electra", "ElectraConfig", "ElectraForPreTraining", "plain", embedding_size=16),
    _encoder("albert", "AlbertConfig", "AlbertForMaskedLM", embedding_size=16),
    hf_entry(
        "distilbert",
        "DistilBertConfig",
        "DistilBertForSequenceClassification",
        "classes",
        {"vocab_size": VOCABULARY, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "max_position_embeddings": 64},
    ),
    _encoder("longformer", "LongformerConfig", "LongformerForMaskedLM", attention_window=4),
    _encoder("bigbird, full", "BigBirdConfig", "BigBirdForMaskedLM", attention_type="original_full"),
    _encoder("mpnet", "MPNetConfig", "MPNetForMaskedLM"),
    _encoder("camembert", "CamembertConfig", "CamembertForMaskedLM"),
    _encoder("layoutlm", "LayoutLMConfig", "LayoutLMForMaskedLM"),
    hf_entry(
        "funnel",
        "FunnelConfig",
        "FunnelForMaskedLM",
        "tokens",
        {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 64},
    ),
    hf_entry(
        "xlnet",
        "XLNetConfig",
        "XLNetForSequenceClassification",
        "classes",
        {"vocab_size": VOCABULARY, "d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64},
    ),
    _encoder("convbert", "ConvBertConfig", "ConvBertForMaskedLM", embedding_size=16),
    _encoder("squeezebert", "SqueezeBertConfig", "SqueezeBertForMaskedLM", embedding_size=32),
    _encoder("nystromformer", "NystromformerConfig", "NystromformerForMaskedLM", segment_means_seq_len=12, num_landmarks=12),
    hf_entry("fnet", "FNetConfig", "FNetForMaskedLM", "unpadded", SMALL),
    _encoder("yoso", "YosoConfig", "YosoForMaskedLM", use_expectation=True),
    _encoder("ibert", "IBertConfig", "IBertForMaskedLM"),
    _encoder("rembert", "RemBertConfig", "RemBertForMaskedLM", input_embedding_size=16, output_embedding_size=16),
    _encoder("roformer", "RoFormerConfig", "RoFormerForMaskedLM", embedding_size=32),
    _encoder(
        "mobilebert", "MobileBertConfig", "MobileBertForMaskedLM", embedding_size=32, true_hidden_size=32, intra_bottleneck_size=32
    ),
    _encoder("modernbert", "ModernBertConfig", "ModernBertForMaskedLM", reference_compile=False, cls_token_id=1, sep_token_id=2),
    _encoder(
        "canine",
        "CanineConfig",
        "CanineForSequenceClassification",
        "classes",
        num_hash_buckets=64,
        local_transformer_stride=4,
        downsampling_rate=4,
    ),
)

DECODERS = (
    hf_entry("gpt2", "GPT2Config", "GPT2LMHeadModel", "tokens", {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4}, generates=True),
    _decoder("llama", "LlamaConfig", "LlamaForCausalLM", **KV2),
    _decoder("llama, eager attention", "LlamaConfig", "LlamaForCausalLM", **KV2, attn_implementation="eager"),
    _decoder("mistral", "MistralConfig", "MistralForCausalLM", **KV2, sliding_window=4),
    _decoder("qwen2", "Qwen2Config", "Qwen2ForCausalLM", **KV2),
    _decoder("qwen3", "Qwen3Config", "Qwen3ForCausalLM", **KV2, head_dim=8),
    _decoder("gemma", "GemmaConfig", "GemmaForCausalLM", **KV2, head_dim=8),
    _decoder("gemma2", "Gemma2Config", "Gemma2ForCausalLM", **KV2, head_dim=8, sliding_window=4),
    _decoder("gemma3", "Gemma3TextConfig", "Gemma3ForCausalLM", **KV2, head_dim=8, sliding_window=4),
    _decoder("phi", "PhiConfig", "PhiForCausalLM"),
    _decoder("phi3", "Phi3Config", "Phi3ForCausalLM", **KV2),
    _decoder("falcon", "FalconConfig", "FalconForCausalLM"),
    _decoder("falcon, alibi", "FalconConfig", "FalconForCausalLM", alibi=True, new_decoder_architecture=False),
    _decoder("opt", "OPTConfig", "OPTForCausalLM", ffn_dim=64, word_embed_proj_dim=32),
    hf_entry("bloom", "BloomConfig", "BloomForCausalLM", "tokens", {**SMALL, "n_layer": 2, "n_head": 4}, generates=True),
    _decoder("gpt-neox", "GPTNeoXConfig", "GPTNeoXForCausalLM"),
    _decoder(
        "gpt-neo",
        "GPTNeoConfig",
        "GPTNeoForCausalLM",
        num_layers=2,
        num_heads=4,
        attention_types=[[["global", "local"], 1]],
        window_size=4,
    ),
    hf_entry(
        "gpt-j",
        "GPTJConfig",
        "GPTJForCausalLM",
        "tokens",
        {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
        generates=True,
    ),
    hf_entry(
        "codegen",
        "CodeGenConfig",
        "CodeGenForCausalLM",
        "tokens",
        {**SMALL, "n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64},
        generates=True,
    ),
    hf_entry(
        "ctrl",
        "CTRLConfig",
        "CTRLLMHeadModel",
        "tokens",
        {**SMALL, "n_embd": 32, "dff": 64, "n_layer": 2, "n_head": 4, "n_positions": 64},
        generates=True,
    ),
    hf_entry(
        "mpt",
        "MptConfig",
        "MptForCausalLM",
        "tokens",
        {**SMALL, "d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 64},
        generates=True,
    ),
    _decoder("stablelm", "StableLmConfig", "StableLmForCausalLM", **KV2),
    _decoder("olmo2", "Olmo2Config", "Olmo2ForCausalLM", **KV2),
    _decoder("cohere", "CohereConfig", "CohereForCausalLM", **KV2),
    _decoder("granite", "GraniteConfig", "GraniteForCausalLM", **KV2),
    _decoder("starcoder2", "Starcoder2Config", "Starcoder2ForCausalLM", **KV2),
    _decoder("nemotron", "NemotronConfig", "NemotronForCausalLM", **KV2),
    _decoder("glm4", "Glm4Config", "Glm4ForCausalLM", **KV2, head_dim=8),
    _decoder("biogpt", "BioGptConfig", "BioGptForCausalLM"),
    _decoder("smollm3", "SmolLM3Config", "SmolLM3ForCausalLM", **KV2),
)

EXPERTS = (
    _decoder("mixtral", "MixtralConfig", "MixtralForCausalLM", **KV2, num_local_experts=4, output_router_logits=True),
    _decoder(
        "qwen2-moe",
        "Qwen2MoeConfig",
        "Qwen2MoeForCausalLM",
        **KV2,
        num_experts=4,
        moe_intermediate_size=16,
        shared_expert_intermediate_size=32,
    ),
    _decoder(
        "qwen3-moe",
        "Qwen3MoeConfig",
        "Qwen3MoeForCausalLM",
        **KV2,
        num_experts=4,
        num_experts_per_tok=2,
        moe_intermediate_size=16,
        head_dim=8,
    ),
    _decoder(
        "deepseek-v3",
        "DeepseekV3Config",
        "DeepseekV3ForCausalLM",
        num_key_value_heads=4,
        n_routed_experts=4,
        num_experts_per_tok=2,
        n_group=2,
        topk_group=1,
        moe_intermediate_size=16,
        q_lora_rank=8,
        kv_lora_rank=8,
        qk_rope_head_dim=4,
        qk_nope_head_dim=4,
        v_head_dim=8,
        first_k_dense_replace=1,
    ),
    # In training it chooses experts at random, and random numbers may differ from eager's.
    replace(
        _decoder("phimoe", "PhimoeConfig", "PhimoeForCausalLM", **KV2, num_local_experts=4),
        columns=("eval", "inference_mode", "generate"),
    ),
    _decoder(
        "gpt-oss",
        "GptOssConfig",
        "GptOssForCausalLM",
        **KV2,
        num_local_experts=4,
        num_experts_per_tok=2,
        head_dim=8,
        sliding_window=4,
    ),
    _decoder("olmoe", "OlmoeConfig", "OlmoeForCausalLM", **KV2, num_experts=4, num_experts_per_tok=2),
    hf_entry(
        "switch transformers",
        "SwitchTransformersConfig",
        "SwitchTransformersForConditionalGeneration",
        "sequence",
        {
            **SMALL,
            **T5,
            "num_experts": 4,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
            "num_decoder_layers": 2,
            "expert_capacity": 8,
        },
        generates=True,
    ),
)

STATE_SPACES = (
    hf_entry("mamba", "MambaConfig", "MambaForCausalLM", "unpadded", {**SMALL, "state_size": 4}, generates=True),
    hf_entry(
        "mamba2",
        "Mamba2Config",
        "Mamba2ForCausalLM",
        "unpadded",
        {**SMALL, "state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4},
        generates=True,
    ),
    hf_entry(
        "rwkv",
        "RwkvConfig",
        "RwkvForCausalLM",
        "unpadded",
        {**SMALL, "attention_hidden_size": 32, "context_length": 32},
        generates=True,
    ),
    hf_entry(
        "jamba",
        "JambaConfig",
        "JambaForCausalLM",
        "unpadded",
        {
            **SMALL,
            **KV2,
            "num_experts": 4,
            "mamba_d_state": 4,
            "attn_layer_period": 2,
            "attn_layer_offset": 1,
            "expert_layer_period": 2,
            "expert_layer_offset": 1,
            "use_mamba_kernels": False,
        },
        generates=True,
    ),
    hf_entry(
        "recurrent-gemma",
        "RecurrentGemmaConfig",
        "RecurrentGemmaForCausalLM",
        "unpadded",
        {**SMALL, **KV2, "head_dim": 8, "lru_width": 32, "attention_window_size": 8, "num_hidden_layers": 3},
        generates=True,
    ),
    hf_entry(
        "qwen3-next",
        "Qwen3NextConfig",
        "Qwen3NextForCausalLM",
        "unpadded",
        {
            **SMALL,
            **KV2,
            "head_dim": 8,
            "num_experts": 4,
            "num_experts_per_tok": 2,
            "moe_intermediate_size": 16,
            "shared_expert_intermediate_size": 16,
            "linear_num_key_heads": 2,
            "linear_num_value_heads": 4,
            "linear_key_head_dim": 8,
            "linear_value_head_dim": 8,
            "layer_types": ["linear_attention", "full_attention"],
        },
        generates=True,
    ),
)

SEQUENCE_TO_SEQUENCE = (
    hf_entry("t5", "T5Config", "T5ForConditionalGeneration", "sequence", {**SMALL, **T5}, generates=True),
    hf_entry("mt5 (gated)", "MT5Config", "MT5ForConditionalGeneration", "sequence", {**SMALL, **T5}, generates=True),
    hf_entry("bart", "BartConfig", "BartForConditionalGeneration", "sequence", {**SMALL, **BART}, generates=True),
    hf_entry("mbart", "MBartConfig", "MBartForConditionalGeneration", "sequence", {**SMALL, **BART}, generates=True),
    hf_entry("marian", "MarianConfig", "MarianMTModel", "sequence", {**SMALL, **BART}, generates=True),
    hf_entry("pegasus", "PegasusConfig", "PegasusForConditionalGeneration", "sequence", {**SMALL, **BART}, generates=True),
    hf_entry("blenderbot", "BlenderbotConfig", "BlenderbotForConditionalGeneration", "sequence", {**SMALL, **BART}, generates=True),
    hf_entry(
        "led",
        "LEDConfig",
        "LEDForConditionalGeneration",
        "sequence",
        {**SMALL, **BART, "attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 64},
        generates=True,
    ),
    hf_entry(
        "prophetnet",
        "ProphetNetConfig",
        "ProphetNetForConditionalGeneration",
        "sequence",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": 32,
            "pad_token_id": 0,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
            "num_encoder_attention_heads": 4,
            "num_decoder_attention_heads": 4,
            "encoder_ffn_dim": 64,
            "decoder_ffn_dim": 64,
            "ngram": 2,
            "decoder_start_token_id": 1,
        },
        generates=True,
    ),
    hf_entry("m2m-100", "M2M100Config", "M2M100ForConditionalGeneration", "sequence", {**SMALL, **BART}, generates=True),
)

ENTRIES = (*ENCODERS, *DECODERS, *EXPERTS, *STATE_SPACES, *SEQUENCE_TO_SEQUENCE)
