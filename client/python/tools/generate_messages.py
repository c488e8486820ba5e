"""Writes src/posenc/messages.py: the contract's messages as dataclasses.

    python generate_messages.py PROTO_DIR OUTPUT

Needs grpcio-tools. The output is committed, so that the package installs from
a checkout. A test generates it again and compares the two.
"""

import sys
import tempfile
import textwrap
from pathlib import Path

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

FILES = ["tensor", "rope", "absolute", "relative", "diagnosis", "service"]
HEAD = '''\
"""The messages of posenc.v1, made from proto/posenc/v1 by generate_messages.py.

The .proto files are the specification: formulas, defaults and errors are
explained there. A field that is left as it is here is not sent.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, Optional, Union

from .tensor import AsArray
from .wire import OPTIONAL, REPEATED, Buffer, Message
from .wire import field as _field
'''
SCALARS = {1: ("double", "float"), 3: ("int64", "int"), 5: ("int32", "int"), 8: ("bool", "bool"),
           9: ("string", "str"), 12: ("bytes", "Buffer")}
MESSAGE, ENUM, REPEATED = 11, 14, 3
INDENT = "    "


def python_name(type_name):
    """Returns KerpleKernel for .posenc.v1.Kerple.Kernel."""
    return "".join(type_name.split(".")[3:])


def snake_upper(name):
    return "".join("_" + c if c.isupper() and i else c for i, c in enumerate(name)).upper()


def enum_text(name, enum):
    # A name such as T5 would need more rules; no enum has such a name.
    prefix = snake_upper(enum.name) + "_"
    lines = [f"class {name}(IntEnum):"]
    for value in enum.value:
        assert value.name.startswith(prefix), value.name
        lines.append(f"    {value.name[len(prefix):]} = {value.number}")
    names = [f'"{line.split()[0].lower()}"' for line in lines[1:] if not line.endswith(" = 0")]
    text = f"{name}Like = Union[{name}, Literal[{', '.join(names)}]]"
    if len(text) > 120:
        names = textwrap.fill(", ".join(names), 112, initial_indent=INDENT * 2, subsequent_indent=INDENT * 2)
        text = f"{name}Like = Union[\n{INDENT}{name},\n{INDENT}Literal[\n{names}\n{INDENT}],\n]"
    return "\n".join(lines) + "\n\n\n# A value, or its name.\n" + text


def field_line(item):
    if item.type == MESSAGE:
        kind = annotation = python_name(item.type_name)
    elif item.type == ENUM:
        kind = python_name(item.type_name)
        annotation = kind
    else:
        kind, annotation = SCALARS[item.type]
        kind = f'"{kind}"'
    arguments = [str(item.number), kind]
    if item.label == REPEATED:
        annotation = f"list[{annotation}]"
        arguments.append("REPEATED")
    elif item.HasField("oneof_index") or item.type == MESSAGE:
        annotation = f"Optional[{annotation}]"
        if item.type != MESSAGE:
            arguments.append("OPTIONAL")
    return f"    {item.name}: {annotation} = _field({', '.join(arguments)})"


def message_text(name, message, comment):
    text = textwrap.fill('"""' + " ".join(comment.split()), 99, initial_indent=INDENT, subsequent_indent=INDENT)
    lines = ["@dataclass", f"class {name}({'AsArray, ' if name == 'Tensor' else ''}Message):"]
    if comment:
        lines += [text + '"""', ""]
    lines += [field_line(item) for item in sorted(message.field, key=lambda item: item.number)]
    if not comment and not message.field:
        lines.append("    pass")
    return "\n".join(lines)


def collect(file):
    """Yields (Python name, names of the types that it needs, text) for every type in a file."""
    comments = {tuple(place.path): place.leading_comments for place in file.source_code_info.location}

    def walk(prefix, path, message):
        name = prefix + message.name
        for enum in message.enum_type:
            yield name + enum.name, [], enum_text(name + enum.name, enum)
        for i, nested in enumerate(message.nested_type):
            yield from walk(name, path + (3, i), nested)
        needs = [python_name(item.type_name) for item in message.field if item.type in (MESSAGE, ENUM)]
        yield name, needs, message_text(name, message, comments.get(path, ""))

    for enum in file.enum_type:
        yield enum.name, [], enum_text(enum.name, enum)
    for i, message in enumerate(file.message_type):
        yield from walk("", (4, i), message)


def main(proto_dir, output):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "descriptors")
        sources = [f"posenc/v1/{name}.proto" for name in FILES]
        if protoc.main(["protoc", f"-I{proto_dir}", "--include_source_info", f"--descriptor_set_out={path}", *sources]):
            sys.exit(1)
        files = descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file
    types = {name: (needs, text) for file in files for name, needs, text in collect(file)}
    done = set()
    texts = []

    def write(name):
        if name in done:
            return
        done.add(name)
        for need in types[name][0]:
            write(need)
        texts.append(types[name][1])

    for name in types:
        write(name)
    Path(output).write_text(HEAD + "\n\n" + "\n\n\n".join(texts) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
