"""The channels to a server, and the options and metadata of every call."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import secrets
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional

from .errors import CancelledError, DeadlineExceededError, PosencError, ResourceExhaustedError, invalid
from .options import Bearer, Options, check_seconds, credentials_of
from .status import error_of
from .wire import Buffer, size

SERVICE = "/posenc.v1.PositionalEncodingService/"
VERSION = importlib.metadata.version("posenc")

# Seconds for a unary call, and for a stream without progress.
DEFAULT_TIMEOUT = 60.0
# Deadline of a stream whose only limit is progress. Without a deadline the
# server would set its default.
LONGEST_STREAM = 24 * 3600.0
# A year in seconds: grpcio treats a time beyond its clock as a deadline in the past.
_LONGEST_TIMEOUT = 365 * 24 * 3600.0
# The largest message of protobuf.
_MAX_PROTO_BYTES = (1 << 31) - 1


@dataclass
class Call:
    """CallOptions of one call. Its timeout starts now, and each request of the call gets the remaining time."""

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
            if not self.timeout > 0:  # grpcio would let a quick call succeed
                raise DeadlineExceededError("DEADLINE_EXCEEDED", f"timeout: {self.timeout} s; must be above 0")
            self.timeout = min(self.timeout, _LONGEST_TIMEOUT)
            self._end = time.monotonic() + self.timeout

    def rest(self, otherwise: float) -> float:
        """Returns the remaining seconds of the call's own timeout; never 0,
        because 0 would be refused as the caller's mistake."""
        return otherwise if self.timeout is None else max(self._end - time.monotonic(), 1e-6)


class Channels:
    """`grpc` is grpc or grpc.aio. A channel is made when it is first used."""

    def __init__(self, options: Options, grpc: Any) -> None:
        self._options = options
        self._grpc = grpc
        self._credentials, self._security = credentials_of(options)
        self._bearer = Bearer(options)
        # By whether their calls are sent only once: in gRPC, retries are an option of
        # the channel.
        self._channels: dict[bool, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.most = min(options.max_message_bytes, _MAX_PROTO_BYTES)
        self.stream_above = min(options.stream_above_bytes, self.most)
        # Seconds of a unary call, and of a stream without progress.
        self.patience = min(DEFAULT_TIMEOUT if options.timeout is None else options.timeout, _LONGEST_TIMEOUT)

    def method(self, kind: str, name: str, once: bool = False) -> Any:
        """kind: unary_unary or stream_stream. once: the call must not be sent again."""
        with self._lock:
            if self._closed:
                raise CancelledError("CANCELLED", "the client is closed; make another one")
            if once not in self._channels:
                self._channels[once] = self._channel(once)
            return getattr(self._channels[once], kind)(SERVICE + name)

    def joined(self, pieces: Sequence[Buffer]) -> bytes:
        """Returns a message in one piece, as grpcio needs it."""
        sent = size(pieces)
        if sent > self.most:
            text = f"request: {sent} bytes; the limit is {self.most}, split the batch or raise max_message_bytes"
            raise ResourceExhaustedError("RESOURCE_EXHAUSTED", text)
        try:
            return b"".join(pieces)
        except MemoryError:
            raise MemoryError(f"request: no memory for {sent} bytes") from None

    def error_of(self, failed: Any, call: Call) -> PosencError:
        return error_of(failed, self._options.target, call.request_id or "")

    def stuck(self) -> PosencError:
        text = f"{self._options.target}: no progress for {self.patience} s"
        return DeadlineExceededError("DEADLINE_EXCEEDED", text)

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
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        return channels

    def _channel(self, once: bool) -> Any:
        options = self._options
        config = options.service_config
        if config is None:
            config = importlib.resources.files("posenc").joinpath("service_config.json").read_text()
        arguments = [
            *self._security,
            ("grpc.max_receive_message_length", self.most),
            ("grpc.max_send_message_length", self.most),
            ("grpc.service_config", config),
            ("grpc.enable_retries", int(not once)),
            # A call that has sent more than this is not retried. gRPC's default
            # of 256 KiB would exclude most tensors.
            ("grpc.per_rpc_retry_buffer_size", self.most),
            # A retry helps only after the connection was tried again, so this
            # is the retries' first backoff, not gRPC's 1 s.
            ("grpc.initial_reconnect_backoff_ms", 100),
            # Kubernetes' names are valid for 5 s; gRPC's default is 30 s.
            ("grpc.dns_min_time_between_resolutions_ms", 5000),
            # Otherwise all channels with equal arguments share one connection.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.primary_user_agent", f"posenc-python/{VERSION}"),
        ]
        if self._credentials is None:
            return self._grpc.insecure_channel(options.target, options=arguments)
        return self._grpc.secure_channel(options.target, self._credentials, options=arguments)
