"""Rewrites of files of every type, the same for equal seeds.

damage.py changes a file's values; these rewrites change its form: keys missing,
null, of other types and names, at another level, in both spellings at once, and
contradictory.
"""

import copy
import json
import pathlib
import random

import damage
import library
import spellings

SEED = 20261123
PRESETS = pathlib.Path(__file__).parents[2] / "core/interpretation/presets"

# Groups of names for the same value in files.
NAMES = [("hidden_size", "n_embd", "d_model", "dim"),
         ("num_attention_heads", "n_head", "n_heads", "num_heads"),
         ("num_hidden_layers", "n_layer", "num_layers"),
         ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length",
          "max_trained_positions"),
         ("head_dim", "attention_head_dim", "kv_channels", "global_head_dim",
          "qk_rope_head_dim", "qk_nope_head_dim", "d_kv"),
         ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_dim",
          "rotary_emb_fraction"),
         ("rope_theta", "rotary_emb_base", "global_rope_theta",
          "local_rope_theta", "rope_local_base_freq", "swa_rope_theta",
          "rotary_embedding_base", "rope_base", "compress_rope_theta"),
         ("rope_scaling", "rope_parameters", "layer_rope_theta"),
         ("layer_types", "sliding_window_pattern", "no_rope_layers",
          "layers_block_type", "full_attention_interval")]
DICT_NAMES = [("rope_type", "type"), ("factor", "scaling_factor", "alpha"),
              ("original_max_position_embeddings", "max_trained_positions",
               "original_max_positions"),
              ("attention_factor", "attn_factor", "mscale", "mscale_all_dim",
               "short_mscale", "long_mscale"),
              ("low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"),
              ("rope_theta", "base"), ("partial_rotary_factor", "rope_pct"),
              ("mrope_section", "xdrope_section", "mrope_interleaved"),
              ("full_attention", "sliding_attention", "main", "compress",
               "hybrid", "chunked_attention")]
KEYS = [key for group in NAMES for key in group] + [
    "num_key_value_heads", "sliding_window", "per_layer_config", "model_type",
    "text_config", "original_max_position_embeddings", "rope_interleave",
    "position_embedding_type", "use_rope", "rope_scaling_layers",
    "no_rope_layer_interval", "v_head_dim", "vocab_size"]
DICT_KEYS = [key for group in DICT_NAMES for key in group] + ["truncate"]
SIZES = [2, 3, 5, 6, 7, 8, 12, 16, 24, 33, 40, 64, 80, 96, 128, 192, 256, 257]
RATIOS = [0.1, 0.125, 0.25, 0.3, 0.334, 0.5, 0.75, 0.9, 1, 1.0, 1.5, 2]
THETAS = [1, 1.0, 100, 10000, 10000.0, 123456.0, 1e6, 5e5, 1e8, 1e9]
DEEP = ["dtype", "auto_map", "quantization_config", "id2label", "label2id",
        "architectures", "vision_config", "task_specific_params"]


def scalings(chance, pairs):
    """Returns a dict of scaling, whole or without one key."""
    factor = chance.choice([1, 1.0, 2, 4.0, 8.0, 0.5, 32])
    original = chance.choice([1024, 2048, 4096, 8192, 32768])
    one = chance.choice([
        {"rope_type": "default"},
        {"rope_type": "linear", "factor": factor},
        {"rope_type": "dynamic", "factor": factor},
        {"rope_type": "yarn", "factor": factor,
         "original_max_position_embeddings": original},
        {"rope_type": "yarn", "factor": factor, "mscale": 0.707,
         "mscale_all_dim": 1.0, "original_max_position_embeddings": original},
        {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0,
         "high_freq_factor": 4.0, "original_max_position_embeddings": original},
        {"rope_type": "longrope", "short_factor": [1.0] * pairs,
         "long_factor": [2.0 + 0.01 * i for i in range(pairs)],
         "original_max_position_embeddings": original},
        {"rope_type": "proportional", "partial_rotary_factor": 0.5},
        {"rope_type": chance.choice(["su", "ntk", "mrope", "xdrope", "yarn2"]),
         "factor": factor}])
    one = copy.deepcopy(one)
    if chance.random() < 0.3:
        one["rope_theta"] = chance.choice(THETAS)
    if chance.random() < 0.15:
        one["partial_rotary_factor"] = chance.choice(RATIOS)
    if chance.random() < 0.15:
        one["type"] = one.pop("rope_type")
    if chance.random() < 0.15:
        one.pop(chance.choice(list(one)))
    return one


