"""class_defaults.py: writes core/model/class_defaults.cc.

What the newest transformers' configuration classes take for absent keys, which
other names they have for them, and what they refuse: one row for model types
that are alike.
"""

import dataclasses
import json
import pathlib
import re
import sys

import library

TARGET = pathlib.Path(__file__).parents[2] / "core/model/class_defaults.cc"
KEYS = ["hidden_size", "num_attention_heads", "num_hidden_layers",
        "max_position_embeddings", "head_dim"]
# Integers that some classes take null for and others do not.
NULLABLE = ["num_key_value_heads", "head_dim", "sliding_window", "v_head_dim",
            "qk_rope_head_dim", "qk_nope_head_dim", "rotary_dim",
            "rotary_embedding_base", "no_rope_layer_interval"]


def key_of(model_type):
    """As ModelKey() of core/model/families.h."""
    return model_type.replace("-", "_").replace(" ", "_").removesuffix("_text")


def default(fields, *names):
    """The first of these fields' own default; 0 for one that is derived."""
    for name in names:
        value = getattr(fields.get(name), "default", None)
        if type(value) is int and value > 0:
            return value
    return 0


def refusal(values):
    try:
        library.config_of(values)
    except Exception as error:  # whatever it is, the class refuses it
        return str(error)
    return ""


def refuses_remainder(config):
    """True if heads that do not divide the width are refused."""
    if config.model_type not in library.CONFIG_MAPPING:
        return False
    values = {"model_type": config.model_type,
              **library.SWITCHES.get(config.model_type, {})}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    text = refusal({**values, "hidden_size": 66, **heads})
    return bool(re.search("multiple of|divisible by", text))


def refuses_null(config, key):
    values = {"model_type": config.model_type,
              **library.SWITCHES.get(config.model_type, {})}
    return (config.model_type in library.CONFIG_MAPPING and
            not refusal(values) and bool(refusal({**values, key: None})))


def ignores_head_dim(config):
    """True if a head_dim in the file changes nothing."""
    values = {"model_type": config.model_type,
              **library.SWITCHES.get(config.model_type, {})}
    try:
        without = library.ask(values)
        with_head = library.ask({**values, "head_dim": 48})
    except (Exception, library.NoRotation):  # only a part of another type
        return False
    return [len(one["inv_freq"]) for one in without] == [
        len(one["inv_freq"]) for one in with_head]


def row_of(config):
    kind = type(config)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    # The map goes both ways: a class may have the key under its other name.
    names = {(other, key) if key in KEYS else (key, other)
             for other, key in kind.attribute_map.items()
             if key in KEYS or other in KEYS}
    names = {key: other for other, key in names}
    numbers = tuple(default(fields, key, names.get(key)) for key in KEYS)
    strict = [key for key in NULLABLE if key in fields and (
        fields[key].type is int or refuses_null(config, key))]
    return (numbers, refuses_remainder(config), ignores_head_dim(config),
            " ".join(strict),
            " ".join(sorted(f"{other}={key}" for key, other in names.items())))


def rows():
    found = {}
    for model_type in library.types():
        try:
            config = library.config_of(
                {"model_type": model_type,
                 **library.SWITCHES.get(model_type, {})})
            part = library.part_of(config)
        except Exception:  # a type without a default configuration
            continue
        if part:
            found.setdefault(key_of(part[1].model_type), row_of(part[1]))
    return found


def literal(text):
    return json.dumps(text)


def main():
    alike = {}
    for key, row in sorted(rows().items()):
        alike.setdefault(row, []).append(key)
    lines = []
    for (numbers, divided, ignores, strict, names), keys in alike.items():
        rest = [json.dumps(strict), json.dumps(names)]
        values = [json.dumps(" ".join(keys)), *map(str, numbers),
                  "true" if divided else "false",
                  "true" if ignores else "false", *rest]
        while values[-1] in ('""', "false"):
            values.pop()
        lines.append("    {" + ", ".join(values) + "},")
    TARGET.write_text(
        "// Written by tests/parity/class_defaults.py, of transformers "
        f"{library.transformers.__version__}.\n\n"
        '#include "core/model/class_defaults.h"\n\n'
        '#include "core/model/profile.h"\n\n'
        "namespace posenc::core {\nnamespace {\n\n"
        "constexpr ClassDefaults kRows[] = {\n" + "\n".join(lines) + "\n};\n\n"
        "}  // namespace\n\n"
        "const ClassDefaults* FindClassDefaults(absl::string_view model_type) {\n"
        "  for (const ClassDefaults& row : kRows) {\n"
        "    if (IsAmong(model_type, row.model_types)) return &row;\n"
        "  }\n  return nullptr;\n}\n\n"
        "}  // namespace posenc::core\n")


if __name__ == "__main__":
    sys.exit(main())
