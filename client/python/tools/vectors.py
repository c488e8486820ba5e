"""Reads the conformance vectors, and compares answers with them within the vectors' error bounds.

proto/testdata/README.md describes the format.
"""

import json
import re
from pathlib import Path

import ml_dtypes
import numpy

# For each element type: the bits of the significand, the exponent of the smallest step,
# numpy's type, and the integer type of the same size.
FORMATS = {
    "float32": (24, -149, numpy.float32, numpy.int32),
    "float16": (11, -24, numpy.float16, numpy.int16),
    "bfloat16": (8, -133, ml_dtypes.bfloat16, numpy.int16),
    "float64": (53, -1074, numpy.float64, numpy.int64),
    "float8_e4m3fn": (4, -9, ml_dtypes.float8_e4m3fn, numpy.int8),
    "float8_e5m2": (3, -16, ml_dtypes.float8_e5m2, numpy.int8),
}
INTEGERS = {"int8", "int32", "int64"}
Real = numpy.longdouble
assert numpy.finfo(Real).nmant >= 63, "the vectors have 20 digits, which this machine's long double cannot hold"


def load(folder):
    """Yields (family, case) of every vector."""
    for path in sorted(Path(folder).glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            yield path.stem, case


def snake(name):
    return re.sub("[A-Z]", lambda m: "_" + m[0].lower(), name)


def reals(values):
    return numpy.array([Real(v) for v in values], dtype=Real)


def step(x, dtype):
    """Returns the distance between neighbouring numbers of the element type at x."""
    bits, smallest = FORMATS[dtype][:2]
    _, exponent = numpy.frexp(x)
    exponent = numpy.where(x == 0, smallest, exponent)
    return numpy.ldexp(Real(1), numpy.maximum(exponent - bits, smallest))


def ordinal(array, dtype):
    """Returns integers such that neighbouring numbers of the element type have neighbouring integers."""
    _, _, element, integer = FORMATS[dtype]
    bits = array.astype(element).view(integer).astype(object)
    lowest = int(numpy.iinfo(integer).min)
    return numpy.array([b if b >= 0 else lowest - b for b in bits], dtype=object)


def misfit(expected, answer):
    """Returns why an answer differs from a vector's expectation, or "".

    answer: an array, a list of numbers, a number, a text, or an enum's name.
    """
    values, bound = expected["values"], expected["bound"]
    if isinstance(answer, str):
        # PAIRING_HALF_SPLIT is HALF_SPLIT in a client's own enum.
        return "" if values[0].endswith(answer) else f"is {answer}; must be {values[0]}"
    array = numpy.asarray(answer)
    dtype = array.dtype.name
    if "dtype" in expected and expected["dtype"] != f"DTYPE_{dtype.upper()}":
        return f"is of {dtype}; must be {expected['dtype']}"
    if list(array.shape) != expected["shape"]:
        return f"has shape {list(array.shape)}; must be {expected['shape']}"
    flat = array.reshape(-1)
    truth = reals(values)
    got = flat.astype(Real) if dtype in FORMATS or dtype in INTEGERS else reals([float(v) for v in flat])
    dtype = dtype if dtype in FORMATS else "float64"
    finite = numpy.isfinite(truth)
    good = numpy.where(finite, False, got == truth)
    t, a = truth[finite], got[finite]
    kind, value = bound["kind"], Real(bound.get("value", 0))
    if kind == "exact":
        near = a == t
    elif kind == "ulp":
        unit = step(t, dtype)
        nearest = numpy.rint(t / unit) * unit
        apart = numpy.abs(ordinal(a, dtype) - ordinal(nearest, dtype))
        near = apart.astype(float) <= float(value)
    elif kind == "absolute":
        near = numpy.abs(a - t) <= value
    elif kind == "relative":
        near = numpy.abs(a - t) <= value * numpy.abs(t)
    elif kind == "scaled":
        unit = step(numpy.maximum(numpy.abs(a), numpy.abs(t)), dtype)
        allowed = value * reals(bound["scales"])[finite] + Real(bound.get("ulps", 0)) * unit
        near = numpy.abs(a - t) <= allowed
    else:
        return f"the bound {kind} is not known"
    good[finite] = near
    if good.all():
        return ""
    worst = int(numpy.argmin(good))
    return f"element {worst} is {got[worst]}; must be {truth[worst]} ({kind} {bound.get('value', 0)})"
