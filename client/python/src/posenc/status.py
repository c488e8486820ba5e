"""Reads gRPC errors: the google.rpc.Status in their trailers."""

from __future__ import annotations

import os
import re
from typing import Any

import grpc

from .errors import PosencError, class_of
from .wire import scan


def error_of(failed: Any, target: str, request_id: str) -> PosencError:
    """Returns the error of a failed call. `failed` is an exception or a future of grpc."""
    code, text = failed.code(), failed.details() or ""
    status = dict(failed.trailing_metadata() or ()).get("grpc-status-details-bin", b"")
    reason = ""
    metadata: dict[str, str] = {}
    violations: list[tuple[str, str]] = []
    try:
        for kind, detail in _pairs(status, 3):
            if kind.endswith("google.rpc.ErrorInfo"):
                reason = str(dict(scan(detail)).get(1, b""), "utf-8").replace("ERROR_REASON_", "", 1)
                metadata = {key: str(value, "utf-8") for key, value in _pairs(detail, 3)}
            elif kind.endswith("google.rpc.BadRequest"):
                violations = [(field, str(fact, "utf-8")) for field, fact in _pairs(detail, 1)]
    except (IndexError, TypeError, ValueError):
        pass  # the details are unreadable, but code and text say enough
    first = violations[0][0] if violations else ""
    preset = metadata.get("preset", "")
    if reason == "PRESET_UNKNOWN" and os.path.exists(preset):
        text += f"; there is a {'folder' if os.path.isdir(preset) else 'file'} of this name: write ./{preset}"
    return class_of(code.name, reason)(
        code.name,
        text if reason else _of_the_connection(code, text, target),
        reason=reason,
        field=metadata.get("field") or first,
        metadata=metadata,
        violations=tuple(violations),
        request_id=request_id,
    )


def _pairs(message: Any, number: int) -> list[tuple[str, Any]]:
    """Returns the messages of a repeated field (details, violations, entries of a map) as pairs of text and bytes."""
    found = [dict(scan(value)) for each, value in scan(message) if each == number]
    return [(str(pair.get(1, b""), "utf-8"), pair.get(2, b"")) for pair in found]


def _of_the_connection(code: Any, text: str, target: str) -> str:
    """Returns gRPC's text. Errors of the connection also get the server's address and a remedy."""
    if code == grpc.StatusCode.DEADLINE_EXCEEDED:
        remedy = "the timeout is over: is the server there, or must the timeout be longer?"
    elif code != grpc.StatusCode.UNAVAILABLE:
        return text
    elif not target.startswith("unix") and not re.search(r":\d+$", target):
        remedy = "the target has no port, and gRPC takes 443: write HOST:PORT, such as localhost:50051"
    elif "certificate_verify_failed" in text.lower().replace(" ", "_"):
        remedy = "its certificate is not trusted: give its authority as tls_ca"
    elif "WRONG_VERSION_NUMBER" in text:
        remedy = "it speaks plaintext, this client TLS"
    else:
        remedy = (
            "is the server there, does it speak TLS or plaintext as this client does, "
            "and do both trust the certificates?"
        )
    return f"{target}: {text}; {remedy}"
