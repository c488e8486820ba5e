"""class_defaults.py [--check]: writes core/interpretation/rows/class_defaults.json, or
checks that it is current.

The rows are about the configuration classes of the newest transformers: their
defaults for absent keys, their other names for keys, and what they refuse. Equal
model types share a row.
"""

import copy
import dataclasses
import json
import pathlib
import re
import sys

import library
import written

TARGET = pathlib.Path(__file__).parents[2] / "core/interpretation/rows/class_defaults.json"
KEYS = ["hidden_size", "num_attention_heads", "num_hidden_layers",
        "max_position_embeddings", "head_dim"]
LAYERS = "num_hidden_layers"
SLICES = ["qk_rope_head_dim", "qk_nope_head_dim"]


def key_of(model_type):
    """Does the same as ModelKey() of core/interpretation/classes/families.h."""
    return model_type.replace("-", "_").replace(" ", "_").removesuffix("_text")


def default(fields, *names):
    """Returns the default of the first of these fields; 0 if it is
    derived."""
    for name in names:
        value = getattr(fields.get(name), "default", None)
        if type(value) is int and value > 0:
            return value
    return 0


def refusal(values):
    try:
        library.config_of(values)
    except Exception as error:  # any exception is a refusal
        return str(error)
    return ""


def refuses_remainder(config):
    """Returns whether the class refuses heads that do not divide the
    width."""
    if config.model_type not in library.CONFIG_MAPPING:
        return False
    values = {"model_type": config.model_type,
              **library.SWITCHES.get(config.model_type, {})}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    text = refusal({**values, "hidden_size": 66, **heads})
    return bool(re.search("multiple of|divisible by", text))


def ignores_head_dim(config):
    """Returns whether a head_dim in the file has no effect."""
    values = {"model_type": config.model_type,
              **library.SWITCHES.get(config.model_type, {})}
    try:
        without = library.ask(values)
        with_head = library.ask({**values, "head_dim": 48})
    except (Exception, library.NoRotation):  # it is only a part of another type
        return False
    return [len(one["inv_freq"]) for one in without] == [
        len(one["inv_freq"]) for one in with_head]


def counted_in(config, fields):
    """Returns the field that gives a class's number of layers, or None."""
    if not isinstance(getattr(type(config), LAYERS, None), property):
        return None
    for name in fields:
        if type(getattr(config, name)) is not int:
            continue
        more = copy.deepcopy(config)
        setattr(more, name, getattr(config, name) + 1)
        if getattr(more, LAYERS) != getattr(config, LAYERS):
            return name
    return None


def row_of(config):
    kind = type(config)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    # The map may lead from either name to the other: a class may store a key under its other name.
    names = {}
    for other, key in sorted(kind.attribute_map.items()):
        if key not in KEYS:
            other, key = key, other
        # Leaves out num_key_value_heads: a class maps it to another key if the class's files lack the number of key
        # heads.
        if key in KEYS and other != "num_key_value_heads":
            names.setdefault(key, other)
    numbers = tuple(default(fields, key, names.get(key)) for key in KEYS)
    counted = counted_in(config, fields)
    if counted:
        names[LAYERS] = counted
    return (numbers, refuses_remainder(config), ignores_head_dim(config),
            " ".join(sorted(f"{other}={key}" for key, other in names.items())),
            tuple(default(fields, key) for key in SLICES))


def rows():
    found = {}
    for _, config, _ in library.rotating():
        part = library.part_of(config)[1]
        found.setdefault(key_of(part.model_type), row_of(part))
    return found


def text_of_rows():
    alike = {}
    for key, row in sorted(rows().items()):
        alike.setdefault(row, []).append(key)
    lines = []
    for (numbers, divided, ignores, names, slices), keys in alike.items():
        row = {"model_types": keys, **dict(zip(KEYS, numbers)),
               "divided": divided, "ignores_head_dim": ignores,
               "names": names.split(), **dict(zip(SLICES, slices))}
        lines.append(json.dumps({key: row[key] for key in row if row[key]}))
    about = ("The values that transformers' classes use for absent keys (ClassDefaults "
             "in class_defaults.h). tests/parity/class_defaults.py has written this file "
             f"with transformers {library.transformers.__version__}.")
    return ('{"about": ' + json.dumps(about) + ',\n "rows": [\n  ' +
            ",\n  ".join(lines) + "\n ]}\n")


if __name__ == "__main__":
    sys.exit(written.main(TARGET, text_of_rows()))
