"""Joins the parts of tables and biases."""

from __future__ import annotations

import math
from typing import Any, Optional

import numpy

from .arrays import Borrowed, Output, check_memory
from .errors import PosencError
from .messages import BuildBiasRequest, BuildBiasResponse, BuildTableRequest, BuildTableStreamResponse
from .steps import answered
from .tensor import ELEMENT_BYTES, Tensor
from .wire import Buffer, decode, invalid


def rows_of(request: BuildTableRequest) -> int:
    """Returns a request's number of rows, 0 if it is unknown."""
    positions, absolute = request.positions, request.absolute
    if positions is not None and positions.ids is not None and positions.ids.shape:
        # The last extent of ids counts tokens; the others are axes or sequences.
        return positions.ids.shape[-1]
    if positions is not None and positions.packed is not None and positions.packed.cu_seqlens:
        return positions.packed.cu_seqlens[-1]
    grid = absolute.sincos_grid if absolute else None
    if grid is None:
        return request.rows
    # A grid has a row for every cell, after the rows of special tokens.
    return math.prod(grid.extents) + grid.leading_zero_rows


class TableRows:
    """The tensors of a table, filled by ranges of rows."""

    def __init__(self, request: BuildTableRequest, like: Borrowed, outs: dict[str, Optional[Output]]) -> None:
        self.amplitude = 1.0
        self._rows = rows_of(request)
        spec = request.rope.spec if request.rope else None
        self._by_head = bool(spec and spec.explicit_frequencies and spec.explicit_frequencies.heads)
        self._like = like
        self._outs = outs
        self._next = 0
        self._tensors: dict[str, tuple[Output, Any]] = {}
        self._kinds: dict[str, Any] = {}  # type and shape without rows

    def add(self, answer: Buffer) -> None:
        message = decode(BuildTableStreamResponse, answer)
        self.amplitude = message.amplitude
        rows = 0
        seen: dict[str, int] = {}
        for name in ("cos", "sin", "table"):
            part: Optional[Tensor] = getattr(message, name)
            if part is None:
                continue
            if message.first_row != self._next:
                raise PosencError("INTERNAL", f"the table came with rows at {message.first_row}, not {self._next}")
            axis = 1 if self._by_head else 0
            answered(message, name)
            left = self._rows - self._next
            if len(part.shape) < axis + 2 or min(part.shape) < 1 or part.shape[axis] > left:
                text = f"the table came with a {name} of {list(part.shape)}; {left} rows are missing"
                raise PosencError("INTERNAL", text)
            heads, rows = (part.shape[0] if self._by_head else 1), part.shape[axis]
            kind = part.dtype, [*part.shape[:axis], *part.shape[axis + 1 :]]
            if self._kinds.setdefault(name, kind) != kind or (self._next > 0 and name not in self._tensors):
                raise PosencError("INTERNAL", f"the table's {name} changed its type or shape at row {self._next}")
            data = numpy.frombuffer(part.data, numpy.uint8).reshape(heads, rows, -1)
            if name not in self._tensors:
                shape = [*part.shape[:axis], self._rows, *part.shape[axis + 1 :]]
                size = math.prod(shape) * ELEMENT_BYTES[part.dtype]
                if self._outs[name] is None and name == "cos":
                    check_memory(2 * size)  # cosines and sines
                out = self._outs[name] or self._like.fresh(shape, part.dtype, name)
                if len(out.bytes) != size:
                    raise invalid(name + "_output", f"has {len(out.bytes)} bytes; the result has {size}")
                view = numpy.frombuffer(out.bytes, numpy.uint8).reshape(heads, self._rows, -1)
                self._tensors[name] = out, view
            self._tensors[name][1][:, self._next : self._next + rows] = data
            seen[name] = rows
        if len(set(seen.values())) > 1 or seen.keys() != self._tensors.keys():
            raise PosencError("INTERNAL", f"the table came with other tensors at row {self._next}")
        self._next += rows

    def result(self, name: str) -> Any:
        if self._next != self._rows:
            raise PosencError("INTERNAL", f"the table came with {self._next} of {self._rows} rows")
        if name not in self._tensors:
            raise PosencError("INTERNAL", f"the answer has no {name}")
        return self._tensors[name][0].result()


class BiasMatrix:
    """A bias, tile by tile: [heads, query_length, key_length]."""

    def __init__(self, request: BuildBiasRequest, like: Borrowed) -> None:
        self._request = request
        self._like = like
        self._out: Optional[Output] = None
        self._view: Any = None
        self._kind: Any = None  # heads and type
        self._elements = 0

    def add(self, answer: Buffer) -> None:
        message = decode(BuildBiasResponse, answer)
        tile = answered(message, "tile")
        if len(tile.shape) != 3 or min(tile.shape) < 1:
            raise PosencError("INTERNAL", f"the bias came with a tile of {list(tile.shape)}")
        heads, queries, keys = tile.shape
        element = ELEMENT_BYTES[tile.dtype]
        shape = [heads, self._request.query_length, self._request.key_length]
        if self._out is None:
            self._out = self._like.fresh(shape, tile.dtype, "bias")
            self._view = numpy.frombuffer(self._out.bytes, numpy.uint8).reshape(*shape[:2], shape[2] * element)
            self._kind = heads, tile.dtype
        row = message.query_start - self._request.query_start
        first = message.key_start - self._request.key_start
        inside = 0 <= row <= shape[1] - queries and 0 <= first <= shape[2] - keys
        if not inside or (heads, tile.dtype) != self._kind:
            raise PosencError("INTERNAL", f"the bias came with a tile at query {row}, key {first} that does not fit it")
        column = first * element
        data = numpy.frombuffer(tile.data, numpy.uint8).reshape(heads, queries, keys * element)
        self._view[:, row : row + queries, column : column + keys * element] = data
        self._elements += heads * queries * keys

    def result(self) -> Any:
        if self._out is None:
            raise PosencError("INTERNAL", "the bias came without a tile")
        if self._elements != self._view.shape[0] * self._request.query_length * self._request.key_length:
            raise PosencError("INTERNAL", "the bias came with tiles missing or twice")
        return self._out.result()
