"""Rotations, in one message or, if it would be too large, as the bytes of a stream."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

from .arrays import Borrowed, Output, array_of, borrow, output
from .errors import PosencError
from .messages import Movement, Positions
from .shared import Regions
from .sharing import SharedCall
from .steps import Limits, Steps, Stream, Unary, answered, too_large
from .tensor import Tensor
from .wire import Buffer, Message, decode, encode, field, fields_of, header, put, size

# Bytes of a stream's message, without framing: Limits.stream_chunk_bytes. Messages fit into 4 MiB, and the server
# rotates in place, as this is a multiple of nearly every head.
CHUNK_BYTES = (4 << 20) - (64 << 10)
# Bytes beside the chunk in a message: a tag and a length.
FRAMING_BYTES = 16
# Ids of at most this size stay in the description.
SMALL_BYTES = 64 << 10


@dataclass
class _Data(Message):
    """All messages of a stream but the first request."""

    data: Buffer = field(15, "bytes")


@dataclass
class Rotated:
    """A tensor of the call: its field in the messages, and the memory for its result."""

    number: int
    name: str
    array: Borrowed
    out: Optional[Output]
    out_number: int  # of the field that names the result's place in shared memory

    @classmethod
    def of(cls, number: int, name: str, array: Any, out: Any, out_number: int) -> Rotated:
        borrowed = borrow(array, name)
        into = None if out is None else output(out, borrowed, name + "_output")
        return cls(number, name, borrowed, into, out_number)


@dataclass
class Rotation:
    """A call of ApplyRope or Reposition."""

    method: str  # with "Stream" appended, the stream's method
    answer: Any
    settings: list[Buffer]
    place_number: int
    places: Union[Positions, Movement, None]
    tensors: list[Rotated]

    def message(self, places: Any, tensors: list[tuple[int, Tensor]]) -> list[Buffer]:
        pieces = list(self.settings)
        if places is not None:
            pieces += put(self.place_number, places)
        for number, tensor in tensors:
            pieces += put(number, tensor)
        return pieces


def rotate(call: Rotation, limits: Limits, regions: Regions) -> Steps[list[Any]]:
    """Returns the rotated tensors, in the order of call.tensors."""
    arrays = {t.name: t.array for t in call.tensors}
    outs = {t.name: t.out for t in call.tensors}
    shared = SharedCall.of(regions, arrays, outs, {name: len(array.bytes) for name, array in arrays.items()})
    if shared is not None:
        results = yield from _shared(call, shared, limits)
        if results is not None:
            return results
    pieces = call.message(call.places, [(t.number, t.array.tensor) for t in call.tensors])
    total = size(pieces)
    has_bytes = any(len(t.array.bytes) for t in call.tensors)
    if has_bytes and total > limits.stream_above_bytes:
        return (yield from _stream(call, limits.max_message_bytes))
    try:
        answer = yield Unary(call.method, pieces, total)
    except PosencError as error:
        if not has_bytes or not too_large(error):
            raise
        # The server's limit is lower than ours.
        return (yield from _stream(call, min(int(error.metadata.get("limitBytes", 4 << 20)), limits.max_message_bytes)))
    message = decode(call.answer, answer)
    return [array_of(rotated(message, t), t.array, t.out, t.name + "_output") for t in call.tensors]


def rotated(message: Any, of: Rotated, placed: bool = False) -> Tensor:
    """Returns the result, which must have the tensor's type and shape."""
    return answered(message, of.name, of.array.tensor.dtype, of.array.tensor.shape, placed)


def _shared(call: Rotation, shared: SharedCall, limits: Limits) -> Steps[Optional[list[Any]]]:
    """Returns None if bytes must be sent instead."""
    pieces = call.message(call.places, [(t.number, shared.tensors[t.name]) for t in call.tensors])
    for t in call.tensors:
        place = shared.places[t.name]
        if place is not None:
            pieces += put(t.out_number, place)
    answer = yield from shared.ask(call.method, pieces, limits)
    if answer is None:
        return None
    message = decode(call.answer, answer)
    return [
        shared.result(t.name, rotated(message, t, shared.places[t.name] is not None), t.array, t.name + "_output")
        for t in call.tensors
    ]


def described(message: Any) -> tuple[Any, list[memoryview]]:
    """Returns a copy whose tensors have only dtype and shape, except small ones, and their bytes in order."""
    changed: dict[str, Any] = {}
    data = []
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if isinstance(value, Tensor) and len(value.data) > SMALL_BYTES:
            changed[f.name] = Tensor(value.dtype, value.shape)
            data.append(memoryview(value.data))
        elif isinstance(value, Message) and not isinstance(value, Tensor):
            changed[f.name], inner = described(value)
            data += inner
    return dataclasses.replace(message, **changed), data


def _stream(call: Rotation, most: int) -> Steps[list[Any]]:
    places, sent = (None, []) if call.places is None else described(call.places)
    tensors = [(t.number, Tensor(t.array.tensor.dtype, t.array.tensor.shape)) for t in call.tensors]
    sent += [t.array.bytes for t in call.tensors]
    first = call.message(places, tensors)
    first = [*header(1, size(first)), *first]
    # A multiple of every element.
    chunk = max(min(CHUNK_BYTES, most - FRAMING_BYTES) // 64, 1) * 64
    outputs = [t.out or t.array.fresh(t.array.tensor.shape, t.array.tensor.dtype, t.name) for t in call.tensors]

    def messages() -> Iterator[list[Buffer]]:
        yield first
        for data in sent:
            for begin in range(0, len(data), chunk):
                yield encode(_Data(data[begin : begin + chunk]))

    missing = [output.bytes for output in outputs]

    def take(answer: Buffer) -> None:
        data = memoryview(decode(_Data, answer).data)
        while len(data):
            while missing and not len(missing[0]):
                del missing[0]
            if not missing:
                raise PosencError("INTERNAL", "the server's answer does not fit: it has more bytes than the tensors")
            count = min(len(data), len(missing[0]))
            missing[0][:count] = data[:count]
            missing[0], data = missing[0][count:], data[count:]

    announced = max(size(first), min(chunk, max(map(len, sent))) + FRAMING_BYTES)
    yield Stream(call.method + "Stream", messages, take, announced)
    lacking = size(missing)
    if lacking:
        raise PosencError("INTERNAL", f"the server's answer does not fit: {lacking} bytes of the tensors are missing")
    return [output.result() for output in outputs]
