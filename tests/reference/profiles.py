"""Reads a model's config.json like each project (posenc.v1.Profile).

Covers the keys that the vectors use. If projects disagree, each branch follows
and names the project's own source.
"""

import json

from mpmath import log

from exact import mpf
from scalings import magnitude

HALF, INTERLEAVED = "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"

# transformers rotates interleaved pairs for these types.
_INTERLEAVED = {"gptj", "cohere", "glm", "ernie4_5"}
# Multi-head latent attention: rope on the last qk_rope_head_dim channels.
_LATENT = {"deepseek_v3", "deepseek_v2"}


def read_source(source):
    if "spec" in source:
        spec = source["spec"]
        trained = 0
        for name in ("yarn", "longrope", "llama3"):
            if name in spec:
                trained = int(spec[name]["originalMaxPositionEmbeddings"])
        if "dynamicNtk" in spec:
            trained = int(spec["dynamicNtk"]["maxPositionEmbeddings"])
        return {"spec": spec, "head_dim": 0, "trained_length": trained,
                "assumed_length": trained, "softmax_scale_multiplier": mpf(1)}
    text = source.get("configJson") or PRESETS[source["preset"]]
    return read_config(json.loads(text), source.get("profile", "PROFILE_HF"),
                       source)


def _since(source, release):
    """Returns whether the requested version is that release or later."""
    asked = source.get("profileVersion")
    numbers = [int(part) for part in asked.split(".")] if asked else [9999]
    return numbers >= [int(part) for part in release.split(".")]


def _vllm_amplitude(rope, s, ratio, source):
    """Follows yarn_scaling_rope.py of vLLM, before and since its PR 56446."""
    if not _since(source, "0.30"):
        return magnitude(s, 1) * mpf(rope.get("attn_factor", 1))
    if rope.get("rope_type", rope.get("type")) == "telechat3-yarn":
        return mpf("0.07") * log(s) + 1
    given = rope.get("attention_factor")
    return ratio if given is None else mpf(given)


def _yarn(rope, profile, longest, nested, source):
    """nested: `rope` has the parameters of one layer type. transformers reads
    their `truncate` one level too high."""
    trained = rope.get("original_max_position_embeddings", longest)
    factor = rope.get("factor")
    if factor is None:
        factor = mpf(longest) / trained
    s = mpf(factor)
    fast, slow = rope.get("beta_fast", 32), rope.get("beta_slow", 1)
    if profile == "PROFILE_HF":  # `or` reads 0 as absent
        fast, slow = fast or 32, slow or 1
    truncate = True
    if profile == "PROFILE_VLLM" or (profile == "PROFILE_HF" and not nested):
        truncate = rope.get("truncate", True)
    elif profile == "PROFILE_GPT_OSS":
        truncate = False

    mscale, all_dim = rope.get("mscale"), rope.get("mscale_all_dim")
    plain = magnitude(s, 1)
    ratio = plain
    if mscale and all_dim:
        ratio = magnitude(s, mscale) / magnitude(s, all_dim)
    given = rope.get("attention_factor")
    if profile == "PROFILE_HF":
        amplitude = mpf(given) if given is not None else ratio
    elif profile == "PROFILE_VLLM":
        amplitude = _vllm_amplitude(rope, s, ratio, source)
    elif profile in ("PROFILE_DEEPSEEK", "PROFILE_MLX"):
        amplitude = (magnitude(s, 1 if mscale is None else mscale) /
                     magnitude(s, all_dim or 0))
    else:
        amplitude = plain
    return {"factor": s, "originalMaxPositionEmbeddings": trained,
            "betaFast": fast, "betaSlow": slow, "truncate": truncate,
            "attentionFactor": amplitude}


def _longrope(rope, config, profile, longest):
    trained = (config.get("original_max_position_embeddings") or
               rope.get("original_max_position_embeddings") or longest)
    factor = mpf(longest) / trained
    if profile != "PROFILE_MLX":
        factor = mpf(rope.get("factor") or factor)
    long, short = rope["long_factor"], rope["short_factor"]
    if profile == "PROFILE_MLX":
        short = long  # one table for every length
    out = {"longFactor": long, "shortFactor": short,
           "originalMaxPositionEmbeddings": trained, "factor": factor}
    if rope.get("attention_factor") is not None:
        out["attentionFactor"] = rope["attention_factor"]
    return out


def _vllm_dynamic(rope, s, longest, source):
    """Follows dynamic_ntk_scaling_rope.py of vLLM, before and since its PR
    41277."""
    if not _since(source, "0.22"):  # at every length the factor for s * longest
        return {"ntk": {"factor": s * s - s + 1}}
    trained = rope.get("max_trained_positions", longest)
    if trained == longest:
        return {}
    return {"ntk": {"factor": s * mpf(longest) / trained - (s - 1)}}


