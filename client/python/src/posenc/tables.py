"""Computes the shape of a table before it is built, and where the rows of an answer belong in the table."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Optional

from . import messages as m
from .arrays import Result, Wrap
from .errors import PosencError, invalid

# Approximate size in bytes of a table's row: 128 channels, cosines and sines, in float32.
ROW_BYTES = 1024


class RotaryTable(tuple[Any, Any]):
    """A pair (cos, sin). `amplitude` is the attention factor, which the values already contain."""

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


def begin_of(request: m.BuildTableRequest) -> Callable[[m.BuildTableStreamResponse, int], list[int]]:
    """Returns a function that takes an answer and a tensor's rank.
    The function returns the indices of the tensor's first element in the whole table.
    Rows are the second axis from the end, or the third axis from the end for COMPLEX."""
    axis = 3 if request.rope is not None and request.layout == m.TableLayout.COMPLEX else 2
    return lambda answer, rank: [answer.first_row if at == rank - axis else 0 for at in range(rank)]


def results_of(request: m.BuildTableRequest, wrap: Wrap, out: Any) -> list[Result]:
    """Returns the tensors of the table, with the caller's memory for them."""
    rotary = request.rope is not None and request.layout != m.TableLayout.COMPLEX
    names = ("cos", "sin") if rotary else ("table",)
    pair = isinstance(out, (tuple, list))
    if out is not None and rotary and (not pair or len(out) != 2):
        raise invalid("out", "must be a pair (cos, sin)")
    if not rotary and pair:
        raise invalid("out", "is a pair; must be one array, as this table is")
    outs = (None, None) if out is None else out if rotary else (out,)
    dtype, shape = request.dtype or m.Dtype.FLOAT32, _shape(request)
    return [Result(name, wrap, dtype, shape, each) for name, each in zip(names, outs)]


def rows_of(request: m.BuildTableRequest) -> int:
    """Returns a request's number of rows, or 0 if this number is unknown."""
    positions = request.positions or m.Positions()
    if positions.ids is not None and positions.ids.shape:
        # The last extent of ids counts tokens; the other extents count axes or sequences.
        return positions.ids.shape[-1]
    if positions.packed is not None and positions.packed.cu_seqlens:
        return positions.packed.cu_seqlens[-1]
    grid = request.absolute.sincos_grid if request.absolute else None
    if grid is None:
        return request.rows
    # A grid has a row for every cell, after the rows of special tokens.
    return math.prod(grid.extents) + grid.leading_zero_rows


def _shape(request: m.BuildTableRequest) -> Optional[list[int]]:
    """Returns each tensor's shape, or None if only the server knows the shape.
    The shape is unknown for presets, configurations, and requests that the server will refuse."""
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
    """Renames the fields in the error of a stream to the fields of the unary request, which the caller knows.
    For example, `table.rows` becomes `rows`."""
    if error.field.startswith("table."):
        error.field, error.text = (re.sub(r"(^| )table\.", r"\1", text) for text in (error.field, error.text))
        error.metadata["field"] = error.field
        error.violations = tuple((field.replace("table.", "", 1), text) for field, text in error.violations)
    return error
