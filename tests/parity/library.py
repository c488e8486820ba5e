"""Asks transformers for the rotation of a configuration, given as a dict.

It builds a rotary module from the configuration like the model's own class,
without the rest of the model; the answer is the module's frequencies and its
factor on cosines and sines. For composite configurations it uses the part that
rotates.
"""

import contextlib
import copy
import importlib
import inspect
import math
import os
import re
import warnings

os.environ["HF_HUB_OFFLINE"] = "1"
warnings.filterwarnings("ignore")

import torch  # noqa: E402
import transformers  # noqa: E402
from transformers.models.auto.configuration_auto import (  # noqa: E402
    CONFIG_MAPPING, CONFIG_MAPPING_NAMES)

transformers.logging.set_verbosity(60)  # above CRITICAL: silent
torch.set_num_threads(1)

ROTARY = re.compile(r"Rotary|R[oO]P[eE]|Rope")
# Classes of vision towers, which towers.py asks.
TOWER = re.compile(r"Vision(?!Text)|ViT|DINO|Sam\d|EdgeTam|Pixtral|LoFTR|"
                   r"Sapiens|VJEPA|MLCD|[Dd]inov3|Loftr")

# Parts of a composite configuration: the first that rotates is used. Its other
# parts follow in the class's order.
PARTS = ["text_config", "thinker_config", "decoder", "decoder_config",
         "language_config", "llm_config", "vlm_config", "text_encoder",
         "backbone_config", "encoder", "encoder_config"]

# Rotary classes whose constructors are annotated with the configuration of another model, by model type.
CLASSES = {
    "qwen2_5_omni_text": "Qwen2_5OmniRotaryEmbedding",
    "qwen2_5_omni_talker": "Qwen2_5OmniRotaryEmbedding",
    "qwen3_omni_moe_text": "Qwen3OmniMoeThinkerTextRotaryEmbedding",
    "qwen3_omni_moe_talker_text": "Qwen3OmniMoeTalkerRotaryEmbedding",
    "qwen3_omni_moe_talker_code_predictor": "Qwen3OmniMoeRotaryEmbedding",
}


# A type rotates only if these keys have these values.
SWITCHES = {
    "esm": {"position_embedding_type": "rotary"},
    "evolla_sa_prot": {"position_embedding_type": "rotary"},
    "seamless_m4t": {"position_embeddings_type": "rotary"},
    "wav2vec2-bert": {"position_embeddings_type": "rotary"},
    "wav2vec2-conformer": {"position_embeddings_type": "rotary"},
    "granitemoehybrid": {"position_embedding_type": "rope"},
    "zamba2": {"use_mem_rope": True},
    "falcon": {"alibi": False},
}


class NoRotation(Exception):
    """Raised if this program finds no rotation in the type."""


def types():
    return list(CONFIG_MAPPING_NAMES)


def modeling(config_class):
    name = config_class.__module__.replace(".configuration_", ".modeling_")
    with contextlib.suppress(ImportError):
        return importlib.import_module(name)


def modules(config_class):
    """Yields the rotary classes in the modeling module of this configuration class."""
    module = modeling(config_class)
    for name, value in vars(module or object).items():
        if (inspect.isclass(value) and issubclass(value, torch.nn.Module)
                and ROTARY.search(name) and "Attention" not in name):
            yield value


def rotary_class(config):
    """Returns the class that rotates for this (part of a) configuration."""
    # BLT's own configuration has no heads, but its parts have.
    if not hasattr(config, "rope_parameters") or config.model_type == "blt":
        return None
    kind = type(config)
    found = list(modules(kind))
    for cls in found:
        if cls.__name__ == CLASSES.get(config.model_type):
            return cls
    for cls in found:
        parameter = inspect.signature(cls).parameters.get("config")
        if parameter is not None and parameter.annotation in (kind, kind.__name__):
            return cls
    rest = [cls for cls in found
            if bool(TOWER.search(cls.__name__)) == bool(TOWER.search(kind.__name__))
            and "config" in inspect.signature(cls).parameters]
    return rest[0] if len(rest) == 1 else None


