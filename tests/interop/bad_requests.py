"""The table of bad requests (tests/data/bad_requests has a README), as vectors that
clients replay."""

import base64
import copy
import json
import re

from languages import ROOT

TABLES = ROOT / "tests/data/bad_requests"

WIDTHS = {"float64": 8, "int64": 8, "float32": 4, "int32": 4, "float16": 2, "bfloat16": 2,
          "float8_e4m3fn": 1, "float8_e5m2": 1, "int8": 1}
TENSOR = re.compile(rf"({'|'.join(WIDTHS)})\[([\d,]*)\]")


def zeros(size):
    return base64.b64encode(bytes(size)).decode()


def expanded(value):
    """Expands the short forms of requests. Tensors get bytes as `data`, so that a case can change
    them."""
    if isinstance(value, list):
        return [expanded(inner) for inner in value]
    if isinstance(value, dict):
        [(key, inner), *more] = value.items() or [("", None)]
        if not more and key == "bytes":
            return zeros(inner)
        if not more and key == "repeat":
            return [expanded(inner[0])] * inner[1]
        if not more and key == "text" and isinstance(inner, list):
            return inner[0] * inner[1]
        return {key: expanded(inner) for key, inner in value.items()}
    found = TENSOR.fullmatch(value) if isinstance(value, str) else None
    if not found:
        return value
    size, shape = WIDTHS[found[1]], [int(extent) for extent in found[2].split(",") if extent]
    for extent in shape:
        size *= extent
    return {"dtype": f"DTYPE_{found[1].upper()}", "shape": shape, "data": zeros(size)}


def parent(request, pointer):
    """Returns the object that holds a JSON pointer's last part, and that part."""
    *path, last = [part.replace("~1", "/") for part in pointer.removeprefix("/").split("/")]
    for part in path:
        request = request[int(part)] if isinstance(request, list) else request.setdefault(part, {})
    return request, int(last) if isinstance(request, list) else last


def request_of(table, case):
    if "request" in case:
        return case["request"]
    request = copy.deepcopy(expanded(table["goods"][case.get("good", "good")]))
    for pointer, value in sorted(case.get("set", {}).items()):
        holder, key = parent(request, pointer)
        if isinstance(holder, list) and key == len(holder):
            holder.append(None)
        holder[key] = expanded(value)
    for pointer in case.get("unset", []):
        holder, key = parent(request, pointer)
        del holder[key]
    return request


def as_callers_have_it(value):
    """Gives fields their names in JSON, and whole tensors of zeros their values: a
    client sends tensors from its caller's memory."""
    if isinstance(value, list):
        return [as_callers_have_it(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    width = WIDTHS.get(str(value.get("dtype", "")).removeprefix("DTYPE_").lower())
    if width and set(value) == {"dtype", "shape", "data"}:
        count = 1
        for extent in value["shape"]:
            count *= int(extent)
        if 0 <= count <= 65536 and value["data"] == zeros(count * width):
            return {"dtype": value["dtype"], "shape": value["shape"], "values": [0] * count}
    return {re.sub("_([a-z0-9])", lambda letter: letter[1].upper(), key): as_callers_have_it(inner)
            for key, inner in value.items()}


def write(folder):
    """Writes a family of vectors for each table. Leaves out tables of streams, because no client's
    runner can replay them."""
    for file in sorted(TABLES.glob("*.json")):
        table = json.loads(file.read_text())
        if table["rpc"].endswith("Stream"):
            continue
        cases = [{"name": case["name"], "rpc": table["rpc"],
                  "request": as_callers_have_it(request_of(table, case)),
                  "expect": {"code": case.get("code", "INVALID_ARGUMENT"),
                             "reason": "ERROR_REASON_" + case.get("reason", "FIELD_INVALID"),
                             "field": case["field"]}}
                 for case in table["cases"] if "server_only" not in case]
        (folder / f"bad_{file.name}").write_text(json.dumps(cases))
