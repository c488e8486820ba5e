"""class_rules.py [--check]: writes tests/data/parity/validators.txt, or says whether it
is current; and whether core/model/class_rules.cc says what the library's classes do.

The rules of class_rules.cc are written by hand, from the validators of transformers'
classes. Each row of its tables is tried: what it takes for absent keys is the class's
default, files that it refuses are refused, and one that it does not is taken. The rules
that are code there are not tried. validators.txt has a digest of every validator that
is not all classes': one that is new or has changed is to be read, and its rules to be
put right, before the file is written anew.
"""

import ast
import dataclasses
import hashlib
import inspect
import operator
import pathlib
import re
import sys
import textwrap

import class_fields
import written

ROOT = pathlib.Path(__file__).parents[2]
TARGET = ROOT / "tests/data/parity/validators.txt"
RULES = ROOT / "core/model/class_rules.cc"
RELATIONS = {"==": operator.eq, "<=": operator.le, "<": operator.lt, ">=": operator.ge}
OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul,
              "/": operator.floordiv, "%": operator.mod}
# All classes' own, which core/model reads elsewhere.
COMMON = ("PreTrainedConfig", "RotaryEmbeddingConfigMixin")


def rows(name):
    """(model types, further columns) of each row of a table."""
    table = re.search(name + r"\[\] = \{(.*?)\n\};", RULES.read_text(), re.DOTALL)[1]
    for row in re.findall(r"\{((?:\s*\"[^\"]*\",?)+)\s*\}", table):
        types, *columns = (re.sub(r"\"\s*\"", "", column) for column in
                           re.split(r"\",\s*\"", row.strip().strip('"')))
        yield types.split(), columns


def side(tokens, value_of):
    """What one side of a rule comes to; None if it divides by 0."""
    value, operation = 0, operator.add
    for token in tokens:
        if token in OPERATIONS:
            operation = OPERATIONS[token]
            continue
        term = (int(token) if re.fullmatch(r"-?\d+", token)
                else value_of(token.partition("=")[0]))
        if term == 0 and operation in (operator.floordiv, operator.mod):
            return None
        value = operation(value, term)
    return value


def holds(rule, value_of):
    tokens = rule.split(" ")
    at = next(i for i, token in enumerate(tokens) if token in RELATIONS)
    left, right = side(tokens[:at], value_of), side(tokens[at + 1:], value_of)
    return None not in (left, right) and RELATIONS[tokens[at]](left, right)


def default_of(config, path):
    """The class's own, of a number or of a list's length; None if it has none."""
    *outer, key = path.lstrip("#").split(".")
    for name in outer:
        config = getattr(config, name)
    default = {field.name: field.default
               for field in dataclasses.fields(config)}.get(key)
    if key not in {field.name for field in dataclasses.fields(config)}:
        default = value = getattr(config, key, None)  # computed
    else:
        value = vars(config).get(key)
    if path.startswith("#"):
        # One that the class computes for its other values is no default.
        is_own = default is dataclasses.MISSING or isinstance(default, (list, tuple))
        return len(value) if is_own and isinstance(value, (list, tuple)) else None
    return value if default is not None and type(value) is int else None


# Elements of lists, of which a class takes one.
ELEMENTS = [1, 0, 0.5, "full_attention", "sliding_attention", "linear_attention",
            "attention"]
# What classes want beside values that a rule is about.
BESIDE = {
    "axk2": {"n_group": 1, "topk_group": 1},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_budget": 2048,
                       "indexer_head_dim": 512, "indexer_compress_ratio": 4},
}


def file_with(values, beside, element):
    """A file with these numbers, and lists of these lengths, at their paths."""
    found = dict(beside)
    for path, value in values.items():
        part = found
        *outer, key = path.lstrip("#").split(".")
        for name in outer:
            part = part.setdefault(name, {})
        part[key] = [element] * value if path.startswith("#") else value
    return found


