"""Attention biases, indices and scores, from the comments of relative.proto
and the papers that it names. i is the query's position, j the key's."""

from exact import (EXACT, UNIT, expectation, mp, mpf, nearest, numbers, scaled,
                   ulp)


def tensor(t):
    """Returns elements rounded to the element type."""
    return [nearest(v, t["dtype"]) for v in numbers(t["values"])]


def alibi_slopes(heads, max_bias):
    def geometric(count):
        return [mpf(2) ** (-mpf(max_bias) * h / count)
                for h in range(1, count + 1)]

    c = 1
    while 2 * c <= heads:
        c *= 2
    return geometric(c) + geometric(2 * c)[0::2][:heads - c]


def t5_bucket(distance, buckets, reach, bidirectional):
    """distance = i - j. Boundaries by integer powers, not logarithms."""
    first = 0
    if bidirectional:
        buckets //= 2
        if distance < 0:
            first = buckets
        distance = abs(distance)
    else:
        distance = max(distance, 0)
    exact = buckets // 2
    if distance < exact:
        return first + distance
    m = buckets - exact
    # Greatest t with ln(n / e) / ln(M / e) * m >= t.
    t = 0
    while (exact + t < buckets - 1 and
           distance ** m * exact ** (t + 1) >= reach ** (t + 1) * exact ** m):
        t += 1
    return first + exact + t


def deberta_bucket(r, size, reach):
    mid = size // 2
    if size == 0 or abs(r) <= mid:
        return r
    # Least t with ln(|r| / m) / ln((M - 1) / m) * (m - 1) <= t.
    t = 0
    while abs(r) ** (mid - 1) * mid ** t > (reach - 1) ** t * mid ** (mid - 1):
        t += 1
    return (mid + t) * (1 if r > 0 else -1)


def deberta_index(r, rule):
    size, reach = rule.get("bucketSize", 0), rule["maxPosition"]
    span = size or reach
    return min(max(deberta_bucket(r, size, reach) + span, 0), 2 * span - 1)


def clip(r, left, right):
    return min(max(r, -left), right) + left


def _cell(index, extents):
    out = []
    for n in reversed(extents):
        out.append(index % n)
        index //= n
    return out[::-1]


def grid_index(i, j, extents):
    index = 0
    for a, (x, y) in enumerate(zip(_cell(i, extents), _cell(j, extents))):
        index = index * (2 * extents[a] - 1) + x - y + extents[a] - 1
    return index


def _alibi(b):
    slopes = ([mpf(s) for s in b["slopes"]] if b.get("slopes") else
              alibi_slopes(b["heads"], b.get("maxBias", 8)))
    return len(slopes), lambda h, i, j: -slopes[h] * abs(i - j)


def _t5(b):
    buckets = b.get("numBuckets", 0) or 32
    reach = b.get("maxDistance", 0) or 128
    both = b.get("bidirectional", False)
    if "weights" not in b:
        return 0, lambda h, i, j: t5_bucket(i - j, buckets, reach, both)
    heads = b["weights"]["shape"][1]
    weights = tensor(b["weights"])
    return heads, lambda h, i, j: weights[
        t5_bucket(i - j, buckets, reach, both) * heads + h]


def _kerple(b):
    r1, r2 = numbers(b["r1"]), numbers(b["r2"])

    def value(h, i, j):
        d = mpf(abs(i - j))
        if b["kernel"] == "KERNEL_POWER":
            return -r1[h] * d ** r2[h]
        return -r1[h] * mp.log(1 + r2[h] * d)

    return len(r1), value


def _fire(b):
    w1, b1, w2, b2 = (tensor(b[k]) for k in ("w1", "b1", "w2", "b2"))
    heads, hidden = b["w2"]["shape"]
    c, limit = mpf(b["c"]), mpf(b["threshold"])

    def psi(x):
        return mp.log(abs(c * x) + 1)

    def value(h, i, j):
        x = psi(i - j) / (psi(max(mpf(i), limit)) + mpf(b.get("epsilon", 0)))
        return b2[h] + sum(w2[h * hidden + m] * max(w1[m] * x + b1[m], mpf(0))
                           for m in range(hidden))

    return heads, value


