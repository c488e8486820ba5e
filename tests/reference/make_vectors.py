#!/usr/bin/env python3
"""Writes proto/testdata/conformance/*.json: requests with the true answers.

  make_vectors.py           writes the files
  make_vectors.py --check   fails if it would write other files

It needs mpmath. It shares nothing with the implementation: the formulas come
from the contract's comments and the papers that they name.
"""

import json
import pathlib
import re
import sys

sys.dont_write_bytecode = True  # leaves only the vectors behind

import absolute
import cases_absolute
import cases_apply
import cases_diagnosis
import cases_positions
import cases_relative
import cases_reposition
import cases_resolve
import cases_table
import cases_towers
import positions
import relative
import rotary

TARGET = (pathlib.Path(__file__).resolve().parents[2] /
          "proto/testdata/conformance")


def _build_table(request):
    if "absolute" in request:
        return absolute.build_absolute_table(request)
    return rotary.build_rope_table(request)


ORACLES = {
    "ResolveRope": rotary.resolve_rope,
    "BuildTable": _build_table,
    "ApplyRope": rotary.apply_rope,
    "Reposition": rotary.reposition,
    "ConvertPairing": rotary.convert_pairing,
    "AnalyzeRope": rotary.analyze_rope,
    "BuildBias": relative.build_bias,
    "ScoreRelative": relative.score_relative,
    "BuildPositions": positions.build_positions,
    "AddEncoding": absolute.add_encoding,
}


def groups():
    out = {}
    for module in (cases_resolve, cases_table, cases_apply, cases_absolute,
                   cases_relative, cases_positions, cases_reposition,
                   cases_towers, cases_diagnosis):
        out.update(module.groups())
    return out


def render(cases):
    """Writes one case per line, so that a difference names the case."""
    lines = []
    for case in cases:
        if "expect" not in case:
            try:
                case["expect"] = ORACLES[case["rpc"]](case["request"])
            except Exception:
                print("in case", case["name"], file=sys.stderr)
                raise
        lines.append(json.dumps(case, separators=(",", ":")))
    return "[\n" + ",\n".join(lines) + "\n]\n"


def main(arguments):
    check = arguments == ["--check"]
    if arguments and not check:
        print(__doc__, file=sys.stderr)
        return 2
    names, written, different = set(), set(), []
    for group, cases in groups().items():
        for case in cases:
            name = case["name"]
            if name in names or not re.fullmatch("[A-Za-z0-9]+", name):
                raise ValueError(f"{name}: not a unique word")
            names.add(name)
        text = render(cases)
        path = TARGET / f"{group}.json"
        written.add(path)
        if not check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            different.append(path.name)
    stray = sorted(set(TARGET.glob("*.json")) - written)
    if not check:
        for path in stray:
            path.unlink()
    else:
        different += [path.name for path in stray]
    if different:
        print("not what make_vectors.py writes:", ", ".join(different),
              file=sys.stderr)
        return 1
    print(f"{len(names)} cases in {len(written)} files")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
