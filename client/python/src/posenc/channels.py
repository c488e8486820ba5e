"""The channels to a server, and the options and metadata of every call."""

from __future__ import annotations

import importlib.metadata
import importlib.resources
import os
import re
import secrets
import threading
import time
from collections.abc import Sequence
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Optional, TypedDict

from .arguments import CallOptions
from .coerce import check_keywords
from .errors import CancelledError, DeadlineExceededError, PosencError, ResourceExhaustedError, invalid
from .security import Bearer, Path, credentials_of
from .status import error_of
from .wire import Buffer, size

if TYPE_CHECKING:
    from typing_extensions import Unpack

SERVICE = "/posenc.v1.PositionalEncodingService/"
VERSION = importlib.metadata.version("posenc")

# The longest time of a unary call, and a stream's longest time without progress, in seconds.
_DEFAULT_TIMEOUT = 60.0
# Deadline, in seconds, of a stream that is limited only by the time without
# progress. Without a deadline the server would set its default deadline.
LONGEST_STREAM = 24 * 3600.0
# A year in seconds. grpcio treats a time beyond the range of its clock as a
# deadline in the past.
_LONGEST_TIMEOUT = 365 * 24 * 3600.0
# The largest message of protobuf.
_MAX_PROTO_BYTES = (1 << 31) - 1
# grpcio moves a message in one piece, and copies it twice in each direction. Above
# this size a stream needs less memory (README.md, "Memory"). A stream is also
# faster, because sending, computing and receiving run at the same time.
_STREAM_ABOVE_BYTES = 4 << 20


class ClientOptions(TypedDict, total=False):
    """Keywords of Client().

    timeout: longest time of a unary call, and a stream's longest time without progress, in seconds; by default 60.
    max_message_bytes: larger messages are neither sent nor received; by default 512 MiB.
    stream_above_bytes: larger rotations and tables are sent as streams; by default 4 MiB.
    service_config: gRPC's service config, as JSON; replaces the package's file.
    tls, tls_ca, tls_cert, tls_key, tls_server_name: each of these options switches TLS on. The files are PEM files.
        Without tls_ca the system's certificate authorities are trusted.
    token, token_file: a bearer token. The file is read again when it changes.
    """

    timeout: Optional[float]
    max_message_bytes: int
    stream_above_bytes: int
    service_config: Optional[str]
    tls: bool
    tls_ca: Optional[Path]
    tls_cert: Optional[Path]
    tls_key: Optional[Path]
    tls_server_name: Optional[str]
    token: Optional[str]
    token_file: Optional[Path]


# Types of options; options without an entry are paths. A path must not be a number, because open() would
# take the number for the descriptor of an open file, and close that file.
_KINDS: dict[str, Any] = {
    **dict.fromkeys(("service_config", "tls_server_name", "token"), str),
    **dict.fromkeys(("max_message_bytes", "stream_above_bytes"), Integral),
    "timeout": Real,
    "tls": bool,
}


def from_environment() -> dict[str, Any]:
    """Returns target and ClientOptions from POSENC_SERVER, POSENC_TLS..., POSENC_TOKEN and POSENC_TOKEN_FILE."""
    names = ("tls_ca", "tls_cert", "tls_key", "tls_server_name", "token", "token_file")
    tls = os.environ.get("POSENC_TLS", "").lower()
    if tls not in ("", "0", "1", "false", "true", "off", "on"):
        raise invalid("POSENC_TLS", f"is {tls!r}; must be 1 or 0")
    return {
        "target": os.environ.get("POSENC_SERVER") or "localhost:50051",
        "tls": tls in ("1", "true", "on"),
        **{name: os.environ.get(f"POSENC_{name.upper()}") or None for name in names},
    }


class Call:
    """CallOptions of one call. The timeout starts with the constructor.
    A call may have several requests; each request gets the remaining time."""

    def __init__(self, **options: Unpack[CallOptions]) -> None:
        check_keywords(options, CallOptions)
        self.timeout, self.traceparent = options.get("timeout"), options.get("traceparent")
        request_id = options.get("request_id")
        for name, value in (("request_id", request_id), ("traceparent", self.traceparent)):
            if value is not None and (not isinstance(value, str) or not all(" " <= c <= "~" for c in value)):
                raise invalid(name, f"is {value!r}; must be text of visible ASCII characters")
        self.id = secrets.token_hex(16) if request_id is None else request_id
        seconds: Any = self.timeout
        if seconds is not None:
            if not isinstance(seconds, _KINDS["timeout"]):
                raise invalid("timeout", f"is {seconds!r}; must be a number of seconds")
            if not seconds > 0:  # with such a timeout, grpcio would let a quick call succeed
                raise DeadlineExceededError("DEADLINE_EXCEEDED", f"timeout: {seconds} s; must be above 0")
            self._end: float = time.monotonic() + min(seconds, _LONGEST_TIMEOUT)

    def rest(self, otherwise: float) -> float:
        """Returns the remaining seconds of the call's own timeout, or `otherwise` if the call has no timeout.
        Never returns 0, which would be refused as the caller's mistake."""
        return otherwise if self.timeout is None else max(self._end - time.monotonic(), 1e-6)