class Rewrite(damage.Damage):
    def _place(self):
        part = self._part()
        places = [(part, key) for key in KEYS if key in part]
        if self._path:
            places += [(self._values, key) for key in KEYS if key in self._values]
        for name in ("rope_parameters", "rope_scaling"):
            rope = part.get(name)
            if isinstance(rope, dict):
                inner = [one for one in rope.values() if isinstance(one, dict)]
                for one in [rope, *inner]:
                    places += [(one, key) for key in one] * 2
        return self._chance.choice(places or [(part, self._chance.choice(KEYS))])

    def _dicts(self):
        part = self._part()
        found = [part]
        for name in ("rope_parameters", "rope_scaling"):
            if isinstance(part.get(name), dict):
                found.append(part[name])
                found += [v for v in part[name].values() if isinstance(v, dict)]
        return found

    def renamed(self):
        where, key = self._place()
        for group in NAMES + DICT_NAMES:
            if key in group and key in where:
                other = self._chance.choice(group)
                where[other] = where.pop(key)
                return

    def other_value(self):
        where, key = self._place()
        values = SIZES
        if "theta" in key or "base" in key:
            values = THETAS
        elif "factor" in key or "pct" in key:
            values = RATIOS
        elif "max_" in key or "original" in key:
            values = [512, 2048, 4096, 131072]
        where[key] = self._chance.choice(values)

    def added(self):
        where = self._chance.choice(self._dicts())
        key = self._chance.choice(KEYS if where is self._part() else DICT_KEYS)
        values = SIZES + RATIOS + THETAS
        if key in ("rope_type", "type"):
            values = ["default", "linear", "yarn", "llama3", "longrope", "dynamic"]
        elif key.endswith("section"):
            values = [[8, 12, 12], [16, 24, 24], [11, 11, 10], [16, 16], []]
        where[key] = copy.deepcopy(self._chance.choice(values))

    def scaled(self):
        part = self._part()
        heads = part.get("num_attention_heads")
        width = part.get("head_dim") or (
            part.get("hidden_size", 64) // heads if isinstance(heads, int) and heads
            and isinstance(part.get("hidden_size", 64), int) else 64)
        pairs = width // 2 if isinstance(width, int) and 0 < width < 1024 else 32
        part[self._chance.choice(["rope_scaling", "rope_parameters"])] = scalings(
            self._chance, pairs)

    def nested(self):
        part = self._part()
        kinds = self._chance.sample(
            ["full_attention", "sliding_attention", "linear_attention",
             "chunked_attention", "main", "compress", "hybrid"],
            self._chance.choice([1, 2, 2]))
        part["rope_parameters"] = {
            kind: self._chance.choice([None, {}, scalings(self._chance, 32),
                                       {"rope_type": "default",
                                        "rope_theta": 5000.0}])
            for kind in kinds}

    def moved(self):
        """Moves a key out of the dict to the level beside the dict, or the reverse."""
        part = self._part()
        name = self._chance.choice(["rope_parameters", "rope_scaling"])
        rope = part.get(name)
        if isinstance(rope, dict) and rope and self._chance.random() < 0.6:
            key = self._chance.choice(list(rope))
            part[key] = rope.pop(key)
        else:
            rope = part.setdefault(name, {})
            key = self._chance.choice(
                ["rope_theta", "partial_rotary_factor",
                 "original_max_position_embeddings", "max_position_embeddings",
                 "head_dim"])
            if isinstance(rope, dict) and key in part:
                rope[key] = part.pop(key)

    def lifted(self):
        """Moves keys of the part to the top of the file, or the reverse."""
        part = self._part()
        if part is self._values:
            return
        if self._chance.random() < 0.5:
            for key in [key for key in part if key.startswith("rope")]:
                self._values[key] = part.pop(key)
        else:
            key = self._chance.choice(list(part) or ["head_dim"])
            self._values[key] = copy.deepcopy(part.get(key))

    def flattened(self):
        part = self._part()
        if part is self._values or len(self._path) != 1:
            return
        if self._chance.random() < 0.5:
            self._values.pop(self._path[0])
        else:
            self._values[self._path[0]] = {}

    def flat(self):
        """Moves a part's keys to the top of the file, and removes the
        part."""
        part = self._part()
        if part is not self._values:
            self._values.pop(self._path[0], None)
            part.pop("model_type", None)
            self._values.update(part)

    def sparse(self):
        part = self._part()
        for key in ("hidden_size", "num_attention_heads", "head_dim",
                    "num_key_value_heads", "max_position_embeddings"):
            if self._chance.random() < 0.7:
                part.pop(key, None)

    def text(self):
        where, key = self._place()
        value = where.get(key)
        where[key] = self._chance.choice([str(value), "NaN", "-Infinity", "1e400"])

    def extreme(self):
        where, key = self._place()
        value = where.get(key)
        where[key] = self._chance.choice(
            [-value if isinstance(value, (int, float)) else -1, 1 << 53, 1 << 63,
             1 << 64, 10 ** 30, 1e300, 5e-324, -0.0])

    def layers(self):
        """Changes the keys of single layers."""
        part = self._part()
        depth = part.get("num_hidden_layers")
        depth = depth if isinstance(depth, int) and 0 < depth < 200 else 4
        kinds = ["full_attention", "sliding_attention", "linear_attention",
                 "chunked_attention", "conv", "mamba", "attention", "none"]
        one = self._chance.choice(kinds)
        key, values = self._chance.choice([
            ("per_layer_config", [{}, None, [], {"0": {}}, {"x": {"head_dim": 64}},
                                  {"00": {"head_dim": 64}}, {"05": {"head_dim": "8"}},
                                  {"05": {"rope_parameters": {}}}, {"05": 3}]),
            ("layer_types", [[one] * depth, [one] * (depth - 1), [], {}, one, None,
                             [one, None], self._chance.choices(kinds[:2], k=depth)]),
            ("no_rope_layers", [[], [0] * depth, [1] * depth, [1, 0], None, 0, "no"]),
            ("layer_rope_theta", [[], [10000.0] * depth, [0, 5e5], None]),
            ("full_attention_interval", [0, 1, 4, -1, None, "4"]),
            ("sliding_window_pattern", [0, 1, 6, "LLLG", "", None, -2]),
            ("no_rope_layer_interval", [0, 1, 4, None])])
        part[key] = self._chance.choice(values)

    KINDS = ["flat", "sparse", "text", "extreme", "layers", "deleted",
             "wrong_type", "null", "number", "garbage", "extra",
             "contradiction", "renamed", "other_value", "added", "scaled",
             "nested", "moved", "lifted", "flattened", "unknown_type"]
    WEIGHTS = [1, 2, 2, 3, 4, 4, 3, 3, 2, 1, 2, 2, 4, 5, 5, 6, 2, 4, 2, 1, 0.2]


