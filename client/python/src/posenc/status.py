"""Reads gRPC errors: the google.rpc.Status in their trailers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc

from .errors import PosencError
from .wire import REPEATED, Message, decode
from .wire import field as _field

_DETAILS = "grpc-status-details-bin"
_TYPE = "type.googleapis.com/google.rpc."
_PREFIX = "ERROR_REASON_"


@dataclass
class _Any(Message):
    type_url: str = _field(1, "string")
    value: bytes = _field(2, "bytes")


@dataclass
class _Status(Message):
    details: list[_Any] = _field(3, _Any, REPEATED)


@dataclass
class _Entry(Message):
    key: str = _field(1, "string")
    value: str = _field(2, "string")


@dataclass
class _ErrorInfo(Message):
    reason: str = _field(1, "string")
    metadata: list[_Entry] = _field(3, _Entry, REPEATED)


@dataclass
class _Violation(Message):
    field: str = _field(1, "string")
    description: str = _field(2, "string")


@dataclass
class _BadRequest(Message):
    field_violations: list[_Violation] = _field(1, _Violation, REPEATED)


def _read(cls: Any, data: Any) -> Any:
    """Reads details, or ignores unreadable ones: the error itself says more."""
    try:
        return decode(cls, data)
    except PosencError:
        return cls()


def error_of(code: Any, text: str, trailers: Sequence[Any], target: str, request_id: str) -> PosencError:
    """Returns the error of a failed call. `code` is grpc's."""
    reason = ""
    metadata: dict[str, str] = {}
    violations: tuple[tuple[str, str], ...] = ()
    details = next((value for key, value in trailers or () if key == _DETAILS), b"")
    for detail in _read(_Status, details).details:
        if detail.type_url == _TYPE + "ErrorInfo":
            info = _read(_ErrorInfo, detail.value)
            reason = info.reason[len(_PREFIX) :] if info.reason.startswith(_PREFIX) else info.reason
            metadata = {entry.key: entry.value for entry in info.metadata}
        elif detail.type_url == _TYPE + "BadRequest":
            found = _read(_BadRequest, detail.value).field_violations
            violations = tuple((violation.field, violation.description) for violation in found)
    if not reason:
        text = _of_the_connection(code, text, target)
    return PosencError(
        code.name,
        text,
        reason=reason,
        field=metadata.get("field") or (violations[0][0] if violations else ""),
        metadata=metadata,
        violations=violations,
        request_id=request_id,
    )


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
