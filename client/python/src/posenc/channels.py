"""Connections to the server, and the options and metadata of every call."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Optional

from .errors import PosencError
from .options import Bearer, Options, check_seconds, credentials_of
from .shared import Regions
from .steps import Limits, Unary
from .wire import invalid

SERVICE = "/posenc.v1.PositionalEncodingService/"
VERSION = importlib.metadata.version("posenc")

# Seconds for a unary call, and for a stream without progress.
DEFAULT_TIMEOUT = 60.0
# Deadline of a stream whose only limit is progress. Without a deadline the
# server would set its default.
LONGEST_STREAM = 24 * 3600.0
# Smaller messages gain nothing from a separate connection.
BULK_BYTES = 64 << 10
# grpcio moves a message in one piece, and copies it twice on each way. Above
# this size chunks are faster, because they are sent, computed and received at
# the same time, and need less memory (README.md, "Memory").
STREAM_ABOVE_BYTES = 4 << 20
# A year in seconds: grpcio treats a time beyond its clock as a deadline in the past.
_LONGEST_TIMEOUT = 365 * 24 * 3600.0
# The largest message of protobuf.
_MAX_PROTO_BYTES = (1 << 31) - 1


@dataclass
class Call:
    """A caller's options for one call. timeout: for the whole call, also of a
    stream. It starts now, and each request of the call gets the remaining
    time."""

    timeout: Optional[float] = None
    request_id: Optional[str] = None
    traceparent: Optional[str] = None

    def __post_init__(self) -> None:
        if self.request_id is None:
            self.request_id = secrets.token_hex(16)
        for name, value in (("request_id", self.request_id), ("traceparent", self.traceparent)):
            if value is not None and (not isinstance(value, str) or not all(" " <= c <= "~" for c in value)):
                raise invalid(name, f"is {value!r}; must be text of visible ASCII characters")
        check_seconds(self.timeout)
        if self.timeout is not None:
            self.timeout = min(self.timeout, _LONGEST_TIMEOUT)
            self._end = time.monotonic() + self.timeout

    def rest(self) -> Optional[float]:
        """Returns the remaining seconds of the call's own timeout; never 0,
        because 0 would be refused as the caller's mistake."""
        if self.timeout is None or not self.timeout > 0:
            return self.timeout
        return max(self._end - time.monotonic(), 1e-6)


class Connection:
    """A channel and its methods, made at the first use."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._channel: Any = None
        self._methods: dict[tuple[str, str], Any] = {}
        self.calls = 0  # under way
        self._lock = threading.Lock()

    def method(self, kind: str, method: str) -> Any:
        """`kind`: unary_unary or stream_stream. Messages are bytes both ways."""
        found = self._methods.get((kind, method))
        if found is None:
            with self._lock:
                if self._channel is None:
                    self._channel = self._make()
                found = getattr(self._channel, kind)(SERVICE + method)
                self._methods[kind, method] = found
        return found

    def load(self) -> int:
        """Returns twice the running calls, plus one without a channel: a new
        channel comes after idle channels, and before busy ones."""
        return 1 if self._channel is None else 2 * self.calls

    def take(self) -> Any:
        """Returns the channel to close, if any."""
        with self._lock:
            channel, self._channel, self._methods = self._channel, None, {}
        return channel


class Connections:
    """Small messages share one connection. A larger one takes the connection
    with the fewest running calls: a single connection would delay concurrent
    calls, and a new one is slow until TCP has adapted. `grpc` is grpc or
    grpc.aio."""

    def __init__(self, options: Options, grpc: Any) -> None:
        self._options = options
        self._grpc = grpc
        self._credentials, self._security = credentials_of(options)
        self._bearer = Bearer(options)
        self._small = Connection(lambda: self._channel(False))
        # In gRPC, retries are an option of the channel.
        self._once = Connection(lambda: self._channel(False, retries=False))
        self._bulk = [Connection(lambda: self._channel(True)) for _ in range(options.bulk_channels)]
        self._lock = threading.Lock()
        self.closed = False
        self.regions = Regions()
        most = min(options.max_message_bytes, _MAX_PROTO_BYTES)
        above = STREAM_ABOVE_BYTES if options.stream_above_bytes is None else options.stream_above_bytes
        self.limits = Limits(most, min(above, most))

    @contextmanager
    def of(self, message_bytes: int, once: bool = False) -> Iterator[Connection]:
        """Yields the connection for a call, and counts the call. once: the call
        must not be sent again."""
        if once:
            yield self._once
            return
        if message_bytes < BULK_BYTES or not self._bulk:
            yield self._small
            return
        with self._lock:
            connection = min(self._bulk, key=Connection.load)
            # Equally busy connections are used in turn: a connection whose
            # calls fail at once is often idle, and must not get all calls.
            self._bulk.remove(connection)
            self._bulk.append(connection)
            connection.calls += 1
        try:
            yield connection
        finally:
            with self._lock:
                connection.calls -= 1

    def timeout(self, call: Call, step: Optional[Unary] = None) -> float:
        rest = call.rest()
        seconds = self._options.timeout if rest is None else rest
        seconds = DEFAULT_TIMEOUT if seconds is None else seconds
        if not seconds > 0:  # grpcio would let a quick call succeed
            raise PosencError("DEADLINE_EXCEEDED", f"timeout: {seconds} s; must be above 0")
        return min(seconds, step.timeout if step else _LONGEST_TIMEOUT, _LONGEST_TIMEOUT)

    def metadata(self, call: Call, announced: int) -> list[tuple[str, str]]:
        headers = [("x-request-id", str(call.request_id))]
        if announced:
            headers.append(("posenc-message-bytes", str(announced)))
        if call.traceparent:
            headers.append(("traceparent", call.traceparent))
        token = self._bearer.header()
        if token:
            headers.append(("authorization", token))
        return headers

    def take_all(self) -> list[Any]:
        """Returns the channels to close."""
        self.closed = True
        self.regions.close()
        channels = [connection.take() for connection in (self._small, self._once, *self._bulk)]
        return [channel for channel in channels if channel is not None]

    def _channel(self, own_connection: bool, retries: bool = True) -> Any:
        options = self._options
        config = options.service_config
        if config is None:
            config = importlib.resources.files("posenc").joinpath("service_config.json").read_text()
        arguments = [
            *self._security,
            ("grpc.max_receive_message_length", self.limits.max_message_bytes),
            ("grpc.max_send_message_length", self.limits.max_message_bytes),
            ("grpc.service_config", config),
            ("grpc.enable_retries", int(retries)),
            # A call that has sent more than this is not retried. gRPC's default
            # of 256 KiB would exclude most tensors.
            ("grpc.per_rpc_retry_buffer_size", self.limits.max_message_bytes),
            # A retry helps only after the connection was tried again, so this
            # is the retries' first backoff, not gRPC's 1 s.
            ("grpc.initial_reconnect_backoff_ms", 100),
            # Kubernetes' names are valid for 5 s; gRPC's default is 30 s.
            ("grpc.dns_min_time_between_resolutions_ms", 5000),
            # Otherwise all channels with equal arguments share one connection.
            ("grpc.use_local_subchannel_pool", int(own_connection)),
            ("grpc.primary_user_agent", f"posenc-python/{VERSION}"),
        ]
        if self._credentials is None:
            return self._grpc.insecure_channel(options.target, options=arguments)
        return self._grpc.secure_channel(options.target, self._credentials, options=arguments)
