"""A client's options: server, limits, TLS and token."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, Optional, TypedDict, Union

import grpc

from .errors import PosencError, invalid

Path = Union[str, "os.PathLike[str]"]

DEFAULT_TARGET = "localhost:50051"
# Shortest time in seconds between two checks of a token file.
_LOOK = 1.0


class ClientOptions(TypedDict, total=False):
    """Keywords of Client().

    timeout: seconds that a call may take, by default 60; for streams the
        longest time without progress.
    max_message_bytes: larger messages are neither sent nor received.
    stream_above_bytes: larger rotations and tables go as streams; by default 4 MiB.
    service_config: gRPC's, as JSON, instead of the published one.
    tls, tls_ca, tls_cert, tls_key, tls_server_name: TLS, and PEM files. Any of
        them switches TLS on; without tls_ca the system's authorities are trusted.
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


@dataclass(frozen=True)
class Options:
    """ClientOptions with their defaults."""

    target: str
    timeout: Optional[float] = None
    max_message_bytes: int = 512 << 20
    # grpcio moves a message in one piece, and copies it twice on each way. Above
    # this size a stream is faster, because its messages are sent, computed and
    # received at the same time, and needs less memory (README.md, "Memory").
    stream_above_bytes: int = 4 << 20
    service_config: Optional[str] = None
    tls: bool = False
    tls_ca: Optional[Path] = None
    tls_cert: Optional[Path] = None
    tls_key: Optional[Path] = None
    tls_server_name: Optional[str] = None
    token: Optional[str] = None
    token_file: Optional[Path] = None

    def __post_init__(self) -> None:
        if not isinstance(self.target, str) or not self.target:
            raise invalid("target", f"is {self.target!r}; must be a server's address, such as localhost:50051")
        scheme = re.match("https?://", self.target)
        if scheme:
            rest = self.target[scheme.end() :]
            raise invalid("target", f"is {self.target!r}; must be {rest!r}, without {scheme[0]} (tls=True is TLS)")
        for port in re.findall(r":(\d{5,})(?=,|$)", "" if self.target.startswith("unix") else self.target):
            # gRPC would truncate it to 16 bits, and call another port.
            if int(port) > 65535:
                raise invalid("target", f"is {self.target!r}, with port {port}; must be 1 to 65535")
        check_seconds(self.timeout)
        if self.timeout is not None and not self.timeout > 0:
            raise invalid("timeout", f"is {self.timeout}; must be above 0")
        # open() accepts the descriptor of an open file, too, and would close it.
        text, path = ((str, type(None)), "must be text"), ((str, os.PathLike, type(None)), "must be a path")
        kinds: dict[str, tuple[tuple[type, ...], str]] = {
            "tls": ((bool,), "must be True or False"),
            **dict.fromkeys(("tls_server_name", "token", "service_config"), text),
            **dict.fromkeys(("tls_ca", "tls_cert", "tls_key", "token_file"), path),
        }
        for option, (kind, remedy) in kinds.items():
            if not isinstance(getattr(self, option), kind):
                raise invalid(option, f"is {getattr(self, option)!r}; {remedy}")
        for option in ("max_message_bytes", "stream_above_bytes"):
            value = getattr(self, option)
            if not isinstance(value, Integral) or value < 0:
                raise invalid(option, f"is {value!r}; must be a whole number, 0 or more")


def check_seconds(timeout: Any) -> None:
    if timeout is not None and not isinstance(timeout, Real):
        raise invalid("timeout", f"is {timeout!r}; must be a number of seconds")


def from_environment(environ: Mapping[str, str] = os.environ) -> dict[str, Any]:
    """Returns options from POSENC_SERVER, POSENC_TLS..., POSENC_TOKEN and POSENC_TOKEN_FILE."""
    names = ("tls_ca", "tls_cert", "tls_key", "tls_server_name", "token", "token_file")
    options: dict[str, Any] = {name: environ.get(f"POSENC_{name.upper()}") or None for name in names}
    tls = environ.get("POSENC_TLS", "").lower()
    if tls not in ("", "0", "1", "false", "true", "off", "on"):
        raise invalid("POSENC_TLS", f"is {tls!r}; must be 1 or 0")
    return {"target": environ.get("POSENC_SERVER") or DEFAULT_TARGET, "tls": tls in ("1", "true", "on"), **options}


