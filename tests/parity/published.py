"""Configurations of published checkpoints, and the presets.

tests/data/parity/published.jsonl has, for each checkpoint, the keys that concern rotation, in the
spelling of its file, from public knowledge. If transformers has no class of the type, an entry has
the formula of the code beside the checkpoint (`formula`), or another type whose class rotates in the
same way (`like`).
"""

import json
import pathlib

import library
import spellings
import torch

ROOT = pathlib.Path(__file__).parents[2]
FILES = ROOT / "tests/data/parity/published.jsonl"
PRESETS = ROOT / "core/interpretation/presets"


def entries():
    for line in FILES.read_text().splitlines():
        yield json.loads(line)
    for path in sorted(PRESETS.glob("*.json")):
        yield {"name": f"preset {path.stem}", "config": json.loads(path.read_text())}


def by_formula(width, theta, pairing):
    exponents = torch.arange(0, width, 2).double() / width
    return [{"inv_freq": (theta ** -exponents).tolist(), "scale": 1.0,
             "pairing": pairing}]


def all_of():
    """Yields (type, name, text, answers or None to ask) of each configuration, as published and as
    transformers saves it."""
    for entry in entries():
        name, config = entry["name"], entry["config"]
        model_type = config.get("model_type", "")
        answers = None
        if "formula" in entry:
            answers = by_formula(**entry["formula"])
        elif "like" in entry:
            answers = library.ask({**config, "model_type": entry["like"]})
        elif model_type not in library.CONFIG_MAPPING:
            continue  # another project's file
        yield model_type, name, json.dumps(config), answers
        if answers is not None:
            continue
        try:
            read = library.config_of(json.loads(json.dumps(config)))
        except Exception:  # refused as published: the first case covers it
            continue
        yield model_type, f"{name}, saved", json.dumps(spellings.saved(read)), None
