"""build_table as steps (steps.py): a table's tensors, and the memory for them."""

from __future__ import annotations

import math
from typing import Any, Optional

from . import messages as m
from .arrays import Borrowed, Output, array_of, dtype_of, shaped_output
from .collect import TableRows, rows_of
from .errors import PosencError
from .shared import Regions
from .sharing import SharedCall
from .sources import positions_of, rope_source
from .steps import Limits, Steps, Stream, Unary, answered, too_large
from .tensor import ELEMENT_BYTES, Dtype
from .wire import coerce, decode, encode, invalid, message_of, number, optional_enum

# Approximate bytes of a table's row: 128 channels, cosines and sines, in
# float32.
_ROW_BYTES = 1024


class RotaryTable(tuple):  # type: ignore[type-arg]
    """A pair (cos, sin), and the attention factor, which their values already contain."""

    amplitude: float

    def __new__(cls, cos: Any, sin: Any, amplitude: float) -> RotaryTable:
        table = super().__new__(cls, (cos, sin))
        table.amplitude = amplitude
        return table

    @property
    def cos(self) -> Any:
        return self[0]

    @property
    def sin(self) -> Any:
        return self[1]


def build_table(
    limits: Limits,
    regions: Regions,
    rope: Any,
    absolute: Any,
    rows: Any,
    positions: Any,
    layout: Any,
    dtype: Any,
    for_keys: bool,
    out: Any,
) -> Steps[Any]:
    element, like = dtype_of(dtype)
    encoding = None if absolute is None else message_of(m.AbsoluteEncoding, absolute, "absolute")
    if rope is not None and encoding is not None:
        raise invalid("absolute", "excludes rope")
    if positions is None and not (encoding and encoding.sincos_grid):
        positions = 0
    request = m.BuildTableRequest(
        rope=None if rope is None else rope_source(rope),
        absolute=encoding,
        positions=positions_of(positions),
        rows=0 if rows is None else number("int64", rows, "rows"),
        layout=optional_enum(m.TableLayout, layout, "layout"),
        dtype=element,
        for_keys=coerce("bool", for_keys, "for_keys"),
    )
    outs = _outputs(request, out)
    results = yield from _by_place(limits, regions, request, like, outs)
    if results is not None:
        return results
    # Approximate size of the answer. Large answers are faster as a stream.
    expected = rows_of(request) * _ROW_BYTES
    if expected > limits.stream_above_bytes:
        return (yield from _in_parts(request, like, outs))
    try:
        answer = yield Unary("BuildTable", encode(request), expected)
    except PosencError as error:
        if not too_large(error):
            raise
        return (yield from _in_parts(request, like, outs))
    message = decode(m.BuildTableResponse, answer)
    dtype, shape = request.dtype or Dtype.FLOAT32, _shape(request)
    arrays = {
        name: array_of(answered(message, name, dtype, shape), like, into, name + "_output")
        for name, into in outs.items()
    }
    return _table(arrays, message.amplitude)


def _table(arrays: dict[str, Any], amplitude: float) -> Any:
    return arrays["table"] if "table" in arrays else RotaryTable(arrays["cos"], arrays["sin"], amplitude)


def _in_parts(request: m.BuildTableRequest, like: Borrowed, outs: dict[str, Optional[Output]]) -> Steps[Any]:
    rows = TableRows(request, like, outs)
    try:
        yield Stream("BuildTableStream", lambda: iter([encode(m.BuildTableStreamRequest(table=request))]), rows.add)
    except PosencError as error:
        # Callers do not know the message `table`.
        raise error.outside_of("table") from error.__cause__
    return _table({name: rows.result(name) for name in outs}, rows.amplitude)


def _by_place(
    limits: Limits, regions: Regions, request: m.BuildTableRequest, like: Borrowed, outs: dict[str, Optional[Output]]
) -> Steps[Any]:
    """Returns None if no result goes to shared memory, or if the server accepts no place."""
    shape = _shape(request)
    size = -1 if shape is None else math.prod(shape) * ELEMENT_BYTES[request.dtype or Dtype.FLOAT32]
    shared = SharedCall.of(regions, {}, outs, dict.fromkeys(outs, size))
    if shared is None:
        return None
    for name, place in shared.places.items():
        setattr(request, name + "_output", place)
    answer = yield from shared.ask("BuildTable", encode(request), limits)
    for name in outs:
        setattr(request, name + "_output", None)
    if answer is None:
        return None
    message = decode(m.BuildTableResponse, answer)
    arrays = {
        name: shared.result(
            name, answered(message, name, placed=shared.places[name] is not None), like, name + "_output"
        )
        for name in outs
    }
    return _table(arrays, message.amplitude)


def _outputs(request: m.BuildTableRequest, out: Any) -> dict[str, Optional[Output]]:
    """Returns the tensors of the table, and the caller's memory for them."""
    rotary = request.rope is not None and request.layout != m.TableLayout.COMPLEX
    names = ("cos", "sin") if rotary else ("table",)
    if out is None:
        return dict.fromkeys(names)
    pair = isinstance(out, (tuple, list))
    if rotary and (not pair or len(out) != 2):
        raise invalid("out", "must be a pair (cos, sin)")
    if not rotary and pair:
        raise invalid("out", "is a pair; must be one array, as this table is")
    shape = _shape(request)
    outs: dict[str, Optional[Output]] = {}
    for name, array in zip(names, out if rotary else (out,)):
        outs[name] = None
        if array is None:
            continue
        outs[name] = shaped_output(array, shape, request.dtype or Dtype.FLOAT32, name + "_output")
    return outs


def _shape(request: m.BuildTableRequest) -> Optional[list[int]]:
    """Returns each tensor's shape, or None if only the server knows it: for
    presets, configurations, and requests that it will refuse."""
    spec = request.rope.spec if request.rope else None
    shape = [rows_of(request)]
    if spec is not None:
        if spec.explicit_frequencies and spec.explicit_frequencies.heads:
            shape.insert(0, spec.explicit_frequencies.heads)
        if request.layout == m.TableLayout.COMPLEX:
            shape += [spec.rotary_dim // 2, 2]
        elif request.layout in (m.TableLayout.DUPLICATED, m.TableLayout.PAIR_REPEATED):
            shape.append(spec.rotary_dim)
        else:
            shape.append(spec.rotary_dim // 2)
    elif request.absolute is not None:
        shape.append(_absolute_dim(request.absolute))
    return shape if len(shape) > 1 and min(shape) > 0 else None


def _absolute_dim(encoding: m.AbsoluteEncoding) -> int:
    sized = encoding.sinusoidal or encoding.sincos_grid or encoding.timestep
    if sized is not None:
        return sized.dim
    if encoding.learned is not None and encoding.learned.table is not None:
        return (encoding.learned.table.shape or [0])[-1]
    if encoding.fourier_features is not None and encoding.fourier_features.frequencies is not None:
        return 2 * (encoding.fourier_features.frequencies.shape or [0])[-1]
    return 0
