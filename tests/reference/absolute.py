"""Absolute encodings and their combination with embeddings, from the comments
of absolute.proto."""

from exact import (UNIT, double, expectation, is_narrow, mp, mpf, nearest,
                   numbers, scaled, ulp)
from positions import expand


def _arrange(sines, cosines, order):
    if order == "SINUSOIDAL_ORDER_INTERLEAVED":
        return [v for pair in zip(sines, cosines) for v in pair]
    if order == "SINUSOIDAL_ORDER_SIN_COS":
        return sines + cosines
    return cosines + sines


def _sinusoidal_row(p, e):
    dim, base = e["dim"], mpf(e.get("base", 10000))
    n = dim // 2
    if p == e.get("paddingPosition"):
        return [mpf(0)] * dim
    if e.get("endpoint"):
        exponents = [mpf(i) / (n - 1) for i in range(n)]
    else:
        exponents = [mpf(2 * i) / dim for i in range(n)]
    angles = [p * double(base ** -x) for x in exponents]
    row = _arrange([mp.sin(a) for a in angles], [mp.cos(a) for a in angles],
                   e["order"])
    if dim % 2:
        if e.get("oddDimSine"):
            row.append(mp.sin(p * double(base ** (-mpf(2 * n) / dim))))
        else:
            row.append(mpf(0))
    return row


def _learned_row(p, e):
    rows, dim = e["table"]["shape"]
    dtype = e["table"]["dtype"]
    table = [nearest(v, dtype) for v in numbers(e["table"]["values"])]

    def row(i):
        return table[i * dim:(i + 1) * dim]

    k = int(p)
    if "hierarchicalAlpha" not in e:
        return row(k)
    alpha = mpf(e["hierarchicalAlpha"])

    def base(i):
        return [(v - alpha * first) / (1 - alpha)
                for v, first in zip(row(i), row(0))]

    return [alpha * a + (1 - alpha) * b
            for a, b in zip(base(k // rows), base(k % rows))]


def _timestep_row(p, e):
    dim = e["dim"]
    n = dim // 2
    shift = mpf(e.get("downscaleFreqShift", 0))
    period = mpf(e.get("maxPeriod", 10000))
    scale = mpf(e.get("scale", 1))
    angles = [scale * p * period ** (-mpf(i) / (n - shift)) for i in range(n)]
    sines, cosines = [mp.sin(a) for a in angles], [mp.cos(a) for a in angles]
    row = cosines + sines if e.get("cosFirst") else sines + cosines
    return row + [mpf(0)] * (dim % 2)


def _fourier_row(position, e):
    axes, n = e["frequencies"]["shape"]
    dtype = e["frequencies"]["dtype"]
    b = [nearest(v, dtype) for v in numbers(e["frequencies"]["values"])]
    angles = [2 * mp.pi * sum(position[a] * b[a * n + i] for a in range(axes))
              for i in range(n)]
    sines, cosines = [mp.sin(a) for a in angles], [mp.cos(a) for a in angles]
    return cosines + sines if e.get("cosFirst") else sines + cosines


def _grid_rows(e):
    extents = e["extents"]
    axes = len(extents)
    width = e["dim"] // axes
    steps = e.get("steps") or [1] * axes
    order = list(range(axes))
    if e.get("lastAxisFirst"):
        order.reverse()
    one = {"dim": width, "base": e.get("base", 10000),
           "order": "SINUSOIDAL_ORDER_SIN_COS"}
    rows = [[mpf(0)] * e["dim"]] * e.get("leadingZeroRows", 0)
    cells = [()]
    for n in extents:
        cells = [c + (i,) for c in cells for i in range(n)]
    for cell in cells:
        rows.append([v for a in order
                     for v in _sinusoidal_row(cell[a] * mpf(steps[a]), one)])
    return rows


def table_rows(encoding, positions, count):
    """Returns the rows of the encoding; positions may be None for a grid."""
    (kind, e), = encoding.items()
    if kind == "sincosGrid":
        return _grid_rows(e)
    axes = e["frequencies"]["shape"][0] if kind == "fourierFeatures" else 1
    at = expand(positions, axes, 1, count)
    places = [[at[a][0][t] for a in range(axes)] for t in range(count)]
    if kind == "fourierFeatures":
        return [_fourier_row(p, e) for p in places]
    row = {"sinusoidal": _sinusoidal_row, "learned": _learned_row,
           "timestep": _timestep_row}[kind]
    return [row(p[0], e) for p in places]


def build_absolute_table(request):
    positions = request.get("positions")
    rows = int(request.get("rows", 0))
    if positions and "ids" in positions:
        rows = positions["ids"]["shape"][-1]
    elif positions and "packed" in positions:
        rows = int(positions["packed"]["cuSeqlens"][-1])
    table = table_rows(request["absolute"], positions, rows)
    dtype = request.get("dtype", "DTYPE_FLOAT32")
    bound = ulp(2 if dtype == "DTYPE_FLOAT64" else 0)
    values = [v for row in table for v in row]
    return [expectation("table", values, bound, [len(table), len(table[0])],
                        dtype)]


def add_encoding(request):
    x = request["x"]
    dim = x["shape"][-1]
    values = numbers(x["values"])
    batch = x["shape"][0] if len(x["shape"]) == 3 else 1
    tokens = len(values) // (batch * dim)
    factor = mpf(request.get("xScale", 1))
    how = request.get("combination", "COMBINATION_ADD")
    positions = request.get("positions")
    rows = []
    for b in range(batch):
        if positions and "starts" in positions:
            own = {"start": positions["starts"]["values"][b]}
        elif positions and "ids" in positions:
            (kind, e), = request["encoding"].items()
            axes = (e["frequencies"]["shape"][0] if kind == "fourierFeatures"
                    else 1)
            at = expand(positions, axes, batch, tokens)
            own = {"ids": {"shape": ([axes] if axes > 1 else []) + [tokens],
                           "values": [at[a][b][t] for a in range(axes)
                                      for t in range(tokens)]}}
        else:
            own = positions
        rows += table_rows(request["encoding"], own, tokens)
    out, scales = [], []
    for r, row in enumerate(rows):
        mine = [factor * v for v in values[r * dim:(r + 1) * dim]]
        if how == "COMBINATION_CONCATENATE":
            out += mine + row
            scales += [abs(v) for v in mine + row]
        elif how == "COMBINATION_MULTIPLY":
            out += [v * (1 + e) for v, e in zip(mine, row)]
            scales += [abs(v) * (1 + abs(e)) for v, e in zip(mine, row)]
        else:
            out += [v + e for v, e in zip(mine, row)]
            scales += [abs(v) + abs(e) for v, e in zip(mine, row)]
    dtype = x["dtype"]
    # x_scale, encoding, 1 + e, product and sum are each rounded, so the error
    # is below 5 units of the terms. In float64 the encoding itself is off by 2
    # ulp.
    units = 6 if dtype == "DTYPE_FLOAT64" else 5
    width = len(out) // len(rows)
    return [expectation("x", out, scaled(units * UNIT[dtype], scales,
                                         0.5 if is_narrow(dtype) else 0),
                        x["shape"][:-1] + [width], dtype)]
