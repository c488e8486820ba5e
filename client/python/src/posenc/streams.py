"""Streams. A request is sent as a description and then bytes. Answers come in parts."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy

from .arrays import Borrowed, Result
from .errors import InternalError, ResourceExhaustedError
from .messages import ApplyRopeStreamRequest, ApplyRopeStreamResponse, Tensor
from .tensor import ELEMENT_BYTES
from .wire import Buffer, Message, decode, encode, fields_of, size

# Size of a message in bytes, without framing. It is a multiple of the size of
# nearly every head, so that the server can rotate in place. A stream needs 44
# MiB in addition to its tensors. With messages of 4 MiB it needed 80 MiB,
# because grpcio copies each message twice.
CHUNK_BYTES = (2 << 20) - (64 << 10)
# Room for the tag and the length of a message's `data`.
_FRAMING_BYTES = 16
# Position ids and other tensors of the description stay in the first message if
# they have at most this size.
SMALL_BYTES = 64 << 10


class Sent:
    """The request messages of a stream: a description, then bytes."""

    def __init__(
        self,
        stream: Callable[..., Message],
        request: Message,
        tensors: Mapping[str, Borrowed],
        results: Sequence[Result],
        most: int,
    ) -> None:
        """tensors: the tensors to rotate. most: the largest size of a message in bytes."""
        call, self._data = _described(request)
        for name, tensor in _guarded(tensors, results):
            setattr(call, name, Tensor(tensor.dtype, tensor.shape))
            self._data.append(memoryview(tensor.data))
        self._first = b"".join(encode(stream(call=call)))
        # A multiple of 64 is a multiple of every element's size.
        self._chunk = max(min(CHUNK_BYTES, most - _FRAMING_BYTES) // 64, 1) * 64

    @property
    def largest(self) -> int:
        """Size of the largest message in bytes."""
        longest = max(map(len, self._data), default=0)
        return max(len(self._first), min(self._chunk, longest) + _FRAMING_BYTES)

    def __iter__(self) -> Iterator[bytes]:
        yield self._first
        for data in self._data:
            for begin in range(0, len(data), self._chunk):
                # The field `data` has the same number in the requests of all streams.
                yield b"".join(encode(ApplyRopeStreamRequest(data=data[begin : begin + self._chunk])))


def _described(message: Message) -> tuple[Any, list[memoryview]]:
    """Returns a copy of the message whose large tensors have only dtype and shape.
    Also returns the bytes of these tensors in the order of the fields, which the contract requires."""
    changed: dict[str, Any] = {}
    data = []
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if isinstance(value, Tensor):
            if len(value.data) > SMALL_BYTES:
                changed[f.name] = Tensor(value.dtype, value.shape)
                data.append(memoryview(value.data))
        elif isinstance(value, Message):
            changed[f.name], inner = _described(value)
            data += inner
    return dataclasses.replace(message, **changed), data


def _guarded(tensors: Mapping[str, Borrowed], results: Sequence[Result]) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor. Copies a tensor if a result may overwrite its bytes before they are sent.
    A tensor's own result comes only after the tensor's bytes were sent, so a result in place needs no copy."""
    for i, (name, array) in enumerate(tensors.items()):
        tensor, data = array.tensor, numpy.asarray(array.tensor.data)
        for j, result in enumerate(results[: i + 1]):
            if result.memory is not None and numpy.may_share_memory(into := numpy.asarray(result.memory), data):
                if i != j or into.ctypes.data != data.ctypes.data:
                    tensor = dataclasses.replace(tensor, data=bytes(tensor.data))
        yield name, tensor


class Joined:
    """The result tensors of a stream. Their bytes come one tensor after the other; a message can end at any byte."""

    def __init__(self, results: Sequence[Result]) -> None:
        self._results = results
        rooms = [result.room(result.dtype or 0, result.shape or ()) for result in results]
        self._missing = [room for room in rooms if len(room)]

    def take(self, answer: Buffer) -> None:
        # The responses of all streams of bytes have the same wire format.
        data = memoryview(decode(ApplyRopeStreamResponse, answer).data)
        while len(data):
            if not self._missing:
                raise _misfit("it has more bytes than the tensors")
            into = self._missing[0]
            count = min(len(data), len(into))
            into[:count] = data[:count]
            data, self._missing[:1] = data[count:], [into[count:]] if count < len(into) else []

    def done(self) -> None:
        if self._missing:
            raise _misfit(f"{size(self._missing)} bytes of the tensors are missing")
        for result in self._results:
            result.done(result.dtype or 0, result.shape or ())


class Parts:
    """Result tensors of one shape. They come in boxes: parts of any extent along each axis.

    begin: a function that returns the indices of a box's first element, from the answer and the tensor's rank.
    """

    def __init__(
        self, answer: type[Message], results: Sequence[Result], begin: Callable[[Any, int], Sequence[int]]
    ) -> None:
        self.last: Any = answer()
        self._answer = answer
        self._results = results
        self._begin = begin
        self._whole: list[int] = []
        self._missing = -1  # number of elements; negative before the first answer

    def take(self, answer: Buffer) -> None:
        self.last = decode(self._answer, answer)
        for result in self._results:
            part = result.tensor(self.last, is_part=True)
            element = ELEMENT_BYTES[part.dtype]
            if self._missing < 0:
                self._whole = list(self.last.whole_shape)
                if min(self._whole, default=-1) < 0 or result.shape not in (None, self._whole):
                    raise _misfit(f"the first answer tells {self._whole} as the shape of its {result.name}")
                self._missing = math.prod(self._whole) * len(self._results)
                _check_memory(self._missing * element)
            whole, begin = self._whole, self._begin(self.last, len(part.shape))
            ends = [first + extent for first, extent in zip(begin, part.shape)]
            fits = len(begin) == len(part.shape) == len(whole) and min(begin) >= 0
            if not fits or any(map(int.__gt__, ends, whole)):
                raise _misfit(f"a {result.name} of {part.shape} at {list(begin)} lies outside of {whole}")
            result.dtype = part.dtype  # all parts have the same dtype
            room = numpy.asarray(result.room(part.dtype, whole)).reshape(*whole[:-1], whole[-1] * element)
            data = numpy.asarray(part.data).reshape(*part.shape[:-1], part.shape[-1] * element)
            columns = slice(begin[-1] * element, ends[-1] * element)
            room[(*map(slice, begin[:-1], ends[:-1]), columns)] = data
            self._missing -= math.prod(part.shape)

    def done(self) -> None:
        if self._missing:
            raise _misfit(f"{self._results[0].name} came with parts missing or twice")
        for result in self._results:
            result.done(result.dtype or 0, self._whole)


def _misfit(fact: str) -> InternalError:
    return InternalError("INTERNAL", f"the server's answer does not fit: {fact}")


def _check_memory(total: int) -> None:
    """Refuses a result larger than the machine's memory.
    Without this check, a kernel that overcommits memory would kill the process while the result is written."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return  # the size of memory is unknown
    if 0 < memory < total:
        text = f"the result has {total} bytes, and this machine {memory} of memory; ask for less, or take it in parts"
        raise ResourceExhaustedError("RESOURCE_EXHAUSTED", text)
