"""Faulty files, the same in every run."""

import copy
import json
import random

import library
import spellings

SEED = 20261122
COUNT = 3000

# The types to damage, which together have every kind of rope.
BASES = ["llama", "qwen3", "qwen2_vl", "gemma3", "gemma4_text", "deepseek_v3",
         "phi3", "glm4_moe", "gpt_oss", "mistral3", "olmo3", "modernbert",
         "gpt_neox", "gptj", "qwen3_5_text", "t5gemma2", "ministral3", "apertus",
         "cohere2", "smollm3", "dots3_note_text", "minimax_m2", "llama4_text",
         "qwen3_vl"]
SCALINGS = [
    {"rope_type": "linear", "factor": 4.0},
    {"rope_type": "dynamic", "factor": 2.0},
    {"rope_type": "yarn", "factor": 4.0,
     "original_max_position_embeddings": 4096},
    {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
     "high_freq_factor": 4.0, "original_max_position_embeddings": 8192},
]
KEYS = ["hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim",
        "max_position_embeddings", "layer_types", "rope_parameters",
        "rope_scaling", "rope_theta", "partial_rotary_factor", "model_type",
        "original_max_position_embeddings", "qk_rope_head_dim",
        "num_key_value_heads", "sliding_window", "text_config",
        "per_layer_config", "rope_local_base_freq"]
DICT_KEYS = ["rope_type", "type", "factor", "rope_theta", "low_freq_factor",
             "high_freq_factor", "original_max_position_embeddings",
             "attention_factor", "beta_fast", "partial_rotary_factor",
             "mrope_section", "full_attention", "sliding_attention"]
WRONG = ["8", "abc", "", "NaN", "Infinity", True, False, [], [1, 2], {}, {"a": 1},
         1.5, [None], [[]]]
NUMBERS = [0, -1, -4096, 1, 2, 3, 7, 1 << 40, 1e30, -1e30, 1e-30, 0.5, 1e308]
GARBAGE = [{"full_attention": {"full_attention": {}}}, [[[[1]]]], {"": None},
           {"rope_type": {"rope_type": "yarn"}}, {"a": {"b": {"c": {}}}},
           {"sliding_attention": "default"}, {"full_attention": None}]
TYPES = ["lama", "Llama", "bert", "", "unknown-model", "qwen99", "LlamaForCausalLM"]


class Damage:
    """Damages one configuration, in a way that `random` chooses."""

    def __init__(self, chance, values, path):
        self._chance = chance
        self._values = values
        self._path = path

    def _part(self):
        return spellings.at(self._values, self._path)

    def _place(self):
        """Returns a dict and a key of it that affect rope."""
        part = self._part()
        dicts = [(part, key) for key in KEYS if key in part]
        for name in ("rope_parameters", "rope_scaling"):
            rope = part.get(name)
            if isinstance(rope, dict):
                inner = [one for one in rope.values() if isinstance(one, dict)]
                for one in inner or [rope]:
                    dicts += [(one, key) for key in DICT_KEYS if key in one] * 2
        if not dicts:
            return part, self._chance.choice(KEYS)
        return self._chance.choice(dicts)

    def deleted(self):
        where, key = self._place()
        where.pop(key, None)

    def wrong_type(self):
        where, key = self._place()
        where[key] = copy.deepcopy(self._chance.choice(WRONG))

    def null(self):
        where, key = self._place()
        where[key] = None

    def number(self):
        where, key = self._place()
        where[key] = self._chance.choice(NUMBERS)

    def unknown_type(self):
        self._values["model_type"] = self._chance.choice(TYPES)

    def unknown_rope(self):
        part = self._part()
        part["rope_scaling"] = {"rope_type": self._chance.choice(
            ["yarn2", "", "LINEAR", "mrope", "su", "none"]), "factor": 2.0}

    def contradiction(self):
        part = self._part()
        part[self._chance.choice(["rope_theta", "partial_rotary_factor",
                                  "head_dim"])] = self._chance.choice(
                                      [0.5, 12345.0, 96])

    def garbage(self):
        where, key = self._place()
        where[key] = copy.deepcopy(self._chance.choice(GARBAGE))

    def extra(self):
        where, _ = self._place()
        where[self._chance.choice(KEYS + DICT_KEYS)] = copy.deepcopy(
            self._chance.choice(WRONG + NUMBERS))

    KINDS = ["deleted", "wrong_type", "null", "number", "unknown_type",
             "unknown_rope", "contradiction", "garbage", "extra"]
    WEIGHTS = [4, 5, 3, 4, 1, 1, 2, 2, 3]


def short(values):
    """Removes keys without effect on rope."""
    for part in [values, *(v for v in values.values() if isinstance(v, dict))]:
        for key in [key for key in part if key in (
                "id2label", "label2id", "_name_or_path", "architectures", "dtype",
                "chunk_size_feed_forward", "output_attentions", "return_dict",
                "output_hidden_states", "problem_type", "vision_config")]:
            part.pop(key)
    return values


def bases(model_types=BASES):
    """Yields (type, path of the part, values) of undamaged files."""
    for model_type, config, path in library.rotating(model_types):
        whole = short(spellings.full(config))
        yield model_type, path, whole
        yield model_type, path, spellings.without(whole, path)
        for scaling in SCALINGS:
            yield model_type, path, spellings.without(
                whole, path, rope_theta=500000.0, rope_scaling=dict(scaling))


def duplicated(chance, text):
    """Returns the text with one of its keys twice; parsers use the last."""
    key = chance.choice(["rope_theta", "head_dim", "model_type"])
    value = json.dumps(chance.choice([10000.0, 64, "llama", None, "x"]))
    return text[:-1] + f', "{key}": {value}}}'


def all_of(count=COUNT, seed=SEED):
    """Yields (model type, name, text) of each damaged file. Seeds other than SEED use files of
    every type."""
    chance = random.Random(seed)
    originals = list(bases(BASES if seed == SEED else library.types()))
    for number in range(count):
        model_type, path, values = chance.choice(originals)
        damage = Damage(chance, copy.deepcopy(values), path)
        kinds = chance.choices(Damage.KINDS, Damage.WEIGHTS,
                               k=chance.choice([1, 1, 1, 2, 3]))
        for kind in kinds:
            getattr(damage, kind)()
        text = json.dumps(damage._values)
        if chance.random() < 0.04:
            kinds.append("duplicate")
            text = duplicated(chance, text)
        yield model_type, f"{number} {' '.join(kinds)}", text
