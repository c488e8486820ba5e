"""Rotary tables, rotation, reposition, weights and analysis, from requests in
JSON form (posenc.v1 service.proto)."""

import integers
from caches import keys_of
from differences import difference, kept_at
from exact import (EXACT, UNIT, absolute, expectation, is_narrow, mp,
                   mpf, numbers, relative, saturated, scaled, single,
                   size, ulp)
from positions import expand
from profiles import read_source
from scalings import axis_of_pair, resolve, resolve_rounded
from towers import is_flux, read_flux, read_tower, tower_of

HALF, INTERLEAVED = "PAIRING_HALF_SPLIT", "PAIRING_INTERLEAVED"


class Rotation:
    """A specification for a width and length, with float64 frequencies."""

    def __init__(self, source, head_dim):
        model = read_source(source)
        self.spec = spec = model["spec"]
        self.nope = spec.get("nope", False)
        if self.nope:
            return
        self.d = spec.get("rotaryDim") or head_dim
        self.head_dim = head_dim
        length = source.get("sequenceLength")
        self.frequencies, self.amplitude = resolve_rounded(spec, self.d, length)
        self.pair_axis = axis_of_pair(spec, self.d)
        count = len(self.frequencies[0])
        self.axes = count
        if spec.get("axes"):
            self.axes = len(spec["axes"]["sections"])

    def angle(self, head, pair, position):
        """position: [axes] of one token."""
        lines = self.frequencies[head if len(self.frequencies) > 1 else 0]
        if len(lines) > 1:
            terms = [(position[a], lines[a][pair]) for a in range(len(lines))]
        else:
            terms = [(position[self.pair_axis[pair]], lines[0][pair])]
        if self.spec.get("anglePrecision") == "ANGLE_PRECISION_FLOAT32":
            phi = sum(single(single(p) * single(w)) for p, w in terms)
        else:
            phi = sum(p * w for p, w in terms)
        return -phi if self.spec.get("reverse") else phi

    def decay(self, pair, position, for_keys):
        """Returns xPos' zeta^((p - center) / scale_base), or its inverse."""
        xpos = self.spec.get("xpos")
        if xpos is None:
            return mpf(1)
        gamma = mpf(xpos.get("gamma", 0.4))
        zeta = (mpf(2 * pair) / self.d + gamma) / (1 + gamma)
        exponent = (position[0] - mpf(xpos.get("center", 0))) / mpf(
            xpos.get("scaleBase", 512))
        return zeta ** (-exponent if for_keys else exponent)

    def channels(self, pairing):
        """[(x, y)] of a head, in the order of the pairs."""
        start = 0
        if self.spec.get("slice") == "ROTARY_SLICE_TRAILING":
            start = self.head_dim - self.d
        n = self.d // 2
        if (self.spec.get("axes") or {}).get("halvesPerAxis"):
            out = []
            for section in self.spec["axes"]["sections"]:
                out += [(start + i, start + i + section)
                        for i in range(section)]
                start += 2 * section
            return out
        if pairing == HALF:
            return [(start + i, start + i + n) for i in range(n)]
        return [(start + 2 * i, start + 2 * i + 1) for i in range(n)]

    def input_pairing(self):
        return self.spec["pairing"]

    def output_pairing(self):
        return self.spec.get("outputPairing") or self.spec["pairing"]


def query_factor(scale, p):
    if scale is None:
        return mpf(1)
    steps = mp.floor((p + int(scale.get("offset", 0))) /
                     mpf(scale["floorScale"]))
    return 1 + mpf(scale["beta"]) * mp.log(1 + steps)


