"""Sends and receives messages in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Optional

import grpc

from .channels import LONGEST_STREAM, Call, Channels
from .wire import Buffer

# From this size on, a call uses a future, whose answer grpcio's own thread
# receives. A future makes large messages faster (a round trip of 1 MiB takes 2.9
# instead of 4.1 ms), but would make small messages slower (0.6 instead of 0.4 ms).
_LARGE = 64 << 10


def unary(channels: Channels, name: str, pieces: Sequence[Buffer], call: Call, once: bool = False) -> bytes:
    """Makes a call with one request and one response."""
    message = channels.joined(pieces)
    method = channels.method("unary_unary", name, once)
    options = {"timeout": call.rest(channels.patience), "metadata": channels.metadata(call, len(message))}
    future = None
    answer: bytes
    try:
        if len(message) < _LARGE:
            answer = method(message, **options)
        else:
            future = method.future(message, **options)
            answer = future.result()
        return answer
    except (grpc.RpcError, grpc.FutureCancelledError) as failed:
        raise channels.error_of(future or failed, call) from None
    finally:
        if future is not None:
            future.cancel()  # if the caller was interrupted


def stream(
    channels: Channels, name: str, messages: Iterable[bytes], take: Callable[[bytes], None], call: Call, announced: int
) -> None:
    """Sends and receives messages at the same time, and calls `take` with every answer."""
    moved = threading.Event()
    state: Optional[str] = None

    def requests() -> Iterator[bytes]:  # runs in a thread of grpcio
        for message in messages:
            moved.set()
            yield message

    def watch() -> None:
        nonlocal state
        while moved.wait(channels.patience):
            if state == "ended":
                return
            moved.clear()
        state = "stuck"
        running.cancel()

    method = channels.method("stream_stream", name)
    running = method(requests(), timeout=call.rest(LONGEST_STREAM), metadata=channels.metadata(call, announced))
    if call.timeout is None:
        threading.Thread(target=watch, daemon=True).start()
    try:
        for answer in running:
            moved.set()
            take(answer)
            del answer  # frees its memory before the next answer is received
    except grpc.RpcError as failed:
        raise channels.stuck() if state == "stuck" else channels.error_of(failed, call) from None
    finally:
        state = "ended"
        moved.set()
        running.cancel()
