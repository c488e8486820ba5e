#!/usr/bin/env python3
"""Attacks, faults and overload against a posencd: a table of figures.

    main.py BIN_DIR [--full] [--json FILE] [--soak HOURS] [GROUP...]

Exit code 0 if every figure reached its goal, 1 if one did not, 2 for wrong
usage. README.md says what the groups are.
"""
import argparse
import importlib
import json
import os
import shutil
import sys
import tempfile
import time
import traceback

from process import CLIENT_CORES, pin
from world import World

# The groups run in this order.
GROUPS = ("lifecycle", "stalled", "overload", "fairness", "memory", "connections", "attacks",
          "certificates", "tokens", "restarts")
# These groups run only if the command line names them: they need a network, or hours.
ASKED = ("edge", "soak")


def table(figures):
    widths = [max(len(str(value)) for value in column) for column in zip(
        ("figure", "goal", "seen"), *((f"{f.row} {f.what}", f.goal, f.seen) for f in figures),
        strict=True)]
    lines = []
    for cells in [("figure", "goal", "seen", ""),
                  *((f"{f.row} {f.what}", f.goal, f.seen, f.verdict()) for f in figures)]:
        lines.append("  ".join(f"{cell:{width}}" for cell, width in zip(cells, (*widths, 0),
                                                                        strict=True)).rstrip())
    return "\n".join(lines)


def run_group(world, name):
    began = time.monotonic()
    print(f"== {name}", flush=True)
    try:
        importlib.import_module(f"rows.{name}").run(world)
    except Exception:  # a row that cannot be measured counts as failed
        traceback.print_exc()
        world.add("-", f"{name}: could be measured", "yes", "no, see above", False)
    print(f"== {name}: {time.monotonic() - began:.0f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(prog="./run chaos")
    parser.add_argument("programs")
    parser.add_argument("--full", action="store_true", help="long forms of all rows")
    parser.add_argument("--json", metavar="FILE", help="the figures as JSON")
    parser.add_argument("--soak", metavar="HOURS", type=float, help="the soak alone")
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, *ASKED, []], metavar="GROUP")
    # Groups may follow options: plain parse_args ends the list of groups at the first option.
    arguments = parser.parse_intermixed_args()
    groups = arguments.groups or GROUPS
    work = tempfile.mkdtemp(prefix="posenc-chaos-")
    world = World(arguments.programs, work, arguments.full)
    if arguments.soak:
        world.hours, groups = arguments.soak, ("soak",)
    pin(CLIENT_CORES)
    try:
        for name in groups:
            run_group(world, name)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(table(world.figures))
    failed = sum(figure.passed is False for figure in world.figures)
    print(f"{len(world.figures)} figures, {failed} not reached")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"full": arguments.full, "cores": os.cpu_count(),
                       "figures": [figure.json() for figure in world.figures]}, file, indent=1)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
