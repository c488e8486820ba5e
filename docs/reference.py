"""Writes the reference: docs/reference/contract.md from the protos; commands.md,
server.md and load.md from the programs' own help; checks.md from the command's list of
doctor's checks.

    reference.py BIN          writes it; BIN holds posenc, posencd and posenc-load
    reference.py BIN check    fails if the reference is old
"""

import json
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PROTOS = DOCS.parent / "proto/posenc/v1"
FILES = ("service", "rope", "tensor", "absolute", "relative", "diagnosis", "errors")

FIELD = re.compile(r"(?:(repeated|optional) )?([\w.]+) (\w+) = (\d+)(?: \[[^]]*\])?;")
VALUE = re.compile(r"(\w+) = (\d+);")
RPC = re.compile(r"rpc (\w+)\((stream )?(\w+)\) returns \((stream )?(\w+)\) \{")


class Scope:
    """A message, an enum, a service, or a oneof; a oneof's rows belong to its message."""

    def __init__(self, kind, name, comment):
        self.kind, self.name, self.comment, self.rows = kind, name, comment, []


def escaped(text):
    """Returns Markdown that shows the text; `code` stays code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([<*])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts).replace("|", "\\|")


def paragraph(comment):
    """Returns a comment's lines as Markdown; lists stay lists."""
    return "\n".join(escaped(line) for line in comment).strip()


def cell(comment):
    """Returns a comment's lines as one line of Markdown, for a table."""
    return " ".join(("<br>" if line.startswith("- ") or not line else "") + escaped(line) for line in comment).strip()


def read(path):
    """Returns the scopes of a proto, in the order of their first lines."""
    found, open_scopes, comment = [], [], []
    for number, raw in enumerate(path.read_text().splitlines(), 1):
        line = raw.strip()
        code, _, trailing = line.partition("//")
        code, trailing = code.strip(), [trailing.strip()] if trailing else []
        if not code:
            comment = comment + trailing if trailing else ([*comment, ""] if line.startswith("//") else [])
            continue
        said, comment = [*comment, *trailing], []
        begin = re.fullmatch(r"(message|enum|service|oneof) (\w+) \{(\})?", code)
        if begin:
            kind, name, ends = begin.groups()
            if kind == "oneof":
                open_scopes.append(Scope(kind, name, said))
                continue
            around = [scope.name for scope in open_scopes if scope.kind == "message"]
            found.append(Scope(kind, ".".join([*around, name]), said))
            if not ends:
                open_scopes.append(found[-1])
        elif code == "}":
            open_scopes.pop()
        elif not open_scopes:
            if not re.match(r"(syntax|package|option|import) ", code + " "):
                sys.exit(f"{path}:{number}: not understood: {code}")
        elif open_scopes[-1].kind == "rpc" and code.startswith("option "):
            continue
        elif RPC.fullmatch(code):
            name, in_stream, request, out_stream, response = RPC.fullmatch(code).groups()
            types = [("stream " if stream else "") + link(kind)
                     for stream, kind in ((in_stream, request), (out_stream, response))]
            open_scopes[-1].rows.append((f"`{name}`", " -> ".join(types), cell(said)))
            open_scopes.append(Scope("rpc", name, []))
        elif open_scopes[-1].kind == "enum" and VALUE.fullmatch(code):
            name, value = VALUE.fullmatch(code).groups()
            open_scopes[-1].rows.append((f"`{name}`", value, cell(said)))
        elif FIELD.fullmatch(code):
            label, kind, name, _ = FIELD.fullmatch(code).groups()
            message = [scope for scope in open_scopes if scope.kind == "message"][-1]
            inside = open_scopes[-1]
            if inside.kind == "oneof":
                said = [f"One of {inside.name}.", *said]
            message.rows.append((f"`{name}`", (f"{label} " if label else "") + link(kind), cell(said)))
        else:
            sys.exit(f"{path}:{number}: not understood: {code}")
    return found