def build_rope_table(request):
    rotation = Rotation(request["rope"], 0)
    spec = rotation.spec
    kind = next(iter(request["positions"]))
    rows = int(request.get("rows", 0))
    if kind == "ids":
        rows = request["positions"]["ids"]["shape"][-1]
    elif kind == "packed":
        rows = int(request["positions"]["packed"]["cuSeqlens"][-1])
    at = expand(request["positions"], rotation.axes, 1, rows)
    layout = request.get("layout", "TABLE_LAYOUT_HALF")
    dtype = request.get("dtype", "DTYPE_FLOAT32")
    n, heads = rotation.d // 2, len(rotation.frequencies)
    cos, sin = [], []
    for h in range(heads):
        for t in range(rows):
            p = [at[a][0][t] for a in range(rotation.axes)]
            c, s = [], []
            for i in range(n):
                phi = rotation.angle(h, i, p)
                factor = rotation.amplitude * rotation.decay(
                    i, p, request.get("forKeys", False))
                c.append(factor * mp.cos(phi))
                s.append(factor * mp.sin(phi))
            cos.append(c)
            sin.append(s)
    lead = [heads] if spec.get("explicitFrequencies", {}).get("heads") else []
    # float32 and 16 bits: the nearest. float64: the table's promise, 2 ulp.
    bound = ulp(2 if dtype == "DTYPE_FLOAT64" else 0)
    out = [expectation("amplitude", rotation.amplitude, ulp(1))]
    if layout == "TABLE_LAYOUT_COMPLEX":
        values = [v for c, s in zip(cos, sin) for pair in zip(c, s)
                  for v in pair]
        return out + [expectation("table", values, bound,
                                  lead + [rows, n, 2], dtype)]
    spread = {
        "TABLE_LAYOUT_HALF": lambda row: row,
        "TABLE_LAYOUT_DUPLICATED": lambda row: row + row,
        "TABLE_LAYOUT_PAIR_REPEATED": lambda row: [v for v in row
                                                   for _ in range(2)],
    }[layout]
    width = n if layout == "TABLE_LAYOUT_HALF" else 2 * n
    for path, table in (("cos", cos), ("sin", sin)):
        values = [v for row in table for v in spread(row)]
        out.append(expectation(path, values, bound, lead + [rows, width],
                               dtype))
    return out


_STRIDES = {  # order of (batch, sequence, head) in memory
    "LAYOUT_BSHD": (0, 1, 2),
    "LAYOUT_BHSD": (0, 2, 1),
    "LAYOUT_SBHD": (1, 0, 2),
    "LAYOUT_THD": (1, 2),
}


def heads_of(tensor, layout):
    """Yields (batch, token, head, offset) of every head; and the extents."""
    shape = tensor["shape"]
    order = _STRIDES[layout]
    extent = {0: 1, 1: 1, 2: 1}
    for axis, n in zip(order, shape):
        extent[axis] = n
    strides, step = {0: 0}, shape[-1]
    for axis in reversed(order):
        strides[axis] = step
        step *= extent[axis]
    return extent, [(b, s, h, b * strides[0] + s * strides[1] + h * strides[2])
                    for b in range(extent[0]) for s in range(extent[1])
                    for h in range(extent[2])]


def _move(tensor, heads, path, units, step, saturation):
    """Applies step(b, s, h) -> (matrix per pair, channels in and out, factor
    on the rest) to every head (b, s, h, offset)."""
    dtype = tensor["dtype"]
    values = numbers(tensor["values"])
    out, scales = list(values), [mpf(0)] * len(values)
    for b, s, h, at in heads:
        pairs, rest = step(b, s, h)
        if rest != 1:
            for c in range(tensor["shape"][-1]):
                out[at + c] = values[at + c] * rest
                scales[at + c] = abs(out[at + c])
        for (x, y), (u, v), factor, phi in pairs:
            a, e = values[at + x], values[at + y]
            cos, sin = mp.cos(phi), mp.sin(phi)
            out[at + u] = factor * (a * cos - e * sin)
            out[at + v] = factor * (a * sin + e * cos)
            scales[at + u] = scales[at + v] = abs(factor) * mp.hypot(a, e)
    out = [saturated(x, dtype, saturation) for x in out]
    bound = EXACT
    if any(scales):
        bound = scaled(units[dtype] * UNIT[dtype], scales,
                       0.5 if is_narrow(dtype) else 0)
    return expectation(path, out, bound, tensor["shape"], dtype)


def _move_integers(tensor, heads, width, block_format, step):
    """Returns the exact elements of INT8 keys after step(b, s, h), for heads of
    `width` elements."""
    out = [int(v) for v in tensor["values"]]
    for b, s, h, at in heads:
        elements = out[at:at + width]
        before = integers.channels(block_format, elements)
        after, rotated = list(before), set()
        for (x, y), (u, v), factor, phi in step(b, s, h)[0]:
            a, e = before[x], before[y]
            cos, sin = mp.cos(phi), mp.sin(phi)
            after[u] = factor * (a * cos - e * sin)
            after[v] = factor * (a * sin + e * cos)
            rotated |= {u, v}
        out[at:at + width] = integers.replaced(block_format, elements, after,
                                               rotated)
    return expectation("k", out, EXACT, tensor["shape"], tensor["dtype"])


# core guarantees 4 units for float32. float64: cosine and sine within 2 units
# each, with two products and a sum, stay below 6.
_APPLY_UNITS = {**dict.fromkeys(UNIT, 4), "DTYPE_FLOAT64": 6}
_REPOSITION_UNITS = dict.fromkeys(_APPLY_UNITS, 10)


