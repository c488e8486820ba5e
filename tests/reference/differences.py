"""The kept share of a score if keys and queries are rotated by another
encoding than in training: RopeDifference and AnalyzeRopeResponse.kept
(posenc.v1 service.proto)."""

import json

from exact import EXACT, absolute, expectation, mp, mpf
from profiles import PRESETS, read_source
from scalings import resolve_rounded

DENSE = 4096  # distances that are all tried


def frequencies_of(source, head_dim):
    """Returns one frequency per pair, for one axis; nothing for NoPE."""
    model = read_source(source)
    spec = model["spec"]
    if spec.get("nope"):
        return []
    width = spec.get("rotaryDim") or head_dim or model["head_dim"]
    length = source.get("sequenceLength", model.get("assumed_length"))
    lines, _ = resolve_rounded(spec, width, length)
    assert len(lines) == 1 and len(lines[0]) == 1, "one head and axis"
    sign = -1 if spec.get("reverse") else 1
    return [sign * w for w in lines[0][0]]


def kept(reference, other, distance):
    pairs = max(len(reference), len(other))
    total = mpf(0)
    for i in range(pairs):
        a = reference[i] if i < len(reference) else mpf(0)
        b = other[i] if i < len(other) else mpf(0)
        total += mp.cos(distance * (a - b))
    return total / pairs


def slack(reference, other, distance):
    """Bounds the error that comes from frequencies with a wrong last bit."""
    worst = max(abs(w) for w in reference + other)
    return mpf(2) ** -50 + distance * worst * mpf(2) ** -52


def claimed_length(source):
    if "spec" in source:
        return 0
    text = source.get("configJson") or PRESETS[source["preset"]]
    return json.loads(text).get("max_position_embeddings", 0)


def difference(request):
    """Cases must differ at a distance below DENSE, or not at all, because not all
    distances beyond DENSE are tried."""
    head_dim = request.get("headDim")
    reference = frequencies_of(request["rope"], head_dim)
    other = frequencies_of(request["compareWith"], head_dim)
    length = int(request.get("length", 0)) or claimed_length(
        request["rope"]) or 8192
    first = -1
    if reference != other:
        first = next((r for r in range(1, min(length, DENSE) + 1)
                      if kept(reference, other, r) < mpf("0.9")), -1)
        assert first > 0 or length <= DENSE, "not known beyond DENSE"
    return [
        expectation("difference.firstDistance", first, EXACT),
        expectation("difference.keptAtLength",
                    kept(reference, other, length),
                    absolute(slack(reference, other, length))),
        expectation("difference.length", length, EXACT),
    ]


def kept_at(request, distances):
    head_dim = request.get("headDim")
    reference = frequencies_of(request["rope"], head_dim)
    other = frequencies_of(request["compareWith"], head_dim)
    return expectation(
        "kept", [kept(reference, other, r) for r in distances],
        absolute(slack(reference, other, distances[-1])), [len(distances)])