def presets():
    for path in sorted(PRESETS.glob("*.json")):
        values = json.loads(path.read_text())
        if "model_type" not in values:
            continue
        try:
            found = library.part_of(library.config_of(values))
        except Exception:  # files that transformers refuses are not rewritten
            continue
        if found:
            yield values["model_type"], found[0], values


def bases():
    """Yields (type, path of the part, values) of files to rewrite."""
    for model_type, config, path in library.rotating():
        whole = damage.short(spellings.full(config))
        for key in DEEP:
            whole.pop(key, None)
        yield model_type, path, spellings.saved(config)
        yield model_type, path, whole
        old = spellings.old(whole, path)
        if old is not None:
            yield model_type, path, old


def all_of(each=1, seed=SEED, step=2):
    """Yields (model type, name, text): `each` rewrites of every step-th base."""
    chance = random.Random(seed)
    for model_type, path, values in [*bases(), *presets()][::step]:
        for number in range(each):
            rewrite = Rewrite(chance, copy.deepcopy(values), path)
            kinds = chance.choices(Rewrite.KINDS, Rewrite.WEIGHTS,
                                   k=chance.choice([1, 1, 1, 2, 2, 3]))
            for kind in kinds:
                try:
                    getattr(rewrite, kind)()
                except (AttributeError, TypeError, KeyError, IndexError):
                    pass  # an earlier change removed the keys for this one
            text = json.dumps(rewrite._values)
            if chance.random() < 0.04:
                kinds.append("duplicate")
                text = damage.duplicated(chance, text)
            yield model_type, f"{number} {' '.join(kinds)}", text