def apply_rope(request):
    layout = request["layout"]
    direction = request.get("direction", "DIRECTION_FORWARD")
    forward = direction in ("DIRECTION_FORWARD", "DIRECTION_UNSPECIFIED")
    divides = direction == "DIRECTION_INVERSE"
    out = []
    for role in ("q", "k"):
        if role not in request:
            continue
        tensor = request[role]
        rotation = Rotation(request["rope"], tensor["shape"][-1])
        extent, heads = heads_of(tensor, layout)
        axes = 1 if rotation.nope else rotation.axes
        at = expand(request["positions"], axes, extent[0], extent[1])
        scale = request.get("queryScale") if role == "q" else None
        if not rotation.nope:
            inputs = rotation.channels(rotation.input_pairing())
            outputs = rotation.channels(rotation.output_pairing())
            if not forward:
                inputs, outputs = outputs, inputs

        def step(b, s, h):
            p = [at[a][b][s] for a in range(axes)]
            rest = query_factor(scale, p[0])
            if divides:
                rest = 1 / rest
            if rotation.nope:
                return [], rest
            pairs = []
            for i, (x, u) in enumerate(zip(inputs, outputs)):
                factor = rotation.amplitude * rotation.decay(i, p, role == "k")
                phi = rotation.angle(h, i, p)
                factor = (1 / factor if divides else factor) * rest
                pairs.append((x, u, factor, phi if forward else -phi))
            return pairs, rest

        out.append(_move(tensor, heads, role, _APPLY_UNITS, step,
                         request.get("saturation")))
    return out


def _step(request, old, new, batch, tokens):
    """Returns the step of _move() from one encoding to the other."""
    if old.nope:
        return lambda b, s, h: ([], 1)
    movement = request["movement"]
    # If old positions have no effect, use 0, 1, ...
    source = expand(movement.get("oldPositions", {"start": 0}), old.axes,
                    batch, tokens)
    if "newPositions" in movement:
        target = expand(movement["newPositions"], new.axes, batch, tokens)
    else:
        if "shift" in movement:
            shift = [[[int(movement["shift"])] * tokens] * batch] * old.axes
        else:
            shift = expand({"ids": movement["shifts"]}, old.axes, batch,
                           tokens)
        target = [[[source[a][b][t] + shift[a][b][t] for t in range(tokens)]
                   for b in range(batch)] for a in range(old.axes)]
    inputs = old.channels(old.output_pairing())
    outputs = new.channels(new.output_pairing())

    def step(b, s, h):
        before = [source[a][b][s] for a in range(old.axes)]
        after = [target[a][b][s] for a in range(new.axes)]
        pairs = []
        for i, (x, u) in enumerate(zip(inputs, outputs)):
            phi = new.angle(h, i, after) - old.angle(h, i, before)
            factor = (new.amplitude / old.amplitude *
                      new.decay(i, after, True) / old.decay(i, before, True))
            pairs.append((x, u, factor, phi))
        return pairs, 1

    return step


def reposition(request):
    tensor = request["k"]
    elements, cache = tensor["shape"][-1], request.get("cache", {})
    if cache:
        elements, extent, heads_by_layer = keys_of(cache, tensor["shape"])
    else:
        extent, heads = heads_of(tensor, request["layout"])
        heads_by_layer = {0: heads}
    block_format = request.get("blockFormat")
    width = integers.channels_of(block_format, elements)
    steps = {}
    for layer in heads_by_layer:
        numbers = cache.get("modelLayers")
        own = {"layerIndex": numbers[layer]} if numbers else {}
        old, new = (
            Rotation({**request.get(name, request["oldRope"]), **own}, width)
            for name in ("oldRope", "newRope"))
        steps[layer] = _step(request, old, new, extent[0], extent[1])
    heads = [(b, s, (layer, h), at) for layer, heads in heads_by_layer.items()
             for b, s, h, at in heads]

    def step(b, s, layer_and_head):
        layer, h = layer_and_head
        return steps[layer](b, s, h)

    if tensor["dtype"] == "DTYPE_INT8":
        return [_move_integers(tensor, heads, elements, block_format, step)]
    return [_move(tensor, heads, "k", _REPOSITION_UNITS, step,
                  request.get("saturation"))]


def _resolve_tower(config):
    spec, d, following = read_tower(config)
    values = spec["explicitFrequencies"]["values"]
    # These are float32 numbers, exact to less than an ulp of float64.
    return [expectation("invFreq", values, ulp(1), [len(values)]),
            expectation("axisOfPair", following, EXACT, [len(values)]),
            expectation("amplitude", 1, EXACT),
            expectation("headDim", d, EXACT),
            expectation("spec.rotaryDim", spec["rotaryDim"], EXACT),
            expectation("spec.pairing", spec["pairing"], EXACT)]


