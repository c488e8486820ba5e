"""Reads gRPC errors: the google.rpc.Status in their trailers."""

from __future__ import annotations

from typing import Any

import grpc

from .errors import PosencError, class_of
from .wire import scan

_TYPE = "type.googleapis.com/google.rpc."


def error_of(failed: Any, target: str, request_id: str) -> PosencError:
    """Returns the error of a failed call. `failed` is grpc's exception, or its future."""
    code, text = failed.code(), failed.details() or ""
    trailers = dict(failed.trailing_metadata() or ())
    reason, field = "", ""
    metadata: dict[str, str] = {}
    violations: list[tuple[str, str]] = []
    try:
        for type_url, value in _details(trailers.get("grpc-status-details-bin", b"")):
            if type_url == _TYPE + "ErrorInfo":
                reason = _text(dict(scan(value)).get(1, b"")).replace("ERROR_REASON_", "", 1)
                metadata = dict(map(_pair, _all(value, 3)))
            elif type_url == _TYPE + "BadRequest":
                violations = list(map(_pair, _all(value, 1)))
                field = violations[0][0]
    except (IndexError, TypeError, ValueError):
        pass  # unreadable details: the error itself says more
    return class_of(code.name, reason)(
        code.name,
        text if reason else _of_the_connection(code, text, target),
        reason=reason,
        field=metadata.get("field") or field,
        metadata=metadata,
        violations=tuple(violations),
        request_id=request_id,
    )


def _details(status: bytes) -> list[tuple[str, memoryview]]:
    """Returns type and bytes of each detail."""
    found = [dict(scan(detail)) for detail in _all(status, 3)]
    return [(_text(detail[1]), memoryview(detail.get(2, b""))) for detail in found]


def _all(data: Any, number: int) -> list[Any]:
    return [value for found, value in scan(data) if found == number]


def _pair(data: Any) -> tuple[str, str]:
    """Returns an entry of a map, or a violation: both are two texts."""
    found = dict(scan(data))
    return _text(found.get(1, b"")), _text(found.get(2, b""))


def _text(value: Any) -> str:
    return str(value, "utf-8")


def _of_the_connection(code: Any, text: str, target: str) -> str:
    """Returns gRPC's text, with the server and a remedy."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"{target}: {text}; the timeout is over: is the server there, or must the timeout be longer?"
    if code != grpc.StatusCode.UNAVAILABLE:
        return text
    if "CERTIFICATE_VERIFY_FAILED" in text or "certificate verify failed" in text:
        remedy = "its certificate is not trusted: give its authority as tls_ca"
    elif "WRONG_VERSION_NUMBER" in text:
        remedy = "it speaks plaintext, this client TLS"
    else:
        remedy = "is the server there, and does it speak TLS or plaintext as this client does?"
    return f"{target}: {text}; {remedy}"
