"""Eight architectures by 33 scalings by four spellings."""

import json

# The keys of a published configuration of each architecture, without rope.
ARCHITECTURES = {
    "llama": dict(hidden_size=4096, num_attention_heads=32, num_hidden_layers=4,
                  num_key_value_heads=8, max_position_embeddings=131072),
    "qwen3": dict(hidden_size=2560, num_attention_heads=32, num_hidden_layers=4,
                  num_key_value_heads=8, head_dim=128,
                  max_position_embeddings=40960),
    "gemma3_text": dict(hidden_size=2560, num_attention_heads=8,
                        num_key_value_heads=4, num_hidden_layers=6, head_dim=256,
                        max_position_embeddings=131072),
    "deepseek_v3": dict(hidden_size=7168, num_attention_heads=128,
                        num_key_value_heads=128, num_hidden_layers=4,
                        qk_rope_head_dim=64, qk_nope_head_dim=128,
                        max_position_embeddings=163840),
    "phi3": dict(hidden_size=3072, num_attention_heads=32, num_hidden_layers=4,
                 num_key_value_heads=32, max_position_embeddings=131072,
                 original_max_position_embeddings=4096),
    "glm4_moe": dict(hidden_size=4096, num_attention_heads=32, head_dim=128,
                     num_key_value_heads=8, num_hidden_layers=4,
                     max_position_embeddings=131072),
    "gpt_oss": dict(hidden_size=2880, num_attention_heads=64, head_dim=64,
                    num_key_value_heads=8, num_hidden_layers=4,
                    max_position_embeddings=131072),
    "qwen2_vl_text": dict(hidden_size=3584, num_attention_heads=28,
                          num_key_value_heads=4, num_hidden_layers=4,
                          max_position_embeddings=32768),
}
PAIRS = {"llama": 64, "qwen3": 64, "gemma3_text": 128, "deepseek_v3": 32,
         "phi3": 48, "glm4_moe": 32, "gpt_oss": 32, "qwen2_vl_text": 64}


def scalings(pairs):
    yarn = dict(rope_type="yarn", factor=4.0,
                original_max_position_embeddings=4096)
    llama3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                  high_freq_factor=4.0, original_max_position_embeddings=8192)
    longrope = dict(rope_type="longrope",
                    short_factor=[1 + 0.01 * i for i in range(pairs)],
                    long_factor=[1.5 + 0.25 * i for i in range(pairs)],
                    original_max_position_embeddings=4096)
    return {
        "default": dict(rope_type="default"),
        "linear": dict(rope_type="linear", factor=4.0),
        "linear-type": dict(type="linear", factor=4.0),
        "linear-below-1": dict(rope_type="linear", factor=0.5),
        "linear-no-factor": dict(rope_type="linear"),
        "linear-null-factor": dict(rope_type="linear", factor=None),
        "linear-partial": dict(rope_type="linear", factor=2.0,
                               partial_rotary_factor=0.5),
        "dynamic": dict(rope_type="dynamic", factor=2.0),
        "dynamic-alpha": dict(rope_type="dynamic", factor=2.0, alpha=1000.0),
        "dynamic-original": dict(rope_type="dynamic", factor=2.0,
                                 original_max_position_embeddings=2048),
        "ntk": dict(rope_type="ntk", factor=4.0),
        "yarn": yarn,
        "yarn-type": {"type": "yarn", **{key: value for key, value in
                                         yarn.items() if key != "rope_type"}},
        "yarn-no-original": dict(rope_type="yarn", factor=4.0),
        "yarn-null-factor": {**yarn, "factor": None},
        "yarn-attention": {**yarn, "attention_factor": 0.75},
        "yarn-attn": {**yarn, "attn_factor": 0.8782488562869419},
        "yarn-mscale": {**yarn, "mscale": 1.0},
        "yarn-mscale-pair": {**yarn, "mscale": 0.707, "mscale_all_dim": 1.0},
        "yarn-all-dim": {**yarn, "mscale_all_dim": 1.0},
        "yarn-betas": {**yarn, "beta_fast": 64, "beta_slow": 2},
        "yarn-beta-0": {**yarn, "beta_fast": 0, "beta_slow": 0},
        "yarn-whole": {**yarn, "truncate": False},
        "yarn-theta": {**yarn, "rope_theta": 123456.0},
        "longrope": longrope,
        "longrope-su": {**longrope, "rope_type": "su"},
        "longrope-factor": {**longrope, "factor": 16.0},
        "longrope-mscale": {**longrope, "short_mscale": 1.1, "long_mscale": 1.25},
        "longrope-attention": {**longrope, "attention_factor": 1.2},
        "longrope-no-long": {key: value for key, value in longrope.items()
                             if key != "long_factor"},
        "llama3": llama3,
        "llama3-equal": {**llama3, "high_freq_factor": 1.0},
        "proportional": dict(rope_type="proportional",
                             partial_rotary_factor=0.25),
    }


def spellings(dict_, theta):
    yield "scaling", dict(rope_theta=theta, rope_scaling=dict_)
    yield "scaling-no-theta", dict(rope_scaling=dict_)
    yield "parameters", dict(rope_parameters={"rope_theta": theta, **dict_})
    yield "parameters-no-theta", dict(rope_parameters=dict_)


def all_of():
    """Yields (model type, name, values) of each variant."""
    for model_type, values in ARCHITECTURES.items():
        for name, dict_ in scalings(PAIRS[model_type]).items():
            for spelling, rope in spellings(dict_, 500000.0):
                # A copy through JSON: no two variants share a dict.
                yield model_type, f"{name} {spelling}", json.loads(json.dumps(
                    {"model_type": model_type, **values, **rope}))
