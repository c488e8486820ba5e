"""Tiny models of transformers' real classes, with random weights.

Heads keep the width of the class's defaults, so that the class rotates as it does in checkpoints;
all other sizes are small.
"""

import importlib
import inspect
import re

import torch
import transformers

# Sizes that concern no rotation, by the end of their name.
SMALL = [
    (r"(^|_)vocab_size(_per_layer_input)?$", 96),
    (r"(^|_)num_(hidden_)?layers$|^n_layer$|^num_layers$", 6),
    (r"(intermediate_size|ffn_dim|ffn_hidden_size|n_inner)(_mlp)?$", 32),
    (r"^(q|kv|o)_lora_rank$|lora_rank$|laurel_rank$|hidden_size_per_layer_input$", 32),
    (r"^(num|n)_(local_|routed_)?experts$|^moe_num_experts$|^num_experts_.*global$", 4),
    (r"experts_per_tok|moe_topk|moe_k$|^top_k_experts$", 2),
    (r"^n_group$|^topk_group$|^num_expert_group$", 1),
    (r"shared_experts$", 1),
    (r"_token_ids?$", 0),
]
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads")

DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
# Values that the rules above leave large, or set wrongly, by type.
OWN = {
    "bamba": {"attn_layer_indices": [1, 3]},
    "chameleon": {"vocabulary_map": {"<image>": 95}},
    "cohere_compass_text": {"rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 10000.0}}},
    "dbrx": {"d_model": 256, "n_heads": 4, "attn_config": {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 500000.0},
             "ffn_config": {"ffn_hidden_size": 32}},
    "deepseek_ocr2_text": {"num_experts_per_tok": 2, "mlp_layer_types": ["dense"] * 6},
    "deepseek_v2": {"num_experts_per_tok": 2},
    "diffusion_gemma_text": {"num_experts": 4, "top_k_experts": 2, "moe_intermediate_size": 32},
    "t5_gemma_module": {"dropout_rate": 0.0, "is_decoder": True, "cross_attention_hidden_size": 128},
    "t5gemma2_decoder": {"dropout_rate": 0.0},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "gemma3n_text": {"num_kv_shared_layers": 2, "activation_sparsity_pattern": [0.0] * 6, "layer_types": [
        "sliding_attention", "full_attention"] * 3},
    "glm4v_text": {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "glm4v_moe_text": {"head_dim": 128, "rope_parameters": {
        **DEFAULT, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "glm_image_text": {"rope_parameters": {**DEFAULT, "partial_rotary_factor": 0.5, "mrope_section": [8, 12, 12]}},
    "granitemoehybrid": {"layer_types": ["linear_attention", "full_attention"] * 3, "position_embedding_type": "rope"},
    "hunyuan_v1_dense": {"head_dim": 64},
    "hunyuan_v1_moe": {"head_dim": 64},
    "gradium_phonon_tts": {"flow_head_config": {"condition_dim": 256}},
    "hunyuan_vl_text": {"head_dim": 64, "rope_parameters": {**DEFAULT, "mrope_section": [8, 8, 8, 8]}},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 3},
    "ministral": {"head_dim": 64},
    "longcat_flash": {"num_layers": 3},
    "moonshine_streaming": {"num_key_value_heads": 4},
    "pocket_tts": {"flow_head_config": {"condition_dim": 256}},
    "qwen2_5_omni_talker": {"embedding_size": 512},
    "qwen3_omni_moe_text": {"hidden_size": 512},
    "qwen3_omni_moe_talker_text": {"shared_expert_intermediate_size": 32},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256, "indexer_budget": 64,
                       "indexer_compress_ratio": 4},
    "step3p5": {"sliding_window": 32},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"] * 3},
    "nemotron": {"num_key_value_heads": 2},
}


def tiny(cls, **own):
    """Returns a small configuration of a class."""
    default = cls()
    values = {}
    known = default.to_dict()  # attributes of heterogeneous layers cannot be read
    for key, value in known.items():
        if type(value) is not int:
            continue
        for pattern, small in SMALL:
            if re.search(pattern, key):
                values[key] = min(value, small)
                break
    heads = next((key for key in HEADS if type(known.get(key)) is int), None)
    if heads:
        count = known[heads]
        values[heads] = min(count, 4)
        for key in KV_HEADS:
            groups = known.get(key)
            if type(groups) is int:
                values[key] = values[heads] if groups == count else min(groups, 2)
        width = next(key for key in ("hidden_size", "n_embd", "d_model") if key in known)
        if not known.get("head_dim") or known[width] == count * known["head_dim"]:
            values[width] = known[width] // count * values[heads]
        else:
            values[width] = min(known[width], 128)
    values.update(OWN.get(cls.model_type, {}))
    values.update(own)
    return cls(**{key: value for key, value in values.items() if key in known or key in own or key in OWN.get(cls.model_type, {})})


# Models of a part that no AutoModel has.
CLASSES = {
    "dia_decoder": "DiaDecoder",
    "moonshine": "MoonshineDecoder",
    "moonshine_streaming": "MoonshineStreamingDecoder",
    "t5_gemma_module": "T5GemmaDecoder",
    "t5gemma2_decoder": "T5Gemma2Decoder",
    "voxtral_realtime_text": "VoxtralRealtimeTextModel",
}


def model_class(config):
    """Returns the class of the model without a language-modeling head, or else the class with such
    a head."""
    kind = type(config)
    code = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    if kind.model_type in CLASSES:
        return getattr(code, CLASSES[kind.model_type])
    for auto in (transformers.AutoModel, transformers.AutoModelForCausalLM):
        if kind in auto._model_mapping:
            found = auto._model_mapping[kind]
            return found[0] if isinstance(found, tuple) else found
    found = [value for value in vars(code).values()
             if inspect.isclass(value) and issubclass(value, transformers.PreTrainedModel)
             and value.__module__ == code.__name__ and "forward" in vars(value)
             and inspect.signature(value.__init__).parameters["config"].annotation in (kind, kind.__name__)]
    if not found:
        raise LookupError(f"no model takes a {kind.__name__}")
    return found[0]


def model(config, dtype, seed=0):
    """Returns a model with random weights. The weights of norms are random, too: with weights of 1 a norm
    after the rotation would commute with the rotation."""
    torch.manual_seed(seed)
    # Not model.to(dtype), which would round inv_freq.
    made = model_class(config)._from_config(config, dtype=dtype).eval()
    for module in made.modules():
        if hasattr(module, "embed_positions"):
            # GPT-J's and CodeGen's table. _from_config() computes its frequencies in `dtype`;
            # from_pretrained() computes them again, in float32.
            made._init_weights(module)
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, weight.shape[-1] ** -0.5)
            elif "norm" in name.lower() and name.endswith("weight"):
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(0, 0.1)
    return made