def _sandwich(b):
    heads, dim = b["heads"], b["dim"]

    def value(h, i, j):
        total = sum(mp.cos((i - j) / mpf(10000) ** (mpf(2 * n) / dim))
                    for n in range(1, dim // 2 + 1))
        return (total - mpf(dim) / 2) / (mpf(8 * (h + 1)) / heads)

    return heads, value


def _untied(b):
    q, k = tensor(b["positionQueries"]), tensor(b["positionKeys"])
    heads, rows, dim = b["positionQueries"]["shape"]
    key_rows = b["positionKeys"]["shape"][1]
    scale = mpf(b.get("scale", 1))

    def value(h, i, j):
        return scale * sum(q[(h * rows + i) * dim + c] *
                           k[(h * key_rows + j) * dim + c]
                           for c in range(dim))

    return heads, value


def _index(b):
    (kind, rule), = b.items()
    if kind == "clip":
        left, right = rule.get("left", 0), rule.get("right", 0)
        return 0, lambda h, i, j: clip(j - i, left, right)
    if kind == "deberta":
        return 0, lambda h, i, j: deberta_index(i - j, rule)
    return 0, lambda h, i, j: grid_index(i, j, rule["extents"])


_BIASES = {"alibi": _alibi, "t5": _t5, "kerple": _kerple, "fire": _fire,
           "sandwich": _sandwich, "relativeIndex": _index,
           "untiedPositions": _untied}


def build_bias(request):
    """Returns the whole matrix, without tiles."""
    (kind, bias), = request["bias"].items()
    heads, value = _BIASES[kind](bias)
    q0, k0 = int(request.get("queryStart", 0)), int(request.get("keyStart", 0))
    qn, kn = int(request["queryLength"]), int(request["keyLength"])
    values = []
    for h in range(max(heads, 1)):
        for i in range(q0, q0 + qn):
            for j in range(k0, k0 + kn):
                hidden = request.get("causal") and j > i
                values.append(-mp.inf if hidden else mpf(value(h, i, j)))
    indices = heads == 0
    dtype = ("DTYPE_INT32" if indices else
             request.get("dtype", "DTYPE_FLOAT32"))
    # Values are computed in float64, and then rounded once, so narrower types
    # get the nearest number.
    bound = EXACT if indices else ulp(4 if dtype == "DTYPE_FLOAT64" else 0)
    return [expectation("tile", values, bound, [max(heads, 1), qn, kn], dtype)]


def score_relative(request):
    q, k = tensor(request["q"]), tensor(request["k"])
    batch, heads, queries, dim = request["q"]["shape"]
    keys = request["k"]["shape"][2]
    (kind, s), = request["score"].items()
    tables = {name: tensor(t) for name, t in s.items()
              if isinstance(t, dict) and "values" in t}

    def row(values, index):
        return values[index * dim:(index + 1) * dim]

    def products(a, b):
        return [x * y for x, y in zip(a, b)]

    def shaw(b, h, i, j, x, y):
        rows = s["keyTable"]["shape"][0]
        left = s.get("left", (rows - 1) // 2)
        a = row(tables["keyTable"], clip(j - i, left, rows - 1 - left))
        return products(x, y) + products(x, a)

    def transformer_xl(b, h, i, j, x, y):
        rows = s["r"]["shape"][1]
        distance = i - j
        if distance < 0:
            return None
        limit = int(s.get("clampDistance", 0))
        if limit:
            distance = min(distance, limit)
        r = row(tables["r"], h * rows + rows - 1 - distance)
        u, v = row(tables["u"], h), row(tables["v"], h)
        return (products(x, y) + products(u, y) + products(x, r) +
                products(v, r))

    def deberta(b, h, i, j, x, y):
        rule = s["buckets"]
        rows = 2 * (rule.get("bucketSize", 0) or rule["maxPosition"])
        terms = products(x, y)
        if "positionKeys" in s:
            at = h * rows + deberta_index(i - j, rule)
            terms += products(x, row(tables["positionKeys"], at))
        if "positionQueries" in s:
            r = j - i if s.get("paperPositionToContent") else i - j
            at = h * rows + deberta_index(r, rule)
            terms += products(y, row(tables["positionQueries"], at))
        return terms

    rule = {"shaw": shaw, "transformerXl": transformer_xl,
            "deberta": deberta}[kind]
    q0, k0 = int(request.get("queryStart", 0)), int(request.get("keyStart", 0))
    values, scales = [], []
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                for j in range(keys):
                    terms = rule(b, h, q0 + i, k0 + j,
                                 row(q, (b * heads + h) * queries + i),
                                 row(k, (b * heads + h) * keys + j))
                    hidden = terms is None
                    values.append(-mp.inf if hidden else sum(terms))
                    scales.append(mpf(0) if hidden else
                                  sum(abs(t) for t in terms))
    default = ("DTYPE_FLOAT64" if request["q"]["dtype"] == "DTYPE_FLOAT64"
               else "DTYPE_FLOAT32")
    dtype = request.get("dtype", default)
    return [expectation("scores", values,
                        scaled(2 * dim * UNIT["DTYPE_FLOAT64"], scales, 0.5),
                        [batch, heads, queries, keys], dtype)]
