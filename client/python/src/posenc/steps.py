"""The messages of a call, separate from the code that waits for them.

A method is a generator of steps: it yields Unary or Stream, receives the answer
of a Unary or the PosencError of either, and returns the method's result. Client
runs the steps in the caller's thread, AsyncClient in the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional, TypeVar, Union

from .errors import PosencError
from .messages import GetServerInfoResponse
from .tensor import ELEMENT_BYTES, Tensor
from .wire import Buffer, decode, encode, size

T = TypeVar("T")

# Seconds that a server may take to report its version, for the text of an
# error.
_VERSION_TIMEOUT = 2


@dataclass
class Unary:
    """One message each way. The generator receives the answer."""

    method: str
    pieces: list[Buffer]
    expected_bytes: int = 0  # approximate size of the answer
    timeout: float = math.inf  # seconds; the call's own timeout may be shorter
    once: bool = False  # must not be sent a second time


def joined(step: Unary) -> bytes:
    """Returns the message in one piece, as grpcio needs it."""
    try:
        return b"".join(step.pieces)
    except MemoryError:
        raise MemoryError(f"{step.method}: no memory for a request of {size(step.pieces)} bytes") from None


@dataclass
class Stream:
    """Messages both ways at the same time; `take` gets every answer."""

    method: str
    messages: Callable[[], Iterator[list[Buffer]]]
    take: Callable[[Buffer], None]
    announced: int = 0


Steps = Generator[Union[Unary, Stream], Any, T]


@dataclass
class Limits:
    max_message_bytes: int
    stream_above_bytes: int


def ask(method: str, request: Any, answer: Any, expected_bytes: int = 0) -> Steps[Any]:
    """Makes a unary call with ordinary messages."""
    data = yield Unary(method, encode(request), expected_bytes)
    return decode(answer, data)


def too_large(error: PosencError) -> bool:
    return error.code == "RESOURCE_EXHAUSTED" and error.reason != "OVERLOADED"


def explained(steps: Steps[T], version: str) -> Steps[T]:
    """Does the same, and adds both versions to an UNIMPLEMENTED. With a reason,
    the server has already said what it does not know."""
    try:
        return (yield from steps)
    except PosencError as error:
        if error.code != "UNIMPLEMENTED" or error.reason:
            raise
        try:
            answer = yield Unary("GetServerInfo", [], timeout=_VERSION_TIMEOUT)
            server = f"posenc {decode(GetServerInfoResponse, answer).version or 'of an unknown version'}"
        except PosencError:
            server = "not posenc, or of another version"
        raise error.with_text(
            f"{error.text}; the server is {server}, this client is posenc {version}: use versions that agree"
        ) from None


def answered(
    message: Any,
    name: str,
    dtype: Optional[int] = None,
    shape: Optional[Sequence[int]] = None,
    placed: bool = False,
) -> Tensor:
    """Returns a tensor that the answer must have. Checks type and shape if they are
    known, and that all bytes are present unless the server wrote them to shared
    memory."""
    tensor: Optional[Tensor] = getattr(message, name)
    if tensor is None:
        raise PosencError("INTERNAL", f"the answer has no {name}")
    extents = list(tensor.shape)
    element = ELEMENT_BYTES.get(tensor.dtype, 0)
    held = element * len(tensor.values) or len(tensor.data)
    fits = element > 0 and min(extents, default=0) >= 0 and (placed or held == math.prod(extents) * element)
    if fits and dtype in (None, tensor.dtype) and (shape is None or extents == list(shape)):
        return tensor
    wanted = "" if dtype is None or shape is None else f"; must be {_told(dtype, shape)}"
    raise PosencError("INTERNAL", f"the answer's {name} is {_told(tensor.dtype, extents)} with {held} bytes{wanted}")


def _told(dtype: int, shape: Sequence[int]) -> str:
    return f"{getattr(dtype, 'name', dtype)} {list(shape)}"
