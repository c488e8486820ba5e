"""Frequencies and amplitude of a rotary specification.

Written from the comments of rope.proto and the papers that it names. A
specification is the JSON form of posenc.v1.RopeSpec.
"""

from exact import double, mp, mpf


def power_ladder(theta, n):
    return [mpf(theta) ** (-mpf(i) / n) for i in range(n)]


def magnitude(s, m):
    """Returns g(s, m) of YaRN, arXiv:2309.00071."""
    return mpf(1) if s <= 1 else mpf(m) * mp.log(s) / 10 + 1


def _linear(p, theta, n, length):
    return [w / mpf(p["factor"]) for w in power_ladder(theta, n)], mpf(1)


def _ntk_base(theta, n, growth):
    d = mpf(2 * n)
    return mpf(theta) * growth ** (d / (d - 2))


def _ntk(p, theta, n, length):
    return power_ladder(_ntk_base(theta, n, mpf(p["factor"])), n), mpf(1)


def _dynamic_ntk(p, theta, n, length):
    trained = mpf(p["maxPositionEmbeddings"])
    if length > trained:
        s = mpf(p["factor"])
        theta = _ntk_base(theta, n, s * length / trained - (s - 1))
    return power_ladder(theta, n), mpf(1)


def yarn_amplitude(p):
    if "attentionFactor" in p:
        return mpf(p["attentionFactor"])
    s = mpf(p["factor"])
    if p.get("mscale") and p.get("mscaleAllDim"):
        return magnitude(s, p["mscale"]) / magnitude(s, p["mscaleAllDim"])
    return magnitude(s, 1)


def yarn_ramp(p, theta, n):
    """Returns the share of each frequency that is divided by the factor."""
    d = 2 * n
    trained = mpf(p["originalMaxPositionEmbeddings"])

    def index(turns):
        return d * mp.log(trained / (turns * 2 * mp.pi)) / (2 * mp.log(theta))

    low = index(mpf(p.get("betaFast", 32)))
    slow = mpf(p.get("betaSlow", 1))
    high = mpf(d - 1) if slow == 0 else index(slow)
    if p.get("truncate", True):
        low, high = mp.floor(low), mp.ceil(high)
    low, high = max(low, mpf(0)), min(high, mpf(d - 1))
    if low == high:
        high += mpf("0.001")
    return [min(max((i - low) / (high - low), mpf(0)), mpf(1))
            for i in range(n)]


def _yarn(p, theta, n, length):
    s = mpf(p["factor"])
    ramp = yarn_ramp(p, mpf(theta), n)
    ladder = power_ladder(theta, n)
    return ([w * (r / s + 1 - r) for w, r in zip(ladder, ramp)],
            yarn_amplitude(p))


def _longrope(p, theta, n, length):
    trained = int(p["originalMaxPositionEmbeddings"])
    side = "long" if length > trained else "short"
    ladder = power_ladder(theta, n)
    frequencies = [w / mpf(f) for w, f in zip(ladder, p[side + "Factor"])]
    if "attentionFactor" in p:
        amplitude = mpf(p["attentionFactor"])
    elif side + "Mscale" in p:
        amplitude = mpf(p[side + "Mscale"])
    else:
        s = mpf(p["factor"])
        amplitude = (mp.sqrt(1 + mp.log(s) / mp.log(trained))
                     if s > 1 else mpf(1))
    return frequencies, amplitude


def _llama3(p, theta, n, length):
    s, lf, hf = (mpf(p[k]) for k in
                 ("factor", "lowFreqFactor", "highFreqFactor"))
    trained = mpf(p["originalMaxPositionEmbeddings"])
    out = []
    for w in power_ladder(theta, n):
        turns = trained * w / (2 * mp.pi)
        t = min(max((turns - lf) / (hf - lf), mpf(0)), mpf(1))
        out.append((1 - t) * w / s + t * w)
    return out, mpf(1)


def _proportional(p, theta, n, length):
    s = mpf(p.get("factor", 1))
    moving = p["rotatingPairs"]
    return [w / s if i < moving else mpf(0)
            for i, w in enumerate(power_ladder(theta, n))], mpf(1)


_RULES = {
    "linear": _linear,
    "ntk": _ntk,
    "dynamicNtk": _dynamic_ntk,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}


def ladder(spec, theta, n, length):
    """Returns n frequencies and the amplitude that the scaling implies."""
    for name, rule in _RULES.items():
        if name in spec:
            return rule(spec[name], theta, n, length)
    return power_ladder(theta, n), mpf(1)


def resolve(spec, width, length=None):
    """Returns ([heads][axes][pairs] frequencies, amplitude), not yet rounded."""
    n = width // 2
    theta = mpf(spec.get("ropeTheta", 10000))
    axes = spec.get("axes")
    if "explicitFrequencies" in spec:
        given = spec["explicitFrequencies"]
        heads = max(given.get("heads", 0), 1)
        count = max(given.get("axes", 0), 1)
        values = [mpf(v) for v in given["values"]]
        frequencies = [[values[(h * count + a) * n:(h * count + a + 1) * n]
                        for a in range(count)] for h in range(heads)]
        amplitude = mpf(1)
    elif axes and axes["assignment"] == "ASSIGNMENT_PER_AXIS":
        thetas = axes.get("axisThetas") or [theta] * len(axes["sections"])
        line = []
        amplitude = mpf(1)
        for section, base in zip(axes["sections"], thetas):
            if section:
                part, amplitude = ladder(spec, mpf(base), section, length)
                line += part
        frequencies = [[line]]
    else:
        line, amplitude = ladder(spec, theta, n, length)
        frequencies = [[line]]
    if "amplitude" in spec:
        amplitude = mpf(spec["amplitude"])
    return frequencies, amplitude


def resolve_rounded(spec, width, length=None):
    """Returns the same as float64 numbers, which then define the encoding."""
    frequencies, amplitude = resolve(spec, width, length)
    return ([[[double(w) for w in axis] for axis in head]
             for head in frequencies], double(amplitude))


def axis_of_pair(spec, width):
    axes = spec.get("axes")
    if not axes:
        return [0] * (width // 2)
    order = axes.get("positionAxes") or range(len(axes["sections"]))
    return [order[a] for a in _section_of_pair(axes, width // 2)]


def _section_of_pair(axes, n):
    sections = axes["sections"]
    kind = axes["assignment"]
    if kind == "ASSIGNMENT_INTERLEAVED":
        count = len(sections)
        return [i % count if i % count and i < count * sections[i % count]
                else 0 for i in range(n)]
    if kind == "ASSIGNMENT_ALTERNATING_TAIL":
        return [0 if i >= n - sections[0] else 1 + i % 2 for i in range(n)]
    return [a for a, section in enumerate(sections) for _ in range(section)]