def _scaling(rope, config, profile, longest, source):
    parameters = config.get("rope_parameters") or {}
    nested = rope in [v for v in parameters.values() if isinstance(v, dict)]
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "linear":
        return {"linear": {"factor": rope["factor"]}}
    if kind == "dynamic":
        if rope.get("alpha"):  # Hunyuan
            return {"ntk": {"factor": rope["alpha"]}}
        s = mpf(rope["factor"])
        if profile == "PROFILE_VLLM":
            return _vllm_dynamic(rope, s, longest, source)
        return {"dynamicNtk": {"factor": s, "maxPositionEmbeddings": longest}}
    if kind in ("yarn", "telechat3-yarn"):
        return {"yarn": _yarn(rope, profile, longest, nested, source)}
    if kind in ("longrope", "su"):
        return {"longrope": _longrope(rope, config, profile, longest)}
    if kind == "llama3":
        return {"llama3": {
            "factor": rope["factor"],
            "lowFreqFactor": rope["low_freq_factor"],
            "highFreqFactor": rope["high_freq_factor"],
            "originalMaxPositionEmbeddings":
                rope["original_max_position_embeddings"]}}
    return {}


# mlx-lm's classes by what they read of rope_parameters: only rope_theta, all of it, or the keys
# that the old spelling lacks. Other classes do not read it.
_MLX_BASE = {"lfm2", "granitemoehybrid", "exaone_moe", "muse_glimmer"}
_MLX_WHOLE = {"ministral3", "qwen3_5", "mistral4"}
_MLX_REST = {"qwen3"}


def _spelling(config, profile, source):
    """Returns the dict that the reader uses, with its base."""
    old = config.get("rope_scaling") or {}
    new = config.get("rope_parameters") or {}
    family = config.get("model_type", "")
    if profile == "PROFILE_LLAMA_CPP":
        return new or old
    if profile == "PROFILE_HF" and not _since(source, "5"):
        return {k: v for k, v in old.items() if k != "rope_theta"}
    if profile != "PROFILE_MLX":
        return old or new
    if family in _MLX_WHOLE:
        return new
    base = {}
    if family in _MLX_BASE or (family in _MLX_REST and
                               "rope_theta" not in config):
        base = {k: v for k, v in new.items() if k == "rope_theta"}
    rest = (old or new) if family in _MLX_REST else old
    return {**{k: v for k, v in rest.items() if k != "rope_theta"}, **base}


def _rope_dict(config, profile, source):
    """Returns the rope dict of the requested layer; None for a NoPE layer."""
    rope = _spelling(config, profile, source)
    layer = source.get("layerType")
    if "layerIndex" in source and config.get("layer_types"):
        layer = config["layer_types"][source["layerIndex"]]
    if layer is not None and layer in rope:
        rope = rope[layer]
    elif layer == "sliding_attention" and "rope_local_base_freq" in config:
        # Gemma 3: local layers are not scaled.
        rope = {"rope_theta": config["rope_local_base_freq"]}
    return rope


