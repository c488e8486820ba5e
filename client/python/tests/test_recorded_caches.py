"""Moves recorded keys of transformers' classes, and compares them with the classes' own keys at the new positions."""

import base64
import gzip
import json
import sys

import numpy
import pytest
from conftest import ROOT

sys.path.append(str(ROOT / "tests" / "parity"))
import bound  # noqa: E402

RECORD = ROOT / "tests" / "data" / "parity" / "caches.jsonl.gz"
CASES = [json.loads(line) for line in gzip.decompress(RECORD.read_bytes()).splitlines()]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_moved_keys_are_those_that_the_class_computed(client, case):
    before, after = (
        numpy.frombuffer(base64.b64decode(case[name]), numpy.float32).reshape(case["shape"])
        for name in ("before", "after")
    )
    options = {name: case[name] for name in ("layer_index", "part", "head_dim")}
    old, new = (
        client.rope({"config_json": case["config_json"]}, sequence_length=length, **options)
        for length in case["lengths"]
    )
    changed = old.resolved.inv_freq != new.resolved.inv_freq
    moved = old.reposition(
        before, new_rope=new, old_positions=case["start"], shift=case["shift"], layout="bhsd"
    )
    assert not numpy.array_equal(before, after)
    ours, theirs = moved.astype(numpy.float64), after.astype(numpy.float64)
    arguments = bound.UNIT["float32"], new.resolved, case["start"], case["shift"], changed
    assert bound.ratio(ours, theirs, *arguments) <= 1