def credentials_of(options: Options) -> tuple[Optional[grpc.ChannelCredentials], list[tuple[str, Any]]]:
    """Returns channel credentials (None for plaintext) and their channel arguments."""
    arguments: list[tuple[str, Any]] = []
    files = options.tls_ca, options.tls_cert, options.tls_key
    if options.tls or any(files) or options.tls_server_name:
        if bool(options.tls_cert) != bool(options.tls_key):
            missing = "tls_key" if options.tls_cert else "tls_cert"
            raise invalid(missing, "is missing; certificate and key come together")
        ca = _pem(options.tls_ca, "tls_ca", "CERTIFICATE") or _system_roots()
        cert = _pem(options.tls_cert, "tls_cert", "CERTIFICATE")
        key = _pem(options.tls_key, "tls_key", "PRIVATE KEY")
        if options.tls_server_name:
            arguments.append(("grpc.ssl_target_name_override", options.tls_server_name))
        return grpc.ssl_channel_credentials(ca, key, cert), arguments
    if not (options.token or options.token_file):
        return None, arguments
    local = _local_kind(options.target)
    if local is None:
        name = "token" if options.token else "token_file"
        raise invalid(name, f"would be sent in the clear to {options.target}; must have TLS")
    # Plaintext; gRPC ends connections that leave this machine.
    return grpc.local_channel_credentials(local), arguments


def _system_roots() -> Optional[bytes]:
    """Returns the system's authorities, or None (then gRPC uses its own) without such a file."""
    path = ssl.get_default_verify_paths().cafile
    return _read(path, "tls") if path else None


def _pem(path: Optional[Path], option: str, kind: str) -> Optional[bytes]:
    if not path:
        return None
    data = _read(path, option)
    if f"{kind}-----".encode() not in data:
        raise invalid(option, f"{path}: holds no {kind.lower()}; must be PEM")
    return data


def _read(path: Path, option: str) -> bytes:
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise invalid(option, f"{path}: {error.strerror}") from None
    if not data:
        raise invalid(option, f"{path}: is empty")
    return data


def _local_kind(target: str) -> Any:
    """Returns the kind of a target whose text names this machine, or None."""
    if target.startswith(("unix:", "unix-abstract:")):
        return grpc.LocalConnectionType.UDS
    target = re.sub("^(dns:///|dns:|ipv4:|ipv6:)", "", target)
    loopback = re.compile(r"(localhost|\[::1\]|127(\.\d+){3})(:\d+)?")
    if all(loopback.fullmatch(address) for address in target.split(",")):
        return grpc.LocalConnectionType.LOCAL_TCP
    return None


class Bearer:
    """Adds the token to every call. Reads a file again when it has changed;
    keeps the old token while it cannot be read."""

    def __init__(self, options: Options) -> None:
        if options.token and options.token_file:
            raise invalid("token_file", "excludes token")
        self._path = options.token_file
        self._stamp: Any = None
        self._header = _bearer(options.token, "token") if options.token else ""
        if self._path:
            self._read(self._path)
        self._looked = time.monotonic()

    def header(self) -> str:
        """Returns the value of `authorization`, or "" without a token."""
        now = time.monotonic()
        if self._path and now - self._looked >= _LOOK:
            self._looked = now
            with contextlib.suppress(PosencError):
                self._read(self._path)
        return self._header

    def _read(self, path: Path) -> None:
        with contextlib.suppress(OSError):
            found = os.stat(path)
            if self._stamp == (found.st_ino, found.st_mtime_ns):
                return
            self._stamp = found.st_ino, found.st_mtime_ns
        self._header = _bearer(_read(path, "token_file").decode("latin-1"), f"token_file: {path}")


def _bearer(text: str, option: str) -> str:
    token = text.strip()
    if not token or not all("!" <= c <= "~" for c in token):
        raise invalid(option, "must hold one token, of visible characters")
    return f"Bearer {token}"
