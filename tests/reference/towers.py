"""Vision towers, as in transformers' classes: the axis of each pair,
frequencies in float32 steps, and positions of patches.

A tower is a list of pairs: (axis, numerator, denominator) of the exponent.
Covers the towers that the vectors use.
"""

import json

from exact import mpf, single

HALF, INTERLEAVED = "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"


def _axes_in_turn(d, axes):
    """Each axis has its own frequencies, one axis after the other."""
    n = 2 * (d // (2 * axes))
    return [(a, 2 * i, n) for a in range(axes) for i in range(n // 2)]


def _columns_and_rows_alternate(d):
    return [(a, 2 * i, d // 2) for i in range(d // 4) for a in (1, 0)]


def _shared(d):
    return ([(0, 4 * i, d) for i in range(d // 4)] +
            [(1, 4 * i + 2, d) for i in range(d // 4)])


# Pairs by width of a head, pairing, base, positions of one frame's patches.
_TOWERS = {
    "qwen2_vl_vision": (lambda d: _axes_in_turn(d, 2), HALF, 10000),
    "gemma4_vision": (lambda d: _axes_in_turn(d, 2), HALF, 100),
    "llama4_vision_model": (lambda d: _axes_in_turn(d, 2), INTERLEAVED, 10000),
    "minimax_m3_vl_vision": (lambda d: _axes_in_turn(d, 3), HALF, 10000),
    "kimi_k25_vision": (_columns_and_rows_alternate, HALF, 10000),
    "pixtral": (_shared, HALF, 10000),
    "dinov3_vit": (lambda d: _axes_in_turn(d, 2), HALF, 100),
}


def tower_of(source):
    """Returns the tower's part of a configuration; None for a language
    model."""
    if "configJson" not in source:
        return None
    config = json.loads(source["configJson"])
    if source.get("part") == "MODEL_PART_VISION":
        parent = config["model_type"]
        config = config["vision_config"]
        config.setdefault("model_type", parent + "_vision")
    known = config.get("model_type") in _TOWERS or is_flux(config)
    return config if known else None


def is_flux(config):
    return config.get("_class_name") == "FluxTransformer2DModel"


def read_flux(config):
    """Returns the formula's frequencies, which the class computes in
    float64."""
    widths = config["axes_dims_rope"]
    return {"rotaryDim": sum(widths), "pairing": INTERLEAVED,
            "ropeTheta": 10000, "axes": {
                "assignment": "ASSIGNMENT_PER_AXIS",
                "sections": [w // 2 for w in widths]}}


def _width(config):
    if "head_dim" in config:
        return config["head_dim"]
    heads = config.get("num_heads") or config["num_attention_heads"]
    return (config.get("embed_dim") or config["hidden_size"]) // heads


def read_tower(config):
    """Returns (spec, width of a head, axis of each pair)."""
    pairs_of, pairing, theta = _TOWERS[config["model_type"]]
    theta = single(mpf(config.get("rope_theta", theta)))
    d = _width(config)
    pairs = pairs_of(d)
    powers = [single(theta ** single(mpf(i) / n)) for _, i, n in pairs]
    spec = {"rotaryDim": 2 * len(pairs), "pairing": pairing,
            "explicitFrequencies": {"values": [single(1 / p) for p in powers]}}
    return spec, d, [a for a, _, _ in pairs]


def _blocks(height, width, m):
    return [(y + j, x + i) for y in range(0, height, m)
            for x in range(0, width, m) for j in range(m) for i in range(m)]


def _center(index, extent):
    two_pi = single(2 * mpf("3.14159265358979323846264338327950288"))
    middle = single((mpf(index) + mpf("0.5")) / extent)
    return single(two_pi * single(2 * middle - 1))


def vision_positions(scheme):
    """Returns shape, values, dtype of VisionPositions."""
    config = tower_of(scheme["rope"])
    kind = config.get("model_type", "flux")
    merge = 1
    if kind in ("qwen2_vl_vision", "minimax_m3_vl_vision"):
        merge = config.get("spatial_merge_size", 2)
    merge = scheme.get("mergeSize") or merge
    axes = 3 if kind in ("minimax_m3_vl_vision", "flux") else 2
    rows = [(0,) * axes] * int(scheme.get("textTokens", 0))
    for grid in scheme["grids"]:
        height, width = int(grid["height"]), int(grid["width"])
        for t in range(int(grid.get("time", 1))):
            for y, x in _blocks(height, width, merge):
                if axes == 3:
                    rows.append((t, y, x))
                elif kind == "llama4_vision_model":
                    rows.append((x + 1, y + 1))
                elif kind == "gemma4_vision":
                    rows.append((x, y))
                elif kind == "dinov3_vit":
                    rows.append((_center(y, height), _center(x, width)))
                else:
                    rows.append((y, x))
        if kind == "llama4_vision_model":
            rows.append((0, 0))
    values = [row[a] for a in range(axes) for row in rows]
    return ([axes, len(rows)], values,
            "DTYPE_FLOAT32" if kind == "dinov3_vit" else 0)