def link(kind):
    return f"[{kind}](#{kind.lower().replace('.', '')})" if kind[0].isupper() else f"`{kind}`"


def nested_links(page):
    """Puts a message's name in front of links to its nested types."""
    names = {name.lower() for name in re.findall(r"^### (\S+)$", page, re.M)}
    anchors = {name.replace(".", "") for name in names}

    def whole(match):
        if match[1] in anchors:
            return match[0]
        inside = [name for name in names if name.endswith("." + match[1])]
        if len(inside) != 1:
            sys.exit(f"#{match[1]}: one type is meant, these are there: {inside}")
        return f"](#{inside[0].replace('.', '')})"

    return re.sub(r"\]\(#(\w+)\)", whole, page)


def contract():
    page = ("# The contract\n\nWritten by `./run docs` from [proto/posenc/v1](../../proto/posenc/v1), "
            "which specifies it.\n")
    heads = {"message": ("field", "type", ""), "enum": ("value", "number", ""), "service": ("RPC", "types", "")}
    for name in FILES:
        page += f"\n## {name}.proto\n"
        for scope in read(PROTOS / f"{name}.proto"):
            page += f"\n### {scope.name}\n"
            if scope.comment:
                page += f"\n{paragraph(scope.comment)}\n"
            if scope.rows:
                page += "\n| " + " | ".join(heads[scope.kind]) + " |\n|---|---|---|\n"
                page += "".join("| " + " | ".join(row) + " |\n" for row in scope.rows)
    return nested_links(page)


def help_of(*command):
    done = subprocess.run([*command, "--help"], check=True, capture_output=True, text=True)
    return "\n".join(line.rstrip() for line in done.stdout.splitlines()).strip()


def commands(posenc):
    top = help_of(posenc)
    names = re.findall(r"^  ([a-z][\w-]*) +\S", top[top.index("Subcommands:"):], re.M)
    page = ("# The command\n\nWritten by `./run docs` from `posenc --help`. What the commands are for: "
            f"[client/tools/cli](../../client/tools/cli/README.md).\n\n```\n{top}\n```\n")
    for name in names:
        page += f"\n## {name}\n\n```\n{help_of(posenc, name)}\n```\n"
    return page


def program(path, title, beside):
    return f"# {title}\n\nWritten by `./run docs` from `{path.name} --help`. {beside}\n\n```\n{help_of(path)}\n```\n"


def checks(posenc):
    done = subprocess.run([posenc, "--json", "doctor", "--checks"], check=True, capture_output=True, text=True)
    page = ("# Doctor's checks\n\nWritten by `./run docs` from `posenc doctor --checks`. Ids are stable. "
            "*By size*: [what a difference means](../doctor.md#what-a-difference-means). \"...\" stands for "
            "a finding's own values. A number is a thread that shows it.\n\n"
            "| id | severity | finds | fix | seen in |\n|---|---|---|---|---|\n")
    for check in json.loads(done.stdout)["checks"]:
        cells = [f"`{check['id']}`", check["severity"], escaped(check["finds"]), escaped(check["fix"]),
                 ", ".join(check["see"])]
        page += "| " + " | ".join(cells) + " |\n"
    return page


def main():
    programs, check = Path(sys.argv[1]).resolve(), sys.argv[2:] == ["check"]
    pages = {
        "contract.md": contract(),
        "commands.md": commands(programs / "posenc"),
        "checks.md": checks(programs / "posenc"),
        "server.md": program(programs / "posencd", "The server",
                             "What the keys mean, and their other spellings: [the server](../server.md)."),
        "load.md": program(programs / "posenc-load", "The load tester",
                           "How to use it: [load-test](../how-to/load-test.md)."),
    }
    folder = DOCS / "reference"
    folder.mkdir(exist_ok=True)
    for name, page in pages.items():
        path = folder / name
        if not check:
            path.write_text(page)
        elif not path.exists() or path.read_text() != page:
            sys.exit(f"docs/reference/{name} is old; write it with ./run docs")


main()
