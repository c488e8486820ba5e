#!/usr/bin/env python3
"""Records how the vision towers of transformers rotate.

For every vision tower with a rotary module: the frequencies, the axis of each
pair, cosines and sines at a grid's positions, and a rotated tensor, from the
library's own classes and in their own order of operations.

    towers.py record FILE      writes the record (JSON, gzip)
    towers.py list             names every tower, and those that are left out

The library's cosine of a float32 angle is sometimes one unit in the last place off
(about one in twenty on a CPU). Its power of a base is off more rarely (one in three
hundred). Both differ between devices. So the record has the results of the module with
correctly rounded functions, which must be equal bit by bit, and the error of the
library's own functions.
"""

import argparse
import gzip
import importlib
import inspect
import json
import logging
import math
import re
import warnings

import numpy
import torch

warnings.filterwarnings("ignore")
logging.disable(logging.ERROR)

import diffusers  # noqa: E402
import transformers  # noqa: E402
from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: E402
from transformers.models.auto.configuration_auto import (  # noqa: E402
    CONFIG_MAPPING_NAMES,
)

from diffusion import diffusion  # noqa: E402
from rounded import Functions, heads, hexed, ordinal, rows_of  # noqa: E402
from tower_positions import (  # noqa: E402
    by_tokens, class_then_rows_from_one, columns, columns_from_one,
    columns_in_windows, merged, merged_by_two, multidimensional, of_vision,
    row_major, sequence, three_axes, unbatched, whole_width)


DEFAULT = {"positions": merged, "rotate": of_vision, "pairing": "half"}
PAIRWISE = {
    "positions": columns,
    "rotate": by_tokens("apply_rotary_pos_emb_2d"),
    "pairing": "interleaved",
    "names": ["width", "height"],
}
TOWERS = {
    "cohere_compass_vision": {},
    "dots3_note_vision_encoder": {},
    "edgetam_video": {
        **PAIRWISE,
        "rotate": by_tokens("apply_rotary_pos_emb_2d_self_attn"),
    },
    "ernie4_5_vl_moe_vision": {},
    "exaone4_5_vision": {},
    "gemma4_vision": {
        "positions": columns,
        "rotate": multidimensional,
        "pairing": "half_per_axis",
        "names": ["width", "height"],
        "batched": True,
    },
    "glm4v_vision": {},
    "glm4v_moe_vision": {},
    "glm5_next_vision": {},
    "glm_ocr_vision": {},
    "inkling2_vision": {
        "positions": class_then_rows_from_one,
        "pairing": "interleaved",
    },
    "kimi_k25_vision": {"positions": row_major},
    "lfm3_vl_vision": {},
    "minimax_m3_vl_vision": {
        "positions": three_axes,
        "names": ["time", "height", "width"],
    },
    "mlcd_vision_model": {"positions": row_major},
    "muse_glimmer_vision": {
        "positions": columns_from_one, "names": ["width", "height"],
    },
    "muse_spark_vision": {
        "positions": columns_from_one, "names": ["width", "height"],
    },
    "paddleocr_vl_vision": {"positions": row_major},
    "pixtral": {"positions": row_major, "rotate": unbatched},
    "qwen2_5_omni_vision_encoder": {},
    "qwen2_5_vl_vision": {},
    "qwen2_vl_vision": {},
    "qwen3_5_moe_vision": {},
    "qwen3_5_vision": {},
    "qwen3_omni_moe_vision_encoder": {},
    "qwen3_vl_moe_vision": {},
    "qwen3_vl_vision": {},
    "qwen4_exp_vision": {},
    "sam2_video": PAIRWISE,
    "sam3_tracker_video": PAIRWISE,
    "sam3_vit_model": {**PAIRWISE, "positions": columns_in_windows},
    "step3p5_vision": {"positions": row_major},
    "video_llama_3_vision": {"positions": merged_by_two},
    "llama4_vision_model": {"special": "llama4", "pairing": "interleaved",
                            "names": ["width", "height"]},
    "dinov3_vit": {"special": "centers"},
    "eomt_dinov3": {"special": "centers"},
    "sapiens2": {"special": "centers"},
    "efficientloftr": {"special": "features", "pairing": "interleaved"},
    "deepseek_ocr2_encoder": {
        "positions": sequence, "names": ["token"],
        "rotate": by_tokens("apply_rotary_pos_emb"), "batched": True,
    },
    "pe_video_encoder": {
        "positions": sequence, "names": ["token"], "pairing": "interleaved",
        "rotate": by_tokens("apply_rotary_pos_emb"), "batched": True,
    },
}
LEFT_OUT = {
    "vjepa2": "tiles its table over interleaved pairs, so that the two channels "
              "of a pair turn by different angles: no rotation",
}

