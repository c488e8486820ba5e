"""Runs steps (steps.py) in the caller's thread."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, TypeVar, Union

import grpc

from .channels import LONGEST_STREAM, VERSION, WINDOW, Call, Connections
from .errors import PosencError
from .status import error_of
from .steps import Steps, Stream, Unary, explained
from .wire import size

T = TypeVar("T")


def closed(call: Call) -> PosencError:
    return PosencError("CANCELLED", "the client is closed; make another one", request_id=call.request_id or "")


def too_long(bytes_: int, limit: int, call: Call) -> PosencError:
    return PosencError(
        "RESOURCE_EXHAUSTED",
        f"request: {bytes_} bytes; the limit is {limit}, split the batch or raise max_message_bytes",
        request_id=call.request_id or "",
    )


def stuck(target: str, seconds: float, call: Call) -> PosencError:
    return PosencError(
        "DEADLINE_EXCEEDED", f"{target}: no progress for {seconds} s", request_id=call.request_id or ""
    )


def error_of_call(failed: Any, target: str, call: Call) -> PosencError:
    """What gRPC's exception becomes, or the error of a call that has one."""
    return error_of(failed.code(), failed.details() or "", failed.trailing_metadata(), target, call.request_id or "")


class Runner:
    """Runs a client's steps."""

    def __init__(self, connections: Connections, target: str) -> None:
        self._connections = connections
        self._target = target

    def run(self, steps: Steps[T], call: Call) -> T:
        steps = explained(steps, VERSION)
        try:
            step: Union[Unary, Stream] = next(steps)
            while True:
                try:
                    answer = self._unary(step, call) if isinstance(step, Unary) else self._stream(step, call)
                except PosencError as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result
        except PosencError as error:
            error.request_id = error.request_id or call.request_id or ""
            raise

    def _unary(self, step: Unary, call: Call) -> bytes:
        connections, sent = self._connections, size(step.pieces)
        if sent > connections.limits.max_message_bytes:
            raise too_long(sent, connections.limits.max_message_bytes, call)
        if connections.closed:
            raise closed(call)
        method = connections.of(max(sent, step.expected_bytes)).call("unary_unary", step.method)
        try:
            answer: bytes = method(
                b"".join(step.pieces), timeout=connections.timeout(call), metadata=connections.metadata(call, sent)
            )
        except grpc.RpcError as failed:
            raise error_of_call(failed, self._target, call) from None
        return answer

    def _stream(self, step: Stream, call: Call) -> None:
        connections = self._connections
        if connections.closed:
            raise closed(call)
        window = threading.Semaphore(WINDOW)
        ended = threading.Event()
        method = connections.of(connections.limits.max_message_bytes).call("stream_stream", step.method)
        # grpcio pulls requests in a thread of its own.
        patience: list[_Patience] = []

        def requests() -> Iterator[bytes]:
            for pieces in step.messages():
                window.acquire()
                if ended.is_set():
                    return
                for watch in patience:
                    watch.moved()
                yield b"".join(pieces)

        stream = method(
            requests(),
            timeout=LONGEST_STREAM if call.timeout is None else call.timeout,
            metadata=connections.metadata(call, step.announced),
        )
        if call.timeout is None:
            patience.append(_Patience(connections.timeout(call), stream.cancel))
        answers = 0
        try:
            for answer in stream:
                step.take(answer)
                del answer  # before the next one is received
                answers += 1
                window.release()
                for watch in patience:
                    watch.moved()
        except grpc.RpcError as failed:
            if any(watch.over for watch in patience):
                raise stuck(self._target, connections.timeout(call), call) from None
            raise error_of_call(failed, self._target, call) from None
        finally:
            ended.set()
            window.release()
            for watch in patience:
                watch.end()
            stream.cancel()
        if step.answers >= 0 and answers != step.answers:
            raise PosencError("INTERNAL", f"the stream ended after {answers} of {step.answers} answers")


class _Patience:
    """Cancels a call that makes no progress for so many seconds."""

    def __init__(self, seconds: float, cancel: Any) -> None:
        self.over = False
        self._seconds = seconds
        self._cancel = cancel
        self._ended = False
        self._progress = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self._progress.wait(self._seconds):
            if self._ended:
                return
            self._progress.clear()
        self.over = True
        self._cancel()

    def moved(self) -> None:
        self._progress.set()

    def end(self) -> None:
        self._ended = True
        self._progress.set()
