"""Numbers of 50 digits, and the contract's roundings."""

from mpmath import mp, mpf

mp.dps = 50

# Significand bits, and exponent of the smallest step, of each element type.
FORMATS = {
    "DTYPE_FLOAT64": (53, -1074),
    "DTYPE_FLOAT32": (24, -149),
    "DTYPE_FLOAT16": (11, -24),
    "DTYPE_BFLOAT16": (8, -133),
    "DTYPE_FLOAT8_E4M3FN": (4, -9),
    "DTYPE_FLOAT8_E5M2": (3, -16),
}
# Largest numbers of FP8, which results may exceed.
LARGEST = {"DTYPE_FLOAT8_E4M3FN": 448, "DTYPE_FLOAT8_E5M2": 57344}
# The relative error of one rounding in the arithmetic for each element type.
UNIT = {
    "DTYPE_FLOAT64": mpf(2) ** -53,
    "DTYPE_FLOAT32": mpf(2) ** -24,
    "DTYPE_FLOAT16": mpf(2) ** -24,
    "DTYPE_BFLOAT16": mpf(2) ** -24,
    "DTYPE_FLOAT8_E4M3FN": mpf(2) ** -24,
    "DTYPE_FLOAT8_E5M2": mpf(2) ** -24,
}


def nearest(x, dtype):
    """x rounded to the element type, ties to even."""
    if not mp.isfinite(x) or x == 0:
        return x
    bits, smallest = FORMATS[dtype]
    _, exponent = mp.frexp(x)  # |x| in [2^(exponent-1), 2^exponent)
    step = mpf(2) ** max(exponent - bits, smallest)
    return mp.nint(x / step) * step


def double(x):
    return nearest(mpf(x), "DTYPE_FLOAT64")


def single(x):
    return nearest(mpf(x), "DTYPE_FLOAT32")


def text(x):
    """Returns 20 significant digits: more than any element type
    distinguishes."""
    if isinstance(x, (bool, int, str)):
        return x
    if mp.isinf(x):
        return "Infinity" if x > 0 else "-Infinity"
    if x == int(x) and abs(x) < 10**9:
        return int(x)
    return mp.nstr(x, 20)


def upwards(x):
    """Returns 7 digits of a tolerance, rounded up."""
    return float(mp.nstr(x * (1 + mpf(10) ** -6), 7))


def numbers(values):
    return [mpf(v) for v in values]


def is_narrow(dtype):
    """Returns whether results are computed in float32, and then rounded once more."""
    return UNIT[dtype] != mpf(2) ** (-FORMATS[dtype][0])


def saturated(x, dtype, saturation):
    """Saturates results past FP8's largest number; no case is near the border."""
    largest = LARGEST.get(dtype)
    if largest is None or abs(x) <= largest:
        return x
    if saturation == "SATURATION_FINITE":
        return mp.sign(x) * largest
    assert dtype == "DTYPE_FLOAT8_E5M2", "NaN has no place in the vectors"
    return mp.sign(x) * mp.inf


# Bounds of expectations; README.md in proto/testdata describes them.
EXACT = {"kind": "exact"}


def ulp(value):
    return {"kind": "ulp", "value": value}


def absolute(value):
    return {"kind": "absolute", "value": upwards(value)}


def relative(value):
    return {"kind": "relative", "value": upwards(value)}


def scaled(value, scales, ulps=0):
    return {
        "kind": "scaled",
        "value": upwards(value),
        "scales": [upwards(s) if s else 0 for s in scales],
        "ulps": ulps,
    }


def expectation(path, values, bound, shape=None, dtype=None):
    """shape None: a scalar field with a single value."""
    out = {"path": path}
    if dtype is not None:
        out["dtype"] = dtype
    out["shape"] = [] if shape is None else list(shape)
    out["values"] = [text(v) for v in ([values] if shape is None else values)]
    out["bound"] = bound
    return out


def size(shape):
    n = 1
    for extent in shape:
        n *= int(extent)
    return n