HEAD_KEYS = ("num_heads", "num_attention_heads")


def modeling(config):
    return importlib.import_module(
        type(config).__module__.replace("configuration_", "modeling_")
    )


def rotary_class(config):
    """Returns the class whose constructor takes this configuration."""
    wanted = type(config).__name__
    found = []
    for name, value in vars(modeling(config)).items():
        if not inspect.isclass(value) or value.__module__ != modeling(
                config).__name__:
            continue
        if not re.search(r"(Rotary|Rope).*Embedding", name):
            continue
        annotation = inspect.signature(value.__init__).parameters.get("config")
        kind = getattr(annotation, "annotation", None)
        if wanted == (kind if isinstance(kind, str)
                      else getattr(kind, "__name__", None)):
            found.append(value)
    if len(found) != 1:
        raise LookupError(f"{wanted}: {[f.__name__ for f in found]}")
    return found[0]


def rotary_module(model_type, config):
    try:
        return rotary_class(config)(config)
    except LookupError:
        names = {
            "edgetam_video": "EdgeTamVideoVisionRotaryEmbedding",
            "pe_video_encoder": "PeVideoEncoderRotaryEmbedding",
            "deepseek_ocr2_encoder": "DeepseekOcr2VisionRotaryEmbedding",
            "mlcd_vision_model": "MLCDRotaryEmbedding",
            "mlcd": "MLCDRotaryEmbedding",
        }
        if model_type not in names:
            raise
        return getattr(modeling(config), names[model_type])(config)


