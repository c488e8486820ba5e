"""Rotations, in one message or, if it would be too large, in chunks through a stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Optional, Union

from . import cut
from .arrays import Borrowed, Output, array_of, borrow, output
from .errors import PosencError
from .messages import Layout, Movement, Positions, RopeSource, RopeSpec
from .shared import Regions
from .sharing import SharedCall
from .steps import Limits, Steps, Stream, Unary, answered, chunk_bytes, resolve_source, too_large
from .tensor import Tensor
from .wire import Buffer, decode, put, size

# Bytes of a message beside a chunk's bytes, positions and settings: tags, lengths, shapes.
_FRAMING_BYTES = 256


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
    layout: Layout
    ropes: list[RopeSource]
    tensors: list[Rotated]

    def message(self, settings: list[Buffer], places: Any, tensors: list[tuple[int, Tensor]]) -> list[Buffer]:
        pieces = list(settings)
        if places is not None:
            pieces += put(self.place_number, places)
        for number, tensor in tensors:
            pieces += put(number, tensor)
        return pieces

    def cut_places(self, extents: dict[str, int], several_axes: bool, part: cut.Part) -> Any:
        if isinstance(self.places, Movement):
            return cut.cut_movement(self.places, self.layout, extents, several_axes, part)
        return cut.cut_positions(self.places, self.layout, extents, several_axes, part)


def rotate(call: Rotation, limits: Limits, regions: Regions) -> Steps[list[Any]]:
    """Returns the rotated tensors, in the order of call.tensors."""
    arrays = {t.name: t.array for t in call.tensors}
    outs = {t.name: t.out for t in call.tensors}
    shared = SharedCall.of(regions, arrays, outs, {name: len(array.bytes) for name, array in arrays.items()})
    if shared is not None:
        results = yield from _shared(call, shared, limits)
        if results is not None:
            return results
    pieces = call.message(call.settings, call.places, [(t.number, t.array.tensor) for t in call.tensors])
    total = size(pieces)
    has_bytes = any(len(t.array.bytes) for t in call.tensors)
    if has_bytes and total > limits.stream_above_bytes:
        try:
            return (yield from _in_chunks(call, limits))
        except cut.Misfit:
            # The tensor does not fit its layout or positions; the server
            # explains it better.
            if total > limits.max_message_bytes:
                raise
    try:
        answer = yield Unary(call.method, pieces, total)
    except PosencError as error:
        # The server's limit may be lower than ours. A message no larger than a
        # chunk would only be refused again. If the server does not tell the size
        # of chunks, the first error says more.
        if not has_bytes or not too_large(error):
            raise
        try:
            most = yield from chunk_bytes(limits)
        except PosencError:
            raise error from None
        if total <= most:
            raise
        return (yield from _in_chunks(call, limits))
    message = decode(call.answer, answer)
    return [array_of(rotated(message, t), t.array, t.out, t.name + "_output") for t in call.tensors]


def rotated(message: Any, of: Rotated, placed: bool = False) -> Tensor:
    """Returns the result, which must have the tensor's type and shape."""
    return answered(message, of.name, of.array.tensor.dtype, of.array.tensor.shape, placed)


def _shared(call: Rotation, shared: SharedCall, limits: Limits) -> Steps[Optional[list[Any]]]:
    """Returns None if bytes must be sent instead."""
    pieces = call.message(call.settings, call.places, [(t.number, shared.tensors[t.name]) for t in call.tensors])
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


def _in_chunks(call: Rotation, limits: Limits) -> Steps[list[Any]]:
    most = yield from chunk_bytes(limits)
    whole_heads = any(_heads_differ(rope) for rope in call.ropes)
    chunks: list[tuple[Rotated, dict[str, int], cut.Part]] = []
    ambiguous = False
    for rotated in call.tensors:
        tensor = rotated.array.tensor
        if not len(tensor.data):
            continue
        extents = cut.extents_of(tensor, call.layout, rotated.name)
        ambiguous = ambiguous or cut.needs_axes(call.places, call.layout, extents)
        for part in cut.cut_tensor(tensor, call.layout, whole_heads, most, rotated.name):
            if part.bytes > limits.max_message_bytes:
                raise PosencError(
                    "RESOURCE_EXHAUSTED",
                    f"{rotated.name}: {part.bytes} bytes cannot be cut into smaller messages; the limit is "
                    f"{limits.max_message_bytes}" + (", and frequencies by head need all heads together" * whole_heads),
                )
            chunks.append((rotated, extents, part))
    several_axes = False
    if ambiguous:
        several_axes = _has_several_axes((yield from resolve_source(call.ropes[0])))

    # Positions are cut twice, which is cheap. The first time gives the size of
    # the largest message, to announce it, and checks that positions fit the
    # tensors before anything is sent.
    def places_of(extents: dict[str, int], part: cut.Part) -> Any:
        return call.cut_places(extents, several_axes, part)

    largest = max(
        part.bytes + size(call.message([], places_of(extents, part), [])) for _, extents, part in chunks
    )
    outputs = {t.name: t.out or t.array.fresh(t.array.tensor.shape, t.array.tensor.dtype, t.name) for t in call.tensors}

    def messages() -> Iterator[list[Buffer]]:
        settings = call.settings
        for of, extents, part in chunks:
            data = of.array.bytes[part.offset : part.offset + part.bytes]
            tensor = Tensor(of.array.tensor.dtype, part.shape, [], data)
            yield call.message(settings, places_of(extents, part), [(of.number, tensor)])
            settings = []

    unanswered = iter(chunks)

    def take(answer: Buffer) -> None:
        of, _, part = next(unanswered, (None, None, None))
        if of is None or part is None:
            raise PosencError("INTERNAL", f"the stream has more than {len(chunks)} answers")
        tensor = answered(decode(call.answer, answer), of.name, of.array.tensor.dtype, part.shape)
        outputs[of.name].bytes[part.offset : part.offset + part.bytes] = tensor.data

    announced = largest + size(call.settings) + _FRAMING_BYTES
    yield Stream(call.method + "Stream", messages, take, announced, answers=len(chunks))
    return [outputs[t.name].result() for t in call.tensors]


def _heads_differ(rope: RopeSource) -> bool:
    explicit = rope.spec.explicit_frequencies if rope.spec else None
    return explicit is not None and explicit.heads > 0


def _has_several_axes(spec: RopeSpec) -> bool:
    if spec.axes is not None and len(spec.axes.sections) > 1:
        return True
    return spec.explicit_frequencies is not None and spec.explicit_frequencies.axes > 1