def read_config(config, profile, source):
    if "dim" in config and "n_heads" in config:
        return _mistral_params(config)
    config = {**config, **config.get("text_config", {})}
    family = config.get("model_type", "")
    if config.get("no_rope_layers") and "layerIndex" in source:
        if not config["no_rope_layers"][source["layerIndex"]]:
            out = {"spec": {"nope": True}, "head_dim": 0,
                   "softmax_scale_multiplier": mpf(1)}
            if config.get("attn_temperature_tuning"):  # Llama 4
                out["query_scale"] = {"beta": config["attn_scale"],
                                      "floorScale": config["floor_scale"],
                                      "offset": 1}
            return out
    rope = _rope_dict(config, profile, source)
    longest = config.get("max_position_embeddings", 0)
    heads = config.get("num_attention_heads", config.get("n_head"))
    head_dim = config.get("head_dim") or (
        config.get("hidden_size", config.get("n_embd")) // heads)
    width = head_dim
    spec = {"pairing": INTERLEAVED if family in _INTERLEAVED else HALF}
    if family in _LATENT:
        width = config["qk_rope_head_dim"]
        head_dim = config["qk_nope_head_dim"] + width
        spec = {"pairing": INTERLEAVED, "slice": "ROTARY_SLICE_TRAILING"}
        if profile == "PROFILE_HF":
            spec["outputPairing"] = HALF
    elif "rotary_pct" in config:
        width = int(head_dim * config["rotary_pct"])
    elif "rotary_dim" in config:
        width = config["rotary_dim"]
    else:
        partial = rope.get("partial_rotary_factor",
                           config.get("partial_rotary_factor", 1))
        if profile == "PROFILE_MLX" and family == "glm":  # the whole head
            partial = 1
        width = int(head_dim * partial)
    spec["rotaryDim"] = width
    spec["ropeTheta"] = rope.get("rope_theta") or config.get(
        "rope_theta", config.get("rotary_emb_base", 10000))
    spec.update(_scaling(rope, config, profile, longest, source))
    if "mrope_section" in rope:
        kind = ("INTERLEAVED" if rope.get("mrope_interleaved")
                else "SECTIONED")
        spec["axes"] = {"assignment": "ASSIGNMENT_" + kind,
                        "sections": rope["mrope_section"]}

    multiplier = mpf(1)
    if family in _LATENT and "yarn" in spec:
        if rope.get("mscale_all_dim"):
            multiplier = magnitude(spec["yarn"]["factor"],
                                   rope["mscale_all_dim"]) ** 2
    model = {"spec": spec, "head_dim": head_dim,
             "softmax_scale_multiplier": multiplier,
             "trained_length": rope.get("original_max_position_embeddings") or
             config.get("original_max_position_embeddings") or longest}
    model["assumed_length"] = model["trained_length"]
    if "llama_4_scaling_beta" in rope:
        model["query_scale"] = {
            "beta": rope["llama_4_scaling_beta"],
            "floorScale": rope["original_max_position_embeddings"],
            "offset": 0}
    return model


def _mistral_params(config):
    """Reads params.json: complex pairs of neighbours, as in Mistral's code."""
    width = config.get("head_dim") or config["dim"] // config["n_heads"]
    return {"spec": {"rotaryDim": width, "pairing": INTERLEAVED,
                     "ropeTheta": config.get("rope_theta", 10000)},
            "head_dim": width, "trained_length": 0,
            "softmax_scale_multiplier": mpf(1)}


# The models' published values of the keys that matter.
PRESETS = {
    "llama-3.1-8b": json.dumps({
        "model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32,
        "max_position_embeddings": 131072, "rope_theta": 500000.0,
        "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0,
                         "high_freq_factor": 4.0, "rope_type": "llama3",
                         "original_max_position_embeddings": 8192}}),
    "qwen3-8b-yarn": json.dumps({
        "model_type": "qwen3", "hidden_size": 4096, "num_attention_heads": 32,
        "head_dim": 128, "max_position_embeddings": 131072,
        "rope_theta": 1000000,
        "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                         "original_max_position_embeddings": 32768}}),
    "deepseek-v3": json.dumps({
        "model_type": "deepseek_v3", "hidden_size": 7168,
        "num_attention_heads": 128, "max_position_embeddings": 163840,
        "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128,
        "rope_theta": 10000,
        "rope_scaling": {"beta_fast": 32, "beta_slow": 1, "factor": 40,
                         "original_max_position_embeddings": 4096,
                         "type": "yarn", "mscale": 1.0,
                         "mscale_all_dim": 1.0}}),
    "gpt-oss-20b": json.dumps({
        "model_type": "gpt_oss", "hidden_size": 2880,
        "num_attention_heads": 64, "head_dim": 64,
        "max_position_embeddings": 131072, "rope_theta": 150000,
        "rope_scaling": {"beta_fast": 32.0, "beta_slow": 1.0, "factor": 32.0,
                         "original_max_position_embeddings": 4096,
                         "rope_type": "yarn", "truncate": False}}),
    "ministral-3-8b": json.dumps({
        "model_type": "ministral3", "hidden_size": 4096,
        "num_attention_heads": 32, "head_dim": 128,
        "max_position_embeddings": 262144,
        "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000.0,
                            "factor": 16.0, "beta_fast": 32.0,
                            "beta_slow": 1.0, "mscale": 1.0,
                            "mscale_all_dim": 1.0,
                            "llama_4_scaling_beta": 0.1,
                            "original_max_position_embeddings": 16384}}),
    "llama-2-7b": json.dumps({
        "model_type": "llama", "hidden_size": 4096,
        "num_attention_heads": 32, "max_position_embeddings": 4096}),
    "gpt-j-6b": json.dumps({
        "model_type": "gptj", "n_embd": 4096, "n_head": 16,
        "rotary_dim": 64}),
    "pythia-1.4b": json.dumps({
        "model_type": "gpt_neox", "hidden_size": 2048,
        "num_attention_heads": 16, "max_position_embeddings": 2048,
        "rotary_pct": 0.25, "rotary_emb_base": 10000}),
}
