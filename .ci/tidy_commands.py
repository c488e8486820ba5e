"""Writes what .ci/tidy must know of sources, from a build's compile_commands.json.

    tidy_commands.py BUILD COMMANDS INCLUSIONS

Writes COMMANDS, a compile_commands.json in which each source stands by itself, also if
the build compiles it as a part of a unity source. Leaves out precompiled headers, because
Clang cannot read GCC's, and because a source that only compiles with them lacks an include.
Leaves out -Werror, which is for GCC's warnings: Clang's -Wshadow and -Wconversion mean more.

Writes INCLUSIONS, which has a line "SOURCE FILE" for each FILE of the project that SOURCE
includes, directly or not, and for SOURCE itself. Both are relative to the project.
"""

import functools
import json
import pathlib
import re
import sys

ROOT = pathlib.Path.cwd()
INCLUDE = re.compile(r'^ *# *include "([^"]+)"', re.MULTILINE)
LEFT_OUT = re.compile(r" -Winvalid-pch| -Werror| -include \S*cmake_pch\.hxx")


def sources(entry):
    """Yields an entry for each source that the entry compiles."""
    command = LEFT_OUT.sub("", entry["command"])
    file = entry["file"]
    parts = [file]
    if "/Unity/unity_" in file:
        parts = INCLUDE.findall(pathlib.Path(file).read_text())
    for part in parts:
        yield {**entry, "file": part, "command": command.replace(f" -c {file}", f" -c {part}")}


@functools.cache
def names_in(file):
    return INCLUDE.findall(file.read_text())


def included(file, folders, known):
    """Adds file, and what it includes of the project, to the set known."""
    file = file.resolve()
    if file in known or not file.is_relative_to(ROOT) or not file.exists():
        return
    known.add(file)
    for name in names_in(file):
        for folder in (file.parent, *folders):
            if (folder / name).exists():
                included(folder / name, folders, known)
                break


def main(build, commands, inclusions):
    entries = json.loads((pathlib.Path(build) / "compile_commands.json").read_text())
    alone = [part for entry in entries for part in sources(entry)]
    pathlib.Path(commands).write_text(json.dumps(alone, indent=0))
    with open(inclusions, "w") as out:
        for entry in alone:
            folders = re.findall(r"(?:-I|-isystem )(\S+)", entry["command"])
            known = set()
            included(pathlib.Path(entry["file"]), [pathlib.Path(f) for f in folders], known)
            source = pathlib.Path(entry["file"]).resolve()
            for file in sorted(known):
                print(source.relative_to(ROOT), file.relative_to(ROOT), file=out)


main(*sys.argv[1:])
