"""class_fields.py [--check]: writes core/model/class_fields.txt, or says whether it
is current.

Which types of values the newest transformers' configuration classes take for their
fields, of every file with a part that rotates and of all parts of such files. The
classes are dataclasses that check each field, whether or not the model needs it.
"""

import ast
import collections
import dataclasses
import functools
import inspect
import pathlib
import re
import sys
import textwrap
import types
import typing

import library
import transformers
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


# Lists of layers, by words or numbers, that a file may have in place of other keys.
LISTS = {"layer_types": ["full_attention", "sliding_attention", "linear_attention"],
         "mlp_layer_types": ["dense", "sparse"], "indexer_types": ["full", "shared"],
         "no_rope_layers": [1, 0], "moe_layers": [0]}
# Below 1, core/model/known_keys.cc fails for these.
SIZES = {"hidden_size", "num_hidden_layers", "num_attention_heads", "head_dim",
         "max_position_embeddings"}


class Probes:
    """Files of a class that say more than its name: each has one further key."""

    def __init__(self, kind, base):
        self.kind, self.base = kind, base

    def changes(self):
        """(key, value) of what a file may say, where the class's default is another."""
        values = vars(self.kind.from_dict(self.base))
        number = values.get("num_hidden_layers")
        number = number if isinstance(number, int) else 0
        for field in dataclasses.fields(self.kind):
            now, allowed = values.get(field.name), atoms(field.type)
            if field.name == "model_type" or field.name in self.base:
                continue
            for word in LISTS.get(field.name, ()):
                yield field.name, [word] * number
            if field.default is None and isinstance(now, (bool, int, float, str, list)):
                yield field.name, now
            others = [not now] if isinstance(now, bool) else []
            if "int" in allowed and not isinstance(now, bool):
                others += [1] if field.name in SIZES else [0, 1]
            if "null" in allowed:
                others.append(None)
            others += [one[1:] for one in allowed if one.startswith("=")]
            yield from ((field.name, value) for value in others if value != now)

    @functools.cached_property
    def files(self):
        """{key: files with it that the class takes}."""
        found = collections.defaultdict(list)
        for key, value in self.changes():
            file = {**self.base, key: value}
            if takes(self.kind, file):
                found[key].append(file)
        return found

    @functools.cached_property
    def lists(self):
        """The keys of which all files have a list there."""
        return {key for key, files in self.files.items()
                if all(isinstance(file[key], list) or file[key] is None
                       for file in files)
                and any(isinstance(file[key], list) for file in files)}

    def takers(self, key, value):
        """The lists beside which the class takes a value that it refuses alone; None
        if it takes it for another reason."""
        found = set()
        for other, files in self.files.items():
            if other == key or not any(takes(self.kind, {**file, key: value})
                                       for file in files):
                continue
            if other not in self.lists:
                return None
            found.add(other)
        return found


# Values by their types, of which a class that takes the type takes one.
SAMPLES = {"float": [1.5, 0.5], "str": ["x", "default", "silu"], "bool": [True],
           "null": [None]}
# Such keys have one number or flag; others' arrays and objects may be of any length.
SCALAR = re.compile(r"num_|tie_|use_|.*_(pattern|interval)$|.*_(dim|size|heads|layers)$")
# Read as core/model/rope_config.h says.
ROTARY = re.compile(r"rope|partial_rotary")


def taken_besides(kind):
    """The keys that a class's constructor looks for beside its fields."""
    for one in kind.__mro__:
        method = vars(one).get("__post_init__")
        if method is None or one is transformers.PreTrainedConfig:
            continue
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(method)))):
            if (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
                    and node.func.attr in ("pop", "get") and node.args
                    and isinstance(node.func.value, ast.Name)
                    and node.func.value.id == "kwargs"
                    and isinstance(node.args[0], ast.Constant)):
                yield node.args[0].value


def taken(kind, probes, key, numbers):
    """The types of which the class takes some value; empty for all of them."""
    samples = {"int": sorted({1, 2, 64, *numbers}), **SAMPLES}
    found = {name for name, values in samples.items()
             if any(takes(kind, {**probes.base, key: value}) for value in values)}
    if "bool" not in found and takes(kind, {**probes.base, key: False}):
        found.add("false")
    if found == set(samples) or not found - {"null", "str"}:
        return set()
    lists = None
    for name in samples.keys() - found:
        beside = probes.takers(key, samples[name][0])
        if beside is None:
            found.add(name)
            continue
        lists = beside if lists is None else lists & beside
        found |= {f"{name}@{one}" for one in beside}
    if found >= set(samples):
        return set()
    if not SCALAR.match(key):
        found |= {"list", "{}"}
    # Of what stands there then, the class reads nothing.
    for one in lists or ():
        found = {name for name in found if not name.endswith(f"@{one}")}
        found.add(f"any@{one}")
    return found


def name_of(kind):
    """Of a class whose files name no type, its own name."""
    return kind.model_type or kind.__name__


def choices(field):
    """The strings that a field's own validator takes, None if it has none such."""
    for validator in field.metadata.get("validator", []):
        if validator.__name__ == "activation_fn_key":
            return {f"={name}" for name in transformers.activations.ACT2FN}
    return None


# Kinds of values that are narrower than a type, and of which values the class then
# refuses all.
BELOW = [-1, -2, -4096, -5120]
NARROWER = [("int", "positive", [0, *BELOW]), ("int", "natural", BELOW),
            ("int", "nonzero", [0]), ("float", "unit", [1.5, -0.5]), ("bool", "false", [True]),
            ("bool", "true", [False])]


def narrowed(kind, probes, field, allowed):
    """Without values that the class refuses, whatever else its files say; but with
    their type beside a list (@) where the class takes one of them."""
    def refused(value):
        return not takes(kind, {**probes.base, field.name: value})

    def without(wider, narrower, values):
        if not all(map(refused, values)):
            return allowed
        beside = [probes.takers(field.name, value) for value in values]
        if None in beside:
            return allowed
        return (allowed - {wider} | ({narrower} if narrower else set())
                | {f"{wider}@{one}" for one in set().union(*beside)})
    found = choices(field)
    if found:
        allowed = allowed - {"str"} | found
    if {"int", "str"} <= allowed and not refused("auto"):
        allowed = without("str", "=auto", ["x"])
    if "null" in allowed:
        allowed = without("null", "", [None])
    for wider, narrower, values in NARROWER:
        if wider in allowed:
            allowed = without(wider, narrower, values)
    return allowed


def fields_of(config):
    """{key: alternatives} of a configuration's class, by all of its names."""
    kind = type(config)
    base = {"model_type": config.model_type,
            **library.SWITCHES.get(config.model_type, {})}
    parts = {name: name_of(type(getattr(config, name)))
             for name in library.parts(config)}
    probes = Probes(kind, base)
    found = {}
    for field in dataclasses.fields(kind):
        allowed = atoms(field.type, parts.get(field.name, ""))
        if "any" in allowed or not allowed:
            continue
        if takes(kind, base):
            allowed = narrowed(kind, probes, field, allowed)
        found[field.name] = allowed
    numbers = [field.default for field in dataclasses.fields(kind)
               if type(field.default) is int and field.default]
    for key in sorted(set(taken_besides(kind)) - found.keys()):
        if ROTARY.match(key):
            continue
        allowed = taken(kind, probes, key, numbers) if takes(kind, base) else set()
        if allowed:
            found[key] = allowed
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
    for model_type, config, _ in library.rotating():
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
             f"{transformers.__version__}: type, keys, model types.",
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
