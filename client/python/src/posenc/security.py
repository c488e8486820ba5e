"""TLS, and the bearer token of every call."""

from __future__ import annotations

import contextlib
import os
import re
import ssl
from typing import Any, Optional, Union

import grpc

from .errors import PosencError, invalid

Path = Union[str, "os.PathLike[str]"]

_LOOPBACK = re.compile(r"(dns:///|dns:|ipv4:|ipv6:)?(localhost|\[::1\]|127(\.\d+){3})(:\d+)?")


def credentials_of(target: str, options: Any) -> tuple[Optional[grpc.ChannelCredentials], list[tuple[str, Any]]]:
    """Returns channel credentials (None for plaintext) and their channel arguments. options: ClientOptions."""
    files = [options.get(name) for name in ("tls_ca", "tls_key", "tls_cert")]
    name = options.get("tls_server_name")
    if options.get("tls") or any(files) or name:
        if bool(files[1]) != bool(files[2]):
            raise invalid("tls_cert" if files[1] else "tls_key", "is missing; certificate and key come together")
        ca, key, cert = map(_pem, ("tls_ca", "tls_key", "tls_cert"), files)
        # If the system has no file of certificate authorities, gRPC uses its own.
        system = ssl.get_default_verify_paths().cafile
        ca = ca or (_read(system, "tls") if system else None)
        arguments = [("grpc.ssl_target_name_override", name)] if name else []
        return grpc.ssl_channel_credentials(ca, key, cert), arguments
    given = next((name for name in ("token", "token_file") if options.get(name)), None)
    if given is None:
        return None, []
    # Local credentials send plaintext. With local credentials, gRPC ends connections that leave this machine.
    if target.startswith(("unix:", "unix-abstract:")):
        return grpc.local_channel_credentials(grpc.LocalConnectionType.UDS), []
    if not all(map(_LOOPBACK.fullmatch, target.split(","))):
        raise invalid(given, f"would be sent in the clear to {target}; must have TLS")
    return grpc.local_channel_credentials(grpc.LocalConnectionType.LOCAL_TCP), []


def _pem(option: str, path: Optional[Path]) -> Optional[bytes]:
    if not path:
        return None
    data = _read(path, option)
    # If a file is not PEM, gRPC reports it only in its own log.
    if (b"PRIVATE KEY-----" if option == "tls_key" else b"CERTIFICATE-----") not in data:
        raise invalid(option, f"{path}: must be PEM, and holds no {'key' if option == 'tls_key' else 'certificate'}")
    return data


def _read(path: Path, option: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError as error:
        raise invalid(option, f"{path}: {error.strerror}") from None


class Bearer:
    """The bearer token of every call. A token file is read for each call, because tokens expire.
    While the file cannot be read, the old token is used."""

    def __init__(self, token: Optional[str], path: Optional[Path]) -> None:
        if token and path:
            raise invalid("token_file", "excludes token")
        self._path = path
        self._header = _bearer(token, "token") if token else _bearer_of(path) if path else ""

    def header(self) -> str:
        """Returns the value of `authorization`, or "" without a token."""
        if self._path:
            with contextlib.suppress(PosencError):
                self._header = _bearer_of(self._path)
        return self._header


def _bearer_of(path: Path) -> str:
    return _bearer(_read(path, "token_file").decode("latin-1"), f"token_file: {path}")


def _bearer(text: str, option: str) -> str:
    token = text.strip()
    if not token or not all("!" <= c <= "~" for c in token):
        raise invalid(option, "must hold one token, of visible characters")
    return f"Bearer {token}"