def complaints_of(rule, name, config):
    """What is wrong with a rule of one class."""
    terms = [token.partition("=") for token in rule.split(" ")
             if re.match(r"#?[A-Za-z]", token)]
    # Not those that a whole model has for its part.
    config = type(config).from_dict({})
    for path, _, given in terms:
        default = default_of(config, path)
        if given and default != int(given):
            yield f"{name}: {path} is {default} where it is absent, not {given}"
    # A number that a rule has no default for is small, and others fit it.
    defaults = {path: int(given) for path, _, given in terms if given}
    values = {path: defaults.get(path, 4) for path, _, given in terms}
    others = set(values.values())
    files = [{**values, path: number} for path, value in values.items()
             for number in (value + 1, 2 * value + 1, 1, 0, -1, 3, 64, *others)
             if number >= 0 or not path.startswith("#")]

    def takes(file, element):
        # Some classes compute a key, and take no file that has it.
        said = {path: value for path, value in file.items()
                if defaults.get(path) != value}
        return class_fields.takes(type(config),
                                  file_with(said, BESIDE.get(name, {}), element))
    held = [file for file in files if holds(rule, file.get)]
    refused = [file for file in files if file not in held]
    element = next((one for one in ELEMENTS for file in held if takes(file, one)), None)
    # Else a file may be refused for something that the rule does not say.
    if held and element is None:
        yield f"{name}: takes no file for which {rule} holds"
    for file in refused:
        if takes(file, element):
            yield f"{name}: takes {file}, which {rule} refuses"
    if not refused:
        yield f"{name}: nothing contradicts {rule}"


def complaints_of_together(keys, name, config):
    """Keys that a class takes together or not at all."""
    together = {key: BESIDE[name][key] for key in keys.split()}
    if not class_fields.takes(type(config), together):
        yield f"{name}: does not take {together}"
    for key in together:
        for some in ({key: together[key]}, {**together, key: None}):
            if class_fields.takes(type(config), some):
                yield f"{name}: takes {some} without the rest of {keys}"


def complaints_of_words(key, words, name, config):
    """Words that a class takes for a key."""
    for word in words.split():
        if not class_fields.takes(type(config), {key: word}):
            yield f"{name}: does not take {word} for {key}"
    for word in ("x", "none", "default", "full", "mean", "silu", "relu"):
        if word not in words.split() and class_fields.takes(type(config), {key: word}):
            yield f"{name}: takes {word} for {key}"


def digest(function):
    """Of what it does, not of how it is written."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise):
            node.exc = None  # its words
        elif isinstance(node, ast.FunctionDef) and ast.get_docstring(node):
            node.body = node.body[1:]
    return hashlib.sha256(ast.dump(tree).encode()).hexdigest()[:16]


def validators(kind):
    """(name, function) of those that the class has of its own."""
    for one in getattr(kind, "__class_validators__", []):
        if one.__qualname__.split(".")[0] not in COMMON:
            yield one.__name__, one
    method = vars(kind).get("__post_init__")
    if method and "raise " in inspect.getsource(method):
        yield "__post_init__", method


def text_of_validators(configs):
    found = {}
    for name, config in configs:
        for validator, function in validators(type(config)):
            found.setdefault((digest(function), validator), set()).add(name)
    lines = [f"{validator} {code} {' '.join(sorted(names))}"
             for (code, validator), names in found.items()]
    return ("# Written by tests/parity/class_rules.py: validators of transformers'\n"
            "# classes, digests of what they do, and model types.\n"
            + "\n".join(sorted(lines)) + "\n")


def told(text):
    """Lines that are not in both texts."""
    before, now = set(TARGET.read_text().splitlines()), set(text.splitlines())
    return [f"new or changed: {line}" for line in sorted(now - before)] + [
        f"gone or changed: {line}" for line in sorted(before - now)]


def main():
    configs = class_fields.configurations()
    known = {}
    for name, config in configs:
        known.setdefault(name, config)
    wrong = []
    # Of the columns, a rule's words are for readers.
    for table, number, complaints in (("kRules", 1, complaints_of),
                                      ("kTogether", 1, complaints_of_together),
                                      ("kWordRules", 2, complaints_of_words)):
        for names, columns in rows(table):
            for name in names:
                wrong += (complaints(*columns[:number], name, known[name])
                          if name in known else [f"{name}: no class of it"])
    text = text_of_validators(configs)
    if sys.argv[1:] == ["--check"]:
        wrong += told(text)
    failed = written.main(TARGET, text)
    return "\n".join([*wrong, *([failed] if failed else [])]) or None


if __name__ == "__main__":
    sys.exit(main())