def head(config):
    return config.hidden_size // config.num_attention_heads


def geometric(width, theta=10000.0):
    return 1.0 / theta ** (torch.arange(0, width, 2, dtype=torch.int64).float() / width)


def when(key, value, width, theta=lambda config: 10000.0):
    """Returns a function that answers if `key` has `value`, for models that keep frequencies in no module."""
    def ask(config):
        if getattr(config, key) != value:
            raise NoRotation(f"{key} is {getattr(config, key)}")
        return geometric(width(config), theta(config))
    return ask


# Models that compute frequencies in a function, or in a module that takes
# numbers.
FUNCTIONS = {
    "gptj": lambda config: geometric(config.rotary_dim or head(config)),
    "codegen": lambda config: geometric(config.rotary_dim or head(config)),
    "roformer": lambda config: geometric(head(config)),
    "esm": when("position_embedding_type", "rotary", head),
    "evolla_sa_prot": when("position_embedding_type", "rotary", head),
    "wav2vec2-conformer": when("position_embeddings_type", "rotary", head,
                               lambda config: config.rotary_embedding_base),
    "wav2vec2-bert": when("position_embeddings_type", "rotary", head,
                          lambda config: config.rotary_embedding_base),
    "clvp_encoder": lambda config: geometric(
        max(config.projection_dim // (config.num_attention_heads * 2), 32)),
    "seamless_m4t": when(
        "position_embeddings_type", "rotary",
        lambda config: config.hidden_size // config.speech_encoder_attention_heads,
        lambda config: config.rotary_embedding_base),
}


def parts(config):
    """Returns the names of the configurations inside this one, text first."""
    names = [name for name in getattr(config, "sub_configs", None) or {}
             if isinstance(getattr(config, name, None),
                           transformers.PreTrainedConfig)]
    return sorted(names, key=lambda name: PARTS.index(name) if name in PARTS
                  else len(PARTS))


def part_of(config, path=()):
    """Returns (path, part) of the part that rotates, or None."""
    names = parts(config)
    if "text_config" in names:
        found = part_of(config.text_config, path + ("text_config",))
        if found or not TOWER.search(type(config).__name__):
            return found
    cls = rotary_class(config)
    if config.model_type in FUNCTIONS or cls and not TOWER.search(cls.__name__):
        return path, config
    for name in names:
        found = part_of(getattr(config, name), path + (name,))
        if found:
            return found
    return None


def config_of(values):
    """Returns the configuration of a config.json's values."""
    if not isinstance(values, dict):
        raise TypeError(f"a configuration of type {type(values).__name__}")
    cls = CONFIG_MAPPING[values["model_type"]]
    # Files write infinity as a JSON object.
    return cls.from_dict(cls._decode_special_floats(dict(values)))


def rotating(model_types=None):
    """Yields (type, default configuration, path of the part) of the types that
    rotate."""
    for model_type in model_types or types():
        try:
            config = config_of(
                {"model_type": model_type, **SWITCHES.get(model_type, {})})
            found = part_of(config)
        except Exception:  # a type without a default configuration
            continue
        if found:
            yield model_type, config, found[0]


def audio_of(config):
    """Returns the nested configuration of the audio part that rotates, or None."""
    for key in ("thinker_config", "audio_config", "audio_encoder_config",
                "asr_config", "encoder_config"):
        inner = getattr(config, key, None)
        if not isinstance(inner, transformers.PreTrainedConfig):
            continue
        cls = rotary_class(inner)
        if key != "thinker_config" and (
                inner.model_type in FUNCTIONS or
                cls and not TOWER.search(cls.__name__)):
            return inner
        return audio_of(inner)
    return None


# Limits the widths of damaged files, which would need too much memory, to the
# greatest valid width.
WIDEST = 65536
arange = torch.arange


def bounded_arange(*limits, **options):
    if any(abs(limit) > WIDEST for limit in limits):
        raise ValueError(f"{max(limits)} channels")
    return arange(*limits, **options)


torch.arange = bounded_arange


# Functions that pair the channels of a head, by their names in models' files.
PAIRS = re.compile(r"rotate_|.*apply_rotary_emb")


def pairing(config):
    """Returns how the model's own functions pair channels, or None if that is
    unknown."""
    module = modeling(type(config))
    if module is None or hasattr(module, "apply_rotary_pos_emb_interleave"):
        return None  # interleaved or not, by a key
    found = set()
    for name, function in vars(module).items():
        if not (PAIRS.match(name) and inspect.isfunction(function)):
            continue
        text = inspect.getsource(function)
        if "::2" in text or "view_as_complex" in text:
            found.add("interleaved")
        elif "// 2" in text or "chunk" in text:
            found.add("half")
    return found.pop() if len(found) == 1 else None


def length(config):
    """Returns the length that the class was trained with."""
    values = getattr(config, "rope_parameters", None) or {}
    original = values.get("original_max_position_embeddings")
    longest = original or getattr(config, "max_position_embeddings", None)
    return longest if type(longest) is int else None


def answer(frequencies, scale, layer_type=None, config=None):
    if frequencies.numel() > WIDEST // 2:
        raise ValueError(f"{2 * frequencies.numel()} channels")
    if not (frequencies.isfinite().all() and math.isfinite(scale)):
        raise ValueError("an answer that is not finite")
    layers = getattr(config, "layer_types", None) or []
    return {"type": layer_type,
            "index": layers.index(layer_type) if layer_type in layers else None,
            "inv_freq": frequencies.detach().float().flatten().tolist(),
            "scale": float(scale)}


# Types whose layers have their own modules, by layer_rope_theta. The model's
# module beside them is not used.
LAYER_BASES = {"granite_swa", "granitemoe_swa"}


def ask_layers(config):
    bases = config.layer_rope_theta
    if not any(bases):
        raise NoRotation("layer_rope_theta is 0 for every layer")
    answers = []
    for base in sorted({base for base in bases if base}):
        own = copy.copy(config)
        own.rope_parameters = {**config.rope_parameters, "rope_theta": base}
        one, = ask_module(own)
        answers.append({**one, "index": bases.index(base)})
    return answers


def ask_part(config):
    for key, value in SWITCHES.get(config.model_type, {}).items():
        if getattr(config, key) != value:
            raise NoRotation(f"{key} is {getattr(config, key)}")
    if config.model_type in FUNCTIONS:
        return [answer(FUNCTIONS[config.model_type](config), 1)]
    if config.model_type in LAYER_BASES:
        return ask_layers(config)
    return ask_module(config)


def ask_module(config):
    module = rotary_class(config)(config=config)
    named = {name: buffer for name, buffer in module.named_buffers(recurse=False)
             if name.endswith("inv_freq") and "original" not in name}
    if "inv_freq" in named:
        scale = getattr(module, "attention_scaling", 1.0)
        if config.model_type == "phimoe" and module.rope_type != "default":
            scale = config.rope_parameters["short_mscale"]  # its forward() uses this factor
        sections = getattr(module, "mrope_section", None)
        frequencies = named["inv_freq"]
        if "ernie4_5_vl" in config.model_type:
            # The module keeps them by axis: height, width, time. The
            # geometric order is the order of the pairs.
            frequencies = frequencies.sort(descending=True).values
        one = answer(frequencies, scale)
        one["pairing"] = pairing(config)
        one["length"] = length(config)
        if sections and all(type(pairs) is int for pairs in sections):
            one["sections"] = list(sections)
        return [one]
    answers = []
    for name, buffer in named.items():
        kind = name.removesuffix("_inv_freq")
        scale = getattr(module, f"{kind}_attention_scaling", 1.0)
        answers.append(answer(buffer, scale, kind, config))
    if not answers:
        raise NoRotation(f"{type(module).__name__} keeps no frequencies")
    return answers


def ask(values):
    """Returns answers, one for each type of layer; raises transformers'
    exceptions."""
    found = part_of(config_of(values))
    if not found:
        raise NoRotation(values.get("model_type"))
    return ask_part(found[1])
