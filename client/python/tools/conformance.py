"""Replays the conformance vectors through the client.

    python conformance.py TARGET FOLDER

Prints a line for each case: family, name, ok or fail, and why.
"""

import math
import sys

import numpy
import posenc
from posenc import messages
from posenc.channels import Call
from posenc.coerce import message_of
from posenc.errors import PosencError
from posenc.wire import encode
from vectors import load, misfit, snake


def array(json):
    """Returns a tensor of a request as a numpy array, or None if the tensor is malformed."""
    tensor = message_of(messages.Tensor, json, "tensor")
    if tensor.dtype not in range(1, 7) or math.prod(tensor.shape) != len(tensor.values) or tensor.data:
        return None
    # numpy multiplies the other extents even if one extent is 0, and refuses a product that is too large.
    if math.prod(max(extent, 1) for extent in tensor.shape) >= 2**60:
        return None
    return numpy.asarray(tensor)


def number(json):
    """Converts a number that JSON spells as text. Returns other values unchanged."""
    for kind in (int, float) if isinstance(json, str) else ():
        try:
            return kind(json)
        except ValueError:
            pass
    return json


def rope(json):
    return message_of(messages.RopeSource, json, "rope")


def places(json):
    return message_of(messages.Positions, json, "positions")


# Functions that convert a request's field to the method's argument.
CONVERSIONS = {
    "rope": rope,
    "compareWith": rope,
    "oldRope": rope,
    "newRope": rope,
    "positions": places,
    "q": array,
    "k": array,
    "x": array,
    "weight": array,
}
METHODS = {
    "ResolveRope": "resolve",
    "BuildTable": "build_table",
    "BuildBias": "build_bias",
    "BuildPositions": "build_positions",
    "ApplyRope": "apply_rope",
    "Reposition": "reposition",
    "AddEncoding": "add_encoding",
    "ScoreRelative": "score_relative",
    "ConvertPairing": "convert_pairing",
    "AnalyzeRope": "analyze_rope",
    "DiagnoseRope": "diagnose_rope",
}
# Required arguments of each method. Callers of the method cannot leave these fields unset.
REQUIRED = {
    "ResolveRope": {"rope"},
    "BuildBias": {"bias", "queryLength", "keyLength"},
    "ApplyRope": {"rope", "positions", "layout"},
    "Reposition": {"oldRope", "k"},
    "AddEncoding": {"x", "encoding"},
    "ScoreRelative": {"q", "k", "score"},
    "ConvertPairing": {"weight", "oldPairing", "newPairing", "heads"},
    "AnalyzeRope": {"rope"},
    "DiagnoseRope": {"inputs"},
}
POSITIONAL = {"resolve": ["rope"], "build_bias": ["bias"], "analyze_rope": ["rope"], "diagnose_rope": ["inputs"]}


def arguments(rpc, request):
    """Returns (positional, keyword) arguments of the client's method, or None if it cannot express the request."""
    if not REQUIRED.get(rpc, set()) <= set(request):
        return None
    if rpc == "BuildPositions":
        return [request], {}
    # A complex table is one array, which has no amplitude.
    if rpc == "BuildTable" and request.get("layout") == "TABLE_LAYOUT_COMPLEX":
        return None
    # A caller of build_table cannot leave positions unset, because their default is 0.
    if rpc == "BuildTable" and "positions" not in request and "sincosGrid" not in request.get("absolute", {}):
        return None
    given = {}
    for name, value in request.items():
        if name == "movement":
            continue
        given[snake(name)] = CONVERSIONS.get(name, number)(value)
        if given[snake(name)] is None:
            return None
    if rpc == "Reposition":
        given["rope"] = given.pop("old_rope")
        movement = message_of(messages.Movement, request.get("movement", {}), "movement")
        if movement == messages.Movement() and "movement" in request:
            return None
        if movement.shifts is not None and not movement.shifts.dtype:
            return None
        given["old_positions"], given["new_positions"] = movement.old_positions, movement.new_positions
        given["shift"] = movement.shift if movement.shift is not None else movement.shifts
    if "slice" in given:
        given["rotary_slice"] = given.pop("slice")
    if rpc == "ApplyRope":
        given.setdefault("q", None)
    first = [given.pop(name) for name in POSITIONAL.get(METHODS[rpc], []) if name in given]
    return first, given


def parts(rpc, result):
    """Returns the arrays of a result by the names that expectations use."""
    if rpc == "ApplyRope":
        return {"q": result[0], "k": result[1]}
    if rpc == "BuildTable":
        if isinstance(result, posenc.RotaryTable):
            return {"cos": result.cos, "sin": result.sin, "amplitude": result.amplitude}
        return {"table": result}
    single = {"Reposition": "k", "BuildBias": "tile", "AddEncoding": "x"}
    single.update(ScoreRelative="scores", ConvertPairing="weight")
    return {single[rpc]: result} if rpc in single else result


def part(of, path):
    for name in path.split("."):
        if name.isdigit():
            of = of[int(name)]
            continue
        name = snake(name)
        of = of[name] if isinstance(of, dict) else getattr(of, name)
    if hasattr(of, "name") and not isinstance(of, numpy.ndarray):
        return of.name
    return of


def run(client, rpc, request):
    given = arguments(rpc, request)
    if given is None:
        # The method cannot express this request, so send the message itself.
        return raw(client, rpc, request), True
    return getattr(client, METHODS[rpc])(*given[0], **given[1]), False


def raw(client, rpc, request):
    message = message_of(getattr(messages, rpc + "Request"), request, "request")
    if rpc != "BuildBias":
        return client._ask(message, getattr(messages, rpc + "Response"), Call())
    tiles = []
    client._stream(rpc, [b"".join(encode(message))], tiles.append, Call())
    return tiles


def judge(client, case):
    expect, rpc, request = case["expect"], case["rpc"], case["request"]
    try:
        result, is_message = run(client, rpc, request)
    except PosencError as error:
        if not isinstance(expect, dict):
            return f"{error.code}: {error}"
        got = {"code": error.code, "reason": "ERROR_REASON_" + error.reason, "field": error.field}
        return "" if got == expect else f"is {got}; must be {expect}"
    if isinstance(expect, dict):
        return f"succeeded; must be {expect}"
    result = result if is_message else parts(rpc, result)
    for expected in expect:
        if expected["path"] == "amplitude" and isinstance(result, dict) and "amplitude" not in result:
            return "the amplitude is not told"
        why = misfit(expected, part(result, expected["path"]))
        if why:
            return f"{expected['path']}: {why}"
    return ""


def main(target, folder):
    failed = count = 0
    with posenc.Client(target) as client:
        for family, case in load(folder):
            try:
                why = judge(client, case)
            except Exception as error:  # a bug of the client fails the case, too
                why = f"{type(error).__name__}: {error}"
            count += 1
            failed += bool(why)
            print(family, case["name"], "fail" if why else "ok", " ".join(why.split()), sep="\t")
    return 1 if failed or not count else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
