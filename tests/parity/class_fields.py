"""class_fields.py [--check]: writes core/model/class_fields.txt, or says whether it
is current.

Which types of values the newest transformers' configuration classes take for their
fields, of every file with a part that rotates and of all parts of such files. The
classes are dataclasses that check each field, whether or not the model needs it.
"""

import collections
import dataclasses
import pathlib
import sys
import types
import typing

import library
import written

TARGET = pathlib.Path(__file__).parents[2] / "core/model/class_fields.txt"
ATOMS = {int: "int", float: "float", bool: "bool", str: "str",
         type(None): "null", list: "list", dict: "{}"}


def atoms(annotation, part=""):
    """The alternatives of a field's type; empty for one that is not checked."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if isinstance(annotation, str) or annotation is typing.Any:
        return {"any"}
    if origin in (typing.Union, types.UnionType):
        return set().union(*(atoms(one, part) for one in arguments))
    if origin is typing.Literal:
        return {f"={value}" for value in arguments}
    if origin is list and arguments:
        inner = sorted(atoms(arguments[0]))
        plain = all(one in ("int", "float", "bool", "str", "null") for one in inner)
        return {f"list[{','.join(inner)}]" if plain else "list"}
    if annotation is dict or origin is dict:
        return {"{" + part + "}"}
    # A tuple or a configuration is nothing that JSON has.
    return {ATOMS[annotation]} if annotation in ATOMS else set()


def takes(kind, values):
    try:
        kind.from_dict(values)
    except Exception:  # whatever it is, the class refuses it
        return False
    return True


def null_of(kind, base, key):
    """What a class makes of a null that the field's type has: "null" if it takes it,
    "listed" if it does where the file lists its layers, else ""."""
    number = getattr(kind, "num_hidden_layers", 0)
    layers = ["sliding_attention"] * (number if isinstance(number, int) else 0)
    if takes(kind, {**base, key: None}) or not takes(kind, base):
        return "null"
    return "listed" if takes(kind, {**base, key: None, "layer_types": layers}) else ""


# No fields, but integers that some classes compute with.
COUNTS = ["num_nextn_predict_layers"]


def name_of(kind):
    """Of a class whose files name no type, its own name."""
    return kind.model_type or kind.__name__


def narrowed(kind, base, key, allowed):
    """Without numbers that a field's own validator refuses."""
    def refused(value):
        return takes(kind, base) and not takes(kind, {**base, key: value})
    if "int" in allowed and refused(0) and not refused(1):
        return allowed - {"int"} | {"positive"}
    if "float" in allowed and refused(1.5) and not refused(0.5):
        return allowed - {"float"} | {"unit"}
    return allowed


def fields_of(config):
    """{key: alternatives} of a configuration's class, by all of its names."""
    kind = type(config)
    base = {"model_type": config.model_type,
            **library.SWITCHES.get(config.model_type, {})}
    parts = {name: name_of(type(getattr(config, name)))
             for name in library.parts(config)}
    found = {}
    for field in dataclasses.fields(kind):
        allowed = atoms(field.type, parts.get(field.name, ""))
        if "any" in allowed or not allowed:
            continue
        if "null" in allowed:
            allowed = allowed - {"null"} | {null_of(kind, base, field.name)} - {""}
        if field.metadata.get("validator"):
            allowed = narrowed(kind, base, field.name, allowed)
        found[field.name] = allowed
    for key in COUNTS:
        if takes(kind, base) and not takes(kind, {**base, key: "x"}):
            found.setdefault(key, {"int"} | (
                {"null"} if takes(kind, {**base, key: None}) else set()))
    for name, key in kind.attribute_map.items():
        if key in found:
            found.setdefault(name, found[key])
    return found


def walk(config, found):
    if type(config) in found:
        return
    found[type(config)] = config
    for name in library.parts(config):
        walk(getattr(config, name), found)


def configurations():
    """(name, configuration) of each class."""
    found = {}
    names = []
    for model_type in library.types():
        try:
            config = library.config_of(
                {"model_type": model_type, **library.SWITCHES.get(model_type, {})})
            rotates = library.part_of(config)
        except Exception:  # a type without a default configuration
            continue
        if rotates:
            walk(config, found)
            if model_type != type(config).model_type:
                names.append((model_type, config))
    return [(name_of(kind), config) for kind, config in found.items()] + names


def merged(one, other):
    """Two classes of one model type: what either takes."""
    return {key: one[key] | other[key] for key in one.keys() & other.keys()}


def text_of_rows():
    classes = {}
    for model_type, config in configurations():
        fields = fields_of(config)
        known = classes.get(model_type)
        classes[model_type] = merged(known, fields) if known else fields
    having = collections.defaultdict(set)
    for model_type, fields in classes.items():
        for key, allowed in fields.items():
            having[key, "|".join(sorted(allowed))].add(model_type)
    alike = collections.defaultdict(list)
    for (key, allowed), model_types in having.items():
        alike[allowed, tuple(sorted(model_types))].append(key)
    lines = [f"# Written by tests/parity/class_fields.py, of transformers "
             f"{library.transformers.__version__}: type, keys, model types.",
             "# A line that begins with ! is of all types but those.",
             " ".join(sorted(classes))]
    for (allowed, model_types), keys in sorted(alike.items()):
        rest = sorted(classes.keys() - set(model_types))
        some = model_types if len(model_types) <= len(rest) else rest
        sign = "" if some is model_types else "!"
        lines.append(f"{sign}{allowed}\t{' '.join(sorted(keys))}\t{' '.join(some)}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(written.main(TARGET, text_of_rows()))