class Channels:
    """The gRPC channels of a client. `grpc` is the module grpc or grpc.aio. A channel is made when it is first used."""

    def __init__(self, grpc: Any, target: str, options: ClientOptions) -> None:
        check_keywords(options, ClientOptions)
        self.target = _checked(target)
        for name, value in options.items():
            kind = _KINDS.get(name, (str, os.PathLike))
            if value is not None and not isinstance(value, kind):
                raise invalid(name, f"is {value!r}; must be {getattr(kind, '__name__', 'a path')}")
        self._options: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
        self._grpc = grpc
        self._credentials, self._security = credentials_of(target, self._options)
        self._bearer = Bearer(options.get("token"), options.get("token_file"))
        # The key says whether calls are sent only once. In gRPC, retries are an
        # option of the channel, so such calls need a channel of their own.
        self._channels: dict[bool, Any] = {}
        self._lock = threading.Lock()
        self._closed = False
        self.most = min(self._options.get("max_message_bytes", 512 << 20), _MAX_PROTO_BYTES)
        self.stream_above = min(self._options.get("stream_above_bytes", _STREAM_ABOVE_BYTES), self.most)
        # The longest time of a unary call, and a stream's longest time without progress, in seconds.
        self.patience = min(self._options.get("timeout", _DEFAULT_TIMEOUT), _LONGEST_TIMEOUT)
        if not self.patience > 0:
            raise invalid("timeout", f"is {self.patience}; must be above 0")

    def method(self, kind: str, name: str, once: bool = False) -> Any:
        """Returns grpc's callable of a method. kind: unary_unary or stream_stream. once: never send a call again."""
        with self._lock:
            if self._closed:
                raise CancelledError("CANCELLED", "the client is closed; make another one")
            if once not in self._channels:
                self._channels[once] = self._channel(once)
            return getattr(self._channels[once], kind)(SERVICE + name)

    def joined(self, pieces: Sequence[Buffer]) -> bytes:
        """Joins the pieces of a message, because grpcio needs a message in one piece."""
        sent = size(pieces)
        if sent > self.most:
            text = f"request: {sent} bytes; the limit is {self.most}, split the batch or raise max_message_bytes"
            raise ResourceExhaustedError("RESOURCE_EXHAUSTED", text)
        return b"".join(pieces)

    def error_of(self, failed: Any, call: Call) -> PosencError:
        return error_of(failed, self.target, call.id)

    def stuck(self) -> PosencError:
        text = f"{self.target}: no progress for {self.patience} s"
        return DeadlineExceededError("DEADLINE_EXCEEDED", text)

    def metadata(self, call: Call, announced: int) -> list[tuple[str, str]]:
        headers = {
            "x-request-id": call.id,
            "posenc-message-bytes": str(announced) if announced else "",
            "traceparent": call.traceparent,
            "authorization": self._bearer.header(),
        }
        return [(name, value) for name, value in headers.items() if value]

    def take_all(self) -> list[Any]:
        """Returns the channels, which the caller must close. Afterwards no call can be made."""
        with self._lock:
            self._closed = True
            channels, self._channels = list(self._channels.values()), {}
        return channels

    def _channel(self, once: bool) -> Any:
        config = self._options.get("service_config")
        if config is None:
            config = importlib.resources.files("posenc").joinpath("service_config.json").read_text()
        arguments = [
            *self._security,
            ("grpc.max_receive_message_length", self.most),
            ("grpc.max_send_message_length", self.most),
            ("grpc.service_config", config),
            ("grpc.enable_retries", int(not once)),
            # A call that has sent more bytes than this limit is not retried.
            # gRPC's default of 256 KiB would exclude most tensors.
            ("grpc.per_rpc_retry_buffer_size", self.most),
            # A retry helps only after gRPC has tried to connect again. So this
            # backoff equals the first backoff of retries. gRPC's default is 1 s.
            ("grpc.initial_reconnect_backoff_ms", 100),
            # In Kubernetes, the addresses of a name may be cached for 5 s. By default
            # gRPC would ask for the addresses again only after 30 s.
            ("grpc.dns_min_time_between_resolutions_ms", 5000),
            # Without this option, all channels with equal arguments share one
            # connection.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.primary_user_agent", f"posenc-python/{VERSION}"),
        ]
        if self._credentials is None:
            return self._grpc.insecure_channel(self.target, options=arguments)
        return self._grpc.secure_channel(self.target, self._credentials, options=arguments)


def _checked(target: Any) -> str:
    """Returns the target. Refuses a target that gRPC would read as another address, or as an unknown name."""
    scheme = re.match("https?://", target) if isinstance(target, str) else None
    if scheme:
        address = target[scheme.end() :]
        raise invalid("target", f"is {target!r}; must be {address!r}, without {scheme[0]}; TLS is an option")
    if not isinstance(target, str) or not target:
        raise invalid("target", f"is {target!r}; must be a server's address, such as localhost:50051")
    for port in re.findall(r":(\d{5,})(?=,|$)", "" if target.startswith("unix") else target):
        if int(port) > 65535:  # gRPC would truncate it to 16 bits
            raise invalid("target", f"is {target!r}, with port {port}; must be 1 to 65535")
    return target