class Tower:
    """One tower's module, evaluated at positions of a grid."""

    def __init__(self, model_type, config, grid):
        self.facts = {**DEFAULT, **TOWERS[model_type]}
        self.config = config
        self.grid = grid
        self.code = modeling(config)
        # In training DINOv3 shifts its coordinates at random.
        with Functions("rounded"):
            self.module = rotary_module(model_type, config).eval()
        self.own = rotary_module(model_type, config).eval()
        self.pairing = self.facts["pairing"]
        special = self.facts.get("special")
        if special is None:
            self.positions = self.facts["positions"](config, grid)
        elif special == "llama4":
            side = config.image_size // config.patch_size
            self.grid = [1, side, side]
            ids = row_major(config, self.grid).flip(-1) + 1
            self.positions = torch.cat([ids, torch.zeros_like(ids[:1])])
        elif special == "centers":
            ids = self.code.get_patches_center_coordinates(
                grid[1], grid[2], torch.float32, torch.device("cpu"))
            self.positions = 2 * math.pi * ids
        elif special == "features":
            self.positions = row_major(config, grid) + 1

    def tables(self, positions, own=False):
        """Returns the module's cos and sin, [tokens, channels]; `own`: with
        the library's own functions."""
        module = self.own if own else self.module
        special = self.facts.get("special")
        if special == "llama4":
            table = module._compute_freqs_ci(self.config)
            table = torch.view_as_real(table).reshape(len(positions), -1, 2)
            return (table[..., 0].repeat_interleave(2, -1),
                    table[..., 1].repeat_interleave(2, -1))
        if special == "centers":
            size = self.config.patch_size
            high, wide = size if isinstance(size, (list, tuple)) else (size,) * 2
            pixels = torch.zeros(1, 3, self.grid[1] * high, self.grid[2] * wide)
            return module(pixels)
        if special == "features":
            stride = self.config.q_aggregation_stride
            size = self.config.q_aggregation_kernel_size
            pixels = torch.zeros(1, 1, (self.grid[1] - 1) * stride + size,
                                 (self.grid[2] - 1) * stride + size)
            cos, sin = module(pixels)
            return cos[0].flatten(0, 1), sin[0].flatten(0, 1)
        if self.facts["positions"] is sequence:
            return [t[0] for t in
                    module(torch.zeros(1, 1, 1), positions[:, 0][None])]
        if self.facts.get("batched"):
            return [t[0] for t in module(torch.zeros(1), positions[None])]
        return [t.reshape(len(positions), -1)
                for t in module(torch.zeros(1), positions)]

    def rotated(self, x, cos, sin):
        special = self.facts.get("special")
        if special == "llama4":
            table = torch.complex(cos[:, ::2].contiguous(),
                                  sin[:, ::2].contiguous())
            return self.code.vision_apply_rotary_emb(
                x[None], x[None], table.reshape(len(x), 1, -1))[0][0]
        if special == "centers":
            return by_tokens("apply_rotary_pos_emb")(self.code, x, cos, sin)
        if special == "features":
            return whole_width(self.code, x, cos[None], sin[None])
        if self.facts.get("batched"):
            cos, sin = cos[None], sin[None]
        return self.facts["rotate"](self.code, x, cos, sin)

    def of_pairs(self, table):
        """Returns one column per pair."""
        width = table.shape[-1]
        if self.pairing == "interleaved":
            if self.facts.get("positions") is sequence:
                return table[:, : width // 2]  # the class uses only this half
            return table[:, ::2]
        if self.pairing == "half_per_axis":
            quarter = width // 4
            return torch.cat([table[:, :quarter],
                              table[:, 2 * quarter: 3 * quarter]], -1)
        return table[:, : width // 2]

    def head_dim(self):
        config = self.config
        if self.facts.get("special") == "features":
            return config.hidden_size
        if hasattr(config, "memory_attention_hidden_size"):
            return config.memory_attention_hidden_size // (
                config.memory_attention_downsample_rate
                * config.memory_attention_num_attention_heads)
        known = getattr(config, "head_dim", None)
        width = getattr(config, "embed_dim", None) or config.hidden_size
        return known or width // config.num_attention_heads

    def frequencies(self):
        """Returns inv_freq and axis of each pair, from the angles."""
        with Functions("angles"):
            angles, _ = self.tables(self.positions)
        angles = self.of_pairs(angles).double().numpy()
        ids = self.positions.double().numpy()
        axes = ids.shape[1]
        axis_of_pair, inv_freq = [], []
        for i in range(angles.shape[1]):
            # A pair's angle depends on only one axis: find it.
            axis = next(
                a for a in range(axes)
                if all(len(set(angles[ids[:, a] == p, i])) == 1
                       for p in set(ids[:, a]))
                and len(set(angles[:, i])) == len(set(ids[:, a])))
            axis_of_pair.append(axis)
        values = self.module_frequencies()
        for i, axis in enumerate(axis_of_pair):
            expected = (ids[:, axis].astype(numpy.float32)
                        * numpy.float32(values[i]))
            assert (expected == angles[:, i]).all(), (i, axis)
            inv_freq.append(values[i])
        return inv_freq, axis_of_pair

    def module_frequencies(self):
        """Returns the float32 frequencies of the angles, in pair order."""
        special = self.facts.get("special")
        if special == "centers":
            one = self.module.inv_freq.tolist()
            return one + one
        with Functions("angles"):
            if special is None:
                unit = torch.ones(1, self.positions.shape[1],
                                  dtype=self.positions.dtype)
                angles, _ = self.tables(unit)
            else:
                angles, _ = self.tables(self.positions)
        row = 0  # position 1 on every axis: the first patch
        return self.of_pairs(angles)[row].tolist()

    def frequencies_record(self):
        inv_freq, axis_of_pair = self.frequencies()
        return {
            "class": type(self.module).__name__,
            "head_dim": self.head_dim(),
            "pairing": self.pairing,
            "axis_names": self.facts.get("names", ["height", "width"]),
            "inv_freq": hexed(inv_freq),
            "axis_of_pair": axis_of_pair,
            "library_inv_freq_ulps": self.frequency_ulps(),
        }

    def frequency_ulps(self):
        """Returns the error of the frequencies in the library's own module."""
        def of(module):
            values = getattr(module, "inv_freq", None)
            return ordinal(values.numpy()) if values is not None else None
        if of(self.own) is None:
            return []
        return (of(self.own) - of(self.module)).tolist()

    def record(self, rows):
        with Functions("rounded"):
            cos, sin = self.tables(self.positions)
        own_cos, own_sin = self.tables(self.positions, own=True)
        width = self.head_dim()
        x = heads(len(self.positions), 1, width)
        y = self.rotated(x, cos, sin)
        own = self.rotated(x, own_cos, own_sin)
        ulps = [
            (ordinal(self.of_pairs(a)[rows]) - ordinal(self.of_pairs(b)[rows]))
            .tolist()
            for a, b in ((own_cos, cos), (own_sin, sin))
        ]
        return {
            "grid": self.grid,
            "positions": self.positions.double().T.tolist(),
            "rows": rows,
            "cos": hexed(self.of_pairs(cos)[rows].numpy()),
            "sin": hexed(self.of_pairs(sin)[rows].numpy()),
            "library_ulps": ulps,
            "rotated": hexed(y[rows].numpy()),
            "equal_elements": int((own == y).sum()),
            "elements": own.numel(),
        }


def changed(config):
    """Returns the same tower with other heads and another base. EfficientLoFTR
    rotates its whole width at once, for any heads."""
    values = config.to_dict()
    for key in HEAD_KEYS if config.model_type != "efficientloftr" else ():
        if isinstance(values.get(key), int):
            values[key] = max(1, values[key] // 2)
    if isinstance(values.get("head_dim"), int):
        values["head_dim"] *= 2
    if isinstance(values.get("rope_parameters"), dict):
        values["rope_parameters"]["rope_theta"] = 500.0
    elif "rope_theta" in values:
        values["rope_theta"] = 500.0
    return type(config).from_dict(values)


def plain(values):
    return json.loads(json.dumps(values, default=str))


def spellings(model_type, config, default):
    """Returns the spellings of this configuration."""
    full = plain(config.to_dict())
    full["model_type"] = model_type
    found = {"full": full}
    # A tower of one axis is read like a language model, so its widths must be
    # given.
    default = default and TOWERS[model_type].get("positions") is not sequence
    saved = plain(config.to_diff_dict())
    saved["model_type"] = model_type
    found["saved"] = saved
    if default:
        found["bare"] = {"model_type": model_type}
    if isinstance(full.get("rope_parameters"), dict):
        old = {k: v for k, v in full.items() if k != "rope_parameters"}
        old["rope_theta"] = full["rope_parameters"]["rope_theta"]
        found["old"] = old
        partial = full["rope_parameters"].get("partial_rotary_factor")
        if partial is not None:
            old["partial_rotary_factor"] = partial
    return found


def parents():
    """Returns, for each class of configuration, which model types' default configurations contain
    this class, and at which path of keys."""
    found = {}

    def walk(config, path, root):
        for key, value in list(config.__dict__.items()):
            if not isinstance(value, PreTrainedConfig):
                continue
            found.setdefault(type(value), []).append((root, [*path, key]))
            if len(path) < 3:
                walk(value, [*path, key], root)

    for name in sorted(CONFIG_MAPPING_NAMES):
        try:
            walk(CONFIG_MAPPING[name](), [], name)
        except Exception:  # noqa: BLE001: some have no default configuration
            continue
    return found


# The record keeps only keys that matter here.
KEPT = re.compile(
    r"model_type|rope|rotary|theta|head|hidden_size|embed_dim|merge_size|"
    r"image_size|patch_size|window|memory_attention|downsample|partial")


def kept(values):
    return {k: v for k, v in values.items()
            if KEPT.search(k) and not isinstance(v, list)}


def record():
    towers = []
    nesting = parents()
    for model_type in TOWERS:
        config = CONFIG_MAPPING[model_type]()
        nested = nesting.get(type(config), [])
        for name, value in (("default", config), ("changed", changed(config))):
            tower = Tower(model_type, value, [2, 4, 6])
            if tower.facts.get("special") or tower.facts["positions"] in (
                    columns, columns_in_windows):
                tower = Tower(model_type, value, [1, 4, 6])
            entry = {"tower": model_type, "configuration": name}
            entry.update(tower.frequencies_record())
            if name == "default":
                entry.update(tower.record(rows_of(len(tower.positions))))
            configs = [
                {"spelling": key, "config": kept(text)}
                for key, text in
                spellings(model_type, value, name == "default").items()
            ]
            for root, path in nested:
                inner = kept(spellings(model_type, value, False)["full"])
                # SAM 3's tracker needs its own file: the vision part of the
                # whole file is the detector's.
                if "tracker_config" in path:
                    continue
                for spelling in ("nested", "nested without a type"):
                    if spelling != "nested" and TOWERS[model_type].get(
                            "positions") is sequence:
                        continue
                    node = dict(inner)
                    if spelling != "nested":
                        node.pop("model_type")
                    for key in reversed(path):
                        node = {key: node}
                    node["model_type"] = root
                    configs.append({"spelling": spelling, "part": "vision",
                                    "config": node})
            entry["configs"] = configs
            towers.append(entry)
    return {
        "transformers": transformers.__version__,
        "torch": torch.__version__,
        "left_out": LEFT_OUT,
        "towers": towers,
        "diffusers": diffusers.__version__,
        "diffusion": diffusion(),
    }


def list_towers():
    known = set(TOWERS)
    for name in sorted(CONFIG_MAPPING_NAMES):
        try:
            config = CONFIG_MAPPING[name]()
        except Exception:  # noqa: BLE001
            continue
        rope = config.__dict__.get("rope_parameters")
        axial = isinstance(rope, dict) and rope.get("rope_type") == "axial"
        if name in known:
            print(f"{name}: recorded")
        elif name in LEFT_OUT:
            print(f"{name}: left out: {LEFT_OUT[name]}")
        elif axial:
            print(f"{name}: NOT RECORDED, and it is axial")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("command", choices=["record", "list"])
    parser.add_argument("file", nargs="?")
    given = parser.parse_args()
    if given.command == "list":
        list_towers()
        return
    text = json.dumps(record(), separators=(",", ":"), sort_keys=True)
    with open(given.file, "wb") as file:
        # The file has no name and no time in it, so that equal records are equal files.
        with gzip.GzipFile("", "wb", 9, file, mtime=0) as packed:
            packed.write(text.encode())


if __name__ == "__main__":
    main()
