"""Positions of tokens, and the schemes of BuildPositions.

Requests are the JSON forms of posenc.v1.Positions and BuildPositionsRequest.
"""

from exact import EXACT, expectation, mp, mpf
from towers import vision_positions


def expand(positions, axes, batch, tokens):
    """Returns [axes][batch][tokens]."""
    if "start" in positions:
        start = int(positions["start"])
        rows = [[mpf(start + t) for t in range(tokens)]] * batch
    elif "starts" in positions:
        rows = [[mpf(int(s) + t) for t in range(tokens)]
                for s in positions["starts"]["values"]]
    elif "packed" in positions:
        cuts = [int(c) for c in positions["packed"]["cuSeqlens"]]
        starts = positions["packed"].get("starts") or [0] * (len(cuts) - 1)
        rows = [[mpf(int(starts[i]) + t) for i in range(len(cuts) - 1)
                 for t in range(cuts[i + 1] - cuts[i])]]
    else:
        ids = positions["ids"]
        values = [mpf(v) for v in ids["values"]]
        shape = ids["shape"]
        if axes == 1:
            shape = [1] + shape
        per_axis = len(values) // axes
        shared = len(shape) == 2
        return [[values[a * per_axis:][(0 if shared else b * tokens):]
                 [:tokens] for b in range(batch)] for a in range(axes)]
    return [rows] * axes


def _packed(p):
    values = [t for n in p.get("lengths", []) for t in range(n)]
    return [len(values)], values, 0, 0


def _padded(p):
    width, pad = p["paddedLength"], p.get("paddingPosition", 0)
    out = []
    for n in p["lengths"]:
        row, padding = list(range(n)), [pad] * (width - n)
        out += padding + row if p.get("left") else row + padding
    return [len(p["lengths"]), width], out, 0, 0


def _context_parallel(p):
    parts, rank = 2 * p["size"], p.get("rank", 0)
    out = []
    for n in p["lengths"]:
        chunk = n // parts
        for c in (rank, parts - 1 - rank):
            out += range(c * chunk, (c + 1) * chunk)
    return [len(out)], out, 0, 0


def _cells(extents, merge):
    """Coordinates of cells in order."""
    if not extents:
        return [()]
    if merge > 1:
        *outer, height, width = extents
        inner = [(y + j, x + i)
                 for y in range(0, height, merge)
                 for x in range(0, width, merge)
                 for j in range(merge) for i in range(merge)]
        return [o + c for o in _cells(outer, 0) for c in inner]
    return [(i,) + rest for i in range(extents[0])
            for rest in _cells(extents[1:], 0)]


def _grid(p):
    extents = p["extents"]
    n = len(extents)
    fractional = bool(p.get("offsets") or p.get("steps"))
    offsets = p.get("offsets") or [0] * n
    steps = p.get("steps") or [1] * n
    cells = _cells(extents, p.get("mergeSize", 0))
    values = [mpf(offsets[a]) + mpf(steps[a]) * c[a]
              for a in range(n) for c in cells]
    return [n, len(cells)], values, 0, "DTYPE_FLOAT64" if fractional else 0


def _multimodal(p):
    rows = [[], [], []]
    following = 0
    for span in p["spans"]:
        if "textTokens" in span:
            for row in rows:
                row += range(following, following + span["textTokens"])
        else:
            g = span["vision"]
            merge = g.get("spatialMergeSize", 0) or 1
            step = mpf(g.get("timeStep", 1))
            for t in range(g["time"]):
                for y in range(g["height"] // merge):
                    for x in range(g["width"] // merge):
                        rows[0].append(following + int(mp.floor(t * step)))
                        rows[1].append(following + y)
                        rows[2].append(following + x)
        if rows[0]:
            following = max(max(row) for row in rows) + 1
    return [3, len(rows[0])], sum(rows, []), following, 0


def _sinks(p):
    sinks, window = p.get("sinks", 0), p.get("window", 0)
    length = p["length"]
    if sinks + window >= length:
        kept = list(range(length))
    else:
        kept = list(range(sinks)) + list(range(length - window, length))
    return [len(kept)], kept, len(kept), 0


def _vision(p):
    shape, values, dtype = vision_positions(p)
    return shape, values, 0, dtype


_SCHEMES = {
    "packed": _packed,
    "padded": _padded,
    "contextParallel": _context_parallel,
    "grid": _grid,
    "multimodal": _multimodal,
    "attentionSinks": _sinks,
    "vision": _vision,
}


def build_positions(request):
    (name, scheme), = request.items()
    shape, values, following, dtype = _SCHEMES[name](scheme)
    out = [expectation("positions.ids", [mpf(v) for v in values], EXACT, shape,
                       dtype or "DTYPE_INT32"),
           expectation("nextPosition", following, EXACT)]
    if name == "multimodal":
        out.append(expectation("delta", following - shape[1], EXACT))
    return out