def resolve_rope(request):
    source = request["rope"]
    config = tower_of(source)
    if config is not None and is_flux(config):
        source = {"spec": read_flux(config)}
    elif config is not None:
        return _resolve_tower(config)
    model = read_source(source)
    spec = model["spec"]
    temperature = [expectation("queryScale." + key, mpf(value), EXACT)
                   for key, value in (model.get("query_scale") or {}).items()]
    if spec.get("nope"):
        return [expectation("spec.nope", True, EXACT),
                expectation("invFreq", [], EXACT, [0]),
                expectation("softmaxScaleMultiplier",
                            model["softmax_scale_multiplier"],
                            ulp(1))] + temperature
    d = spec.get("rotaryDim") or request.get("headDim") or model["head_dim"]
    length = source.get("sequenceLength", model.get("assumed_length"))
    frequencies, amplitude = resolve(spec, d, length)
    line = [w for head in frequencies for axis in head for w in axis]
    # The formula in higher precision is rounded once, so it is off by 1 ulp
    # only if its own error crosses a tie, and never by more.
    out = [expectation("invFreq", line, ulp(1), [len(line)]),
           expectation("amplitude", amplitude, ulp(1)),
           expectation("softmaxScaleMultiplier",
                       model["softmax_scale_multiplier"], ulp(1)),
           expectation("spec.rotaryDim", d, EXACT)]
    for field in ("pairing", "slice"):
        if field in spec:
            out.append(expectation("spec." + field, spec[field], EXACT))
    out.append(expectation("spec.outputPairing",
                           spec.get("outputPairing", spec["pairing"]), EXACT))
    if spec.get("axes"):
        out.append(expectation("axisOfPair", axis_of_pair(spec, d), EXACT,
                               [d // 2]))
    if "compareWith" in request:
        out += difference(request)
    return out + temperature


def convert_pairing(request):
    tensor = request["weight"]
    rows = tensor["shape"][0]
    per_row = size(tensor["shape"][1:])
    width = rows // request["heads"]
    d = request.get("rotaryDim") or width
    start = (width - d if request.get("slice") == "ROTARY_SLICE_TRAILING"
             else 0)
    origin = list(range(rows))
    if request["oldPairing"] != request["newPairing"]:
        for h in range(request["heads"]):
            base = h * width + start
            for i in range(d // 2):
                for j, (half, inter) in enumerate(((i, 2 * i),
                                                   (i + d // 2, 2 * i + 1))):
                    if request["oldPairing"] == INTERLEAVED:
                        origin[base + half] = base + inter
                    else:
                        origin[base + inter] = base + half
    values = [tensor["values"][r * per_row + c] for r in origin
              for c in range(per_row)]
    return [expectation("weight", numbers(values), EXACT, tensor["shape"],
                        tensor["dtype"])]


def analyze_rope(request):
    source = request["rope"]
    model = read_source(source)
    spec = model["spec"]
    d = spec.get("rotaryDim") or request.get("headDim") or model["head_dim"]
    length = source.get("sequenceLength", model.get("assumed_length"))
    frequencies, _ = resolve_rounded(spec, d, length)
    w = frequencies[0][0]
    n = len(w)
    step = int(request.get("distanceStep", 0)) or 1
    distances = range(0, int(request.get("maxDistance", 0)) + 1, step)
    decay, similarity = [], []
    for s in distances:
        total, sums = mp.mpc(0), mpf(0)
        for x in w:
            total += mp.expj(s * x)
            sums += abs(total)
        decay.append(sums / n)
        similarity.append(sum(mp.cos(s * x) for x in w) / n)
    waves = [2 * mp.pi / x if x else mp.inf for x in w]
    trained = request.get("trainedLength", model.get("trained_length", 0))
    # n sums of at most n terms, each within 2^-51 with its rounding.
    slack = n * n * mpf(2) ** -51
    out = [expectation("wavelengths", waves, relative(mpf(2) ** -51), [n]),
           expectation("decay", decay, absolute(slack), [len(decay)]),
           expectation("similarity", similarity, absolute(slack),
                       [len(similarity)])]
    if trained:
        out.append(expectation("pairsWithinTrainedLength",
                               sum(1 for x in waves if x <= int(trained)),
                               EXACT))
    if "compareWith" in request:
        out.append(kept_at(request, distances))
    return out
