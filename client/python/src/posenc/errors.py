"""PosencError, the error of a failed call, with a subclass for each code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional


class PosencError(Exception):
    """The error of a failed call.

    code: gRPC's name of the error, such as "INVALID_ARGUMENT".
    reason: the contract's ErrorReason without its prefix, such as "FIELD_REQUIRED", or an empty text.
        Programs can branch on the reason.
    field: the field at fault, such as "q.data", or an empty text if no field is at fault.
    metadata: facts that come with the reason, such as `field` and `expectedBytes`.
    violations: every field at fault with its remedy, if there are several.
    request_id: the call's id, which the server logs.

    str(error) is the server's text, with field, fact and remedy.
    If no server answers, the text names the target.
    """

    def __init__(
        self,
        code: str,
        text: str,
        *,
        reason: str = "",
        field: str = "",
        metadata: Optional[Mapping[str, str]] = None,
        violations: tuple[tuple[str, str], ...] = (),
        request_id: str = "",
    ) -> None:
        super().__init__(code, text)  # pickle makes a copy from these arguments
        self.code = code
        self.text = text
        self.reason = reason
        self.field = field
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.request_id = request_id

    def __str__(self) -> str:
        return self.text


class CancelledError(PosencError):
    """The client was closed, or the server's side ended the call."""


class InvalidArgumentError(PosencError):
    """A mistake of the caller, in the field that `field` names."""


class DeadlineExceededError(PosencError):
    """The timeout is over, or a stream made no progress during the timeout."""


class NotFoundError(PosencError):
    """No preset, or no file in shared memory, has this name."""


class PermissionDeniedError(PosencError):
    """The caller may not make this call, or may not use this shared memory."""


class UnauthenticatedError(PosencError):
    """The token is missing, unknown or expired."""


class ResourceExhaustedError(PosencError):
    """A message or a result is too large."""


class OverloadedError(ResourceExhaustedError):
    """The server has no memory left for this call now, so try again later."""


class FailedPreconditionError(PosencError):
    """A file in shared memory was cut short while the call used it."""


class AbortedError(PosencError):
    """The server refused a call in place that came a second time.
    The first attempt may have rotated the tensor, so write the tensor again."""


class OutOfRangeError(PosencError):
    """The encoding does not have this position."""


class UnimplementedError(PosencError):
    """The server does not know the method or the field."""


class InternalError(PosencError):
    """The answer does not follow the contract, or the server has a fault."""


class UnavailableError(PosencError):
    """No server answers."""


# The class of each code, such as InvalidArgumentError for INVALID_ARGUMENT.
_CLASSES = {re.sub("(?<!^)(?=[A-Z])", "_", c.__name__[:-5]).upper(): c for c in PosencError.__subclasses__()}


def class_of(code: str, reason: str = "") -> type[PosencError]:
    """Returns the class of errors with this code, or PosencError if the code has no class."""
    return OverloadedError if reason == "OVERLOADED" else _CLASSES.get(code, PosencError)


def invalid(path: str, fact: str) -> InvalidArgumentError:
    """Returns the error for a mistake that is found before anything is sent."""
    return InvalidArgumentError("INVALID_ARGUMENT", f"{path}: {fact}", field=path)
