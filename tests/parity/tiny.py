"""Tiny models of transformers' real classes, with random weights.

The widths of heads stay those of the class's defaults, so that it rotates as it does in checkpoints;
everything else is made small.
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

# What the rules above do not make small, or make wrong.
OWN = {}


def tiny(cls, **own):
    """Returns a small configuration of a class."""
    default = cls()
    values = {}
    for key, value in default.to_dict().items():
        if type(value) is not int:
            continue
        for pattern, small in SMALL:
            if re.search(pattern, key):
                values[key] = min(value, small)
                break
    heads = next((key for key in HEADS if getattr(default, key, None)), None)
    if heads:
        count = getattr(default, heads)
        values[heads] = min(count, 4)
        for key in KV_HEADS:
            groups = getattr(default, key, None)
            if type(groups) is int:
                values[key] = values[heads] if groups == count else min(groups, 2)
        width = next(key for key in ("hidden_size", "n_embd", "d_model") if hasattr(default, key))
        if not getattr(default, "head_dim", None) or getattr(default, width) == count * default.head_dim:
            values[width] = getattr(default, width) // count * values[heads]
        else:
            values[width] = min(getattr(default, width), 128)
    values.update(OWN.get(cls.model_type, {}))
    values.update(own)
    known = default.to_dict()
    return cls(**{key: value for key, value in values.items() if key in known or key in own})


def model_class(config):
    """Returns the class of the model without a head, or else with one."""
    kind = type(config)
    for auto in (transformers.AutoModel, transformers.AutoModelForCausalLM):
        if kind in auto._model_mapping:
            found = auto._model_mapping[kind]
            return found[0] if isinstance(found, tuple) else found
    code = importlib.import_module(kind.__module__.replace(".configuration_", ".modeling_"))
    found = [value for value in vars(code).values()
             if inspect.isclass(value) and issubclass(value, transformers.PreTrainedModel)
             and value.__module__ == code.__name__ and "forward" in vars(value)
             and inspect.signature(value.__init__).parameters["config"].annotation in (kind, kind.__name__)]
    if not found:
        raise LookupError(f"no model takes a {kind.__name__}")
    return found[0]


def model(config, dtype, seed=0):
    """Returns a model with random weights. Those of norms are random, too: with weights of 1 a norm
    behind the rotation would commute with it."""
    torch.manual_seed(seed)
    # Not model.to(dtype), which would round inv_freq.
    made = model_class(config)._from_config(config, dtype=dtype).eval()
    with torch.no_grad():
        for name, weight in made.named_parameters():
            if weight.ndim > 1:
                weight.normal_(0, weight.shape[-1] ** -0.5)
            elif "norm" in name.lower() and name.endswith("weight"):
                weight.uniform_(0.5, 1.5)
            else:
                weight.normal_(0, 0.1)
    return made
