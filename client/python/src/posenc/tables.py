"""Tables: their shape before they are built, and their rows as they come."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any, Optional

from . import messages as m
from .arrays import Result, Wrap
from .errors import PosencError, invalid
from .streams import Boxes
from .tensor import Dtype
from .wire import Buffer, decode

# Approximate bytes of a table's row: 128 channels, cosines and sines, in float32.
ROW_BYTES = 1024


class RotaryTable(tuple[Any, Any]):
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


class Rows:
    """Collects a table from its stream."""

    def __init__(self, results: Sequence[Result], rows_axis: int) -> None:
        self._boxes = {result.name: Boxes(result) for result in results}
        self._rows_axis = rows_axis  # from the end
        self._last = m.BuildTableStreamResponse()
        self._whole: list[int] = []

    def take(self, answer: Buffer) -> None:
        self._last = decode(m.BuildTableStreamResponse, answer)
        self._whole = self._whole or self._last.whole_shape
        before = len(self._whole) - self._rows_axis
        begin = [0] * before + [self._last.first_row] + [0] * (self._rows_axis - 1)
        for name, box in self._boxes.items():
            box.put(self._last, name, self._whole, begin)

    def read(self) -> tuple[Any, dict[str, Any]]:
        """Returns the amplitude's message, and the arrays."""
        return self._last, {name: box.array() for name, box in self._boxes.items()}


def rows_axis(request: m.BuildTableRequest) -> int:
    """Returns the place of the rows in a table's shape, from the end."""
    return 3 if request.rope is not None and request.layout == m.TableLayout.COMPLEX else 2


def results_of(request: m.BuildTableRequest, wrap: Wrap, out: Any) -> tuple[Result, ...]:
    """Returns the tensors of the table, with the caller's memory for them."""
    rotary = request.rope is not None and request.layout != m.TableLayout.COMPLEX
    names = ("cos", "sin") if rotary else ("table",)
    pair = isinstance(out, (tuple, list))
    if out is not None and rotary and (not pair or len(out) != 2):
        raise invalid("out", "must be a pair (cos, sin)")
    if not rotary and pair:
        raise invalid("out", "is a pair; must be one array, as this table is")
    outs = (None, None) if out is None else out if rotary else (out,)
    dtype, shape = request.dtype or Dtype.FLOAT32, _shape(request)
    return tuple(Result(name, wrap, dtype, shape, each, len(names)) for name, each in zip(names, outs))


def rows_of(request: m.BuildTableRequest) -> int:
    """Returns a request's number of rows, 0 if it is unknown."""
    positions = request.positions or m.Positions()
    if positions.ids is not None and positions.ids.shape:
        # The last extent of ids counts tokens; the others are axes or sequences.
        return positions.ids.shape[-1]
    if positions.packed is not None and positions.packed.cu_seqlens:
        return positions.packed.cu_seqlens[-1]
    grid = request.absolute.sincos_grid if request.absolute else None
    if grid is None:
        return request.rows
    # A grid has a row for every cell, after the rows of special tokens.
    return math.prod(grid.extents) + grid.leading_zero_rows


def _shape(request: m.BuildTableRequest) -> Optional[list[int]]:
    """Returns each tensor's shape, or None if only the server knows it: for
    presets, configurations, and requests that it will refuse."""
    spec = request.rope.spec if request.rope else None
    shape = [rows_of(request)]
    if spec is not None:
        heads = spec.explicit_frequencies.heads if spec.explicit_frequencies else 0
        pairs = spec.rotary_dim // 2
        twice = request.layout in (m.TableLayout.DUPLICATED, m.TableLayout.PAIR_REPEATED)
        columns = [pairs, 2] if request.layout == m.TableLayout.COMPLEX else [2 * pairs if twice else pairs]
        shape = [heads] * (heads > 0) + shape + columns
    elif request.absolute is not None:
        shape.append(_width(request.absolute))
    return shape if len(shape) > 1 and min(shape) > 0 else None


def _width(encoding: m.AbsoluteEncoding) -> int:
    sized = encoding.sinusoidal or encoding.sincos_grid or encoding.timestep
    if sized is not None:
        return sized.dim
    if encoding.learned is not None and encoding.learned.table is not None:
        return (encoding.learned.table.shape or [0])[-1]
    if encoding.fourier_features is not None and encoding.fourier_features.frequencies is not None:
        return 2 * (encoding.fourier_features.frequencies.shape or [0])[-1]
    return 0


def outside(error: PosencError) -> PosencError:
    """Returns the same error with fields as callers know them, who do not know the message `table`: `table.rows`
    becomes `rows`."""
    if error.field.startswith("table."):
        error.field, error.text = (re.sub(r"(^| )table\.", r"\1", text) for text in (error.field, error.text))
        error.metadata["field"] = error.field
        error.violations = tuple((field.replace("table.", "", 1), text) for field, text in error.violations)
    return error
