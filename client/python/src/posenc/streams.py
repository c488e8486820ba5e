"""Streams: a request as a description and bytes, and answers that come in parts."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Optional

import numpy

from .arrays import Memory, Result
from .errors import internal
from .messages import ApplyRopeStreamRequest, ApplyRopeStreamResponse
from .tensor import ELEMENT_BYTES, Tensor
from .wire import Buffer, Message, decode, encode, fields_of, size

# Bytes of a message, without framing. The server rotates in place, as this is a
# multiple of nearly every head. A stream takes 44 MiB beside its tensors; with
# messages of 4 MiB it took 80, because grpcio copies each one twice.
CHUNK_BYTES = (2 << 20) - (64 << 10)
# The tag and the length beside a message's bytes.
FRAMING_BYTES = 16
# Ids of at most this size stay in the description.
SMALL_BYTES = 64 << 10


@dataclasses.dataclass
class Sent:
    """The requests of a stream."""

    first: bytes
    data: list[memoryview]
    chunk: int

    @classmethod
    def of(cls, stream: Callable[..., Message], request: Message, tensors: Sequence[str], most: int) -> Sent:
        """Describes a request, whose `tensors` are to be rotated. most: bytes of a message."""
        call, data = _described(request, tensors)
        # A multiple of every element.
        chunk = max(min(CHUNK_BYTES, most - FRAMING_BYTES) // 64, 1) * 64
        return cls(b"".join(encode(stream(call=call))), data, chunk)

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""
        return max(len(self.first), min(self.chunk, max(map(len, self.data), default=0)) + FRAMING_BYTES)

    def messages(self) -> Iterator[bytes]:
        yield self.first
        for data in self.data:
            for begin in range(0, len(data), self.chunk):
                # `data` has the same number in all streams.
                yield b"".join(encode(ApplyRopeStreamRequest(data=data[begin : begin + self.chunk])))


def _described(message: Message, tensors: Sequence[str]) -> tuple[Message, list[memoryview]]:
    """Returns a copy whose large tensors have only dtype and shape, and their bytes in the contract's order,
    which is that of the fields."""
    changed: dict[str, Any] = {}
    data = []
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if isinstance(value, Tensor):
            if f.name in tensors or len(value.data) > SMALL_BYTES:
                changed[f.name] = Tensor(value.dtype, value.shape)
                data.append(memoryview(value.data))
        elif isinstance(value, Message):
            changed[f.name], inner = _described(value, ())
            data += inner
    return dataclasses.replace(message, **changed), data


class Joined:
    """Tensors whose bytes come one after the other, cut anywhere."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._memory = [r.memory(r.dtype or 0, r.shape or ()) for r in results]
        self._missing = [memory.bytes for memory in self._memory if len(memory.bytes)]

    def take(self, answer: Buffer) -> None:
        # All streams of bytes have this response.
        data = memoryview(decode(ApplyRopeStreamResponse, answer).data)
        while len(data):
            if not self._missing:
                raise internal("the server's answer does not fit: it has more bytes than the tensors")
            into = self._missing[0]
            count = min(len(data), len(into))
            into[:count] = data[:count]
            data, self._missing[:1] = data[count:], [into[count:]] if count < len(into) else []

    def arrays(self) -> list[Any]:
        if self._missing:
            raise internal(f"the server's answer does not fit: {size(self._missing)} bytes of the tensors are missing")
        return [memory.array() for memory in self._memory]


class Boxes:
    """A tensor that comes in boxes, each with its first element's place."""

    def __init__(self, result: Result) -> None:
        self._result = result
        self._memory: Optional[Memory] = None
        self._elements = 0

    def put(self, answer: Message, field: str, whole: Sequence[int], begin: Sequence[int]) -> None:
        """whole: shape of the tensor, in the first answer."""
        box = dataclasses.replace(self._result, name=field, shape=None).tensor(answer)
        element = ELEMENT_BYTES[box.dtype]
        if self._memory is None:
            if len(whole) != len(box.shape) or min(whole, default=-1) < 0:
                raise internal(f"the first answer tells {list(whole)} as the shape of its {self._result.name}")
            self._dtype, self._whole = box.dtype, list(whole)
            self._memory = self._result.memory(box.dtype, whole)
            self._view = numpy.frombuffer(self._memory.bytes, numpy.uint8).reshape(*whole[:-1], whole[-1] * element)
        ends = [first + extent for first, extent in zip(begin, box.shape)]
        fits = len(ends) == len(self._whole) == len(box.shape) and all(map(int.__le__, ends, self._whole))
        if not fits or min(begin) < 0 or box.dtype != self._dtype:
            place = f"{box.dtype!r} {box.shape} at {list(begin)}"
            raise internal(f"the {self._result.name} came with a part that does not fit it: {place}")
        columns = slice(begin[-1] * element, ends[-1] * element)
        rows = tuple(map(slice, begin[:-1], ends[:-1]))
        data = numpy.frombuffer(box.data, numpy.uint8).reshape(*box.shape[:-1], box.shape[-1] * element)
        self._view[(*rows, columns)] = data
        self._elements += math.prod(box.shape)

    def array(self) -> Any:
        if self._memory is None:
            raise internal(f"the answer has no {self._result.name}")
        if self._elements != math.prod(self._whole):
            raise internal(f"the {self._result.name} came with parts missing or twice")
        return self._memory.array()
