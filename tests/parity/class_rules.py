"""class_rules.py [--check]: writes tests/data/parity/validators.txt, or says whether it
is current; and whether core/model/class_rules.cc says what the library's classes do.

The rules of class_rules.cc are written by hand, from the validators of transformers'
classes. Each rule is tried: what it takes for absent keys is the class's default, and
files that it refuses are refused. validators.txt has a digest of every validator that
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


def rules():
    """(model types, rule) of each row."""
    table = re.search(r"kRules\[\] = \{(.*?)\n\};", RULES.read_text(), re.DOTALL)[1]
    for row in re.findall(r"\{((?:\s*\"[^\"]*\",?)+)\s*\}", table):
        types, rule = re.split(r"\",\s*\"", row.strip().strip('"'), maxsplit=1)
        yield (re.sub(r"\"\s*\"", "", types).split(), re.sub(r"\"\s*\"", "", rule))


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


def file_with(values):
    """A file with these numbers, and lists of these lengths, at their paths."""
    found = {}
    for path, value in values.items():
        part = found
        *outer, key = path.lstrip("#").split(".")
        for name in outer:
            part = part.setdefault(name, {})
        part[key] = [1] * value if path.startswith("#") else value
    return found


def complaints_of(rule, name, config):
    """What is wrong with a rule of one class."""
    terms = [token.partition("=") for token in rule.split(" ")
             if re.match(r"#?[A-Za-z]", token)]
    for path, _, given in terms:
        default = default_of(config, path)
        if given and default != int(given):
            yield f"{name}: {path} is {default} where it is absent, not {given}"
    # A number that a rule has no default for is small, and others fit it.
    values = {path: int(given) if given else 4 for path, _, given in terms}
    tried = 0
    for path in values:
        for number in (values[path] + 1, 2 * values[path] + 1, 1, 0, -1, 3):
            changed = {**values, path: number}
            if (number < 0 and path.startswith("#")) or holds(rule, changed.get):
                continue
            tried += 1
            if class_fields.takes(type(config), file_with(changed)):
                yield f"{name}: takes {changed}, which {rule} refuses"
    if not tried:
        yield f"{name}: nothing contradicts {rule}"


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
    for names, rule in rules():
        for name in names:
            wrong += (complaints_of(rule, name, known[name]) if name in known
                      else [f"{name}: no class of it"])
    text = text_of_validators(configs)
    if sys.argv[1:] == ["--check"]:
        wrong += told(text)
    failed = written.main(TARGET, text)
    return "\n".join([*wrong, *([failed] if failed else [])]) or None


if __name__ == "__main__":
    sys.exit(main())
