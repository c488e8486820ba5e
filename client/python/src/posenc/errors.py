"""PosencError, the error of a failed call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional


class PosencError(Exception):
    """A call that failed.

    code: gRPC's name of the error, such as "INVALID_ARGUMENT".
    reason: the contract's ErrorReason without its prefix, to branch on:
        "FIELD_REQUIRED"; "" if the error has none.
    field: the field at fault, "q.data"; "" if none is.
    metadata: facts that come with the reason: {"field": "q.data", "expectedBytes": "64", ...}
    violations: every field at fault with its remedy, if there are several.
    request_id: the call's id, which the server logs.

    str(error) is the server's text: field, fact and remedy; if no server
    answers, it names the target.
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
        super().__init__(text)
        self.code = code
        self.reason = reason
        self.field = field
        self.metadata = dict(metadata or {})
        self.violations = violations
        self.request_id = request_id

    @property
    def text(self) -> str:
        return str(self.args[0])

    def with_text(self, text: str) -> PosencError:
        """Returns the same error with more text."""
        self.args = (text,)
        return self

    def outside_of(self, path: str) -> PosencError:
        """Returns the same error with fields relative to the message at `path`: `table.rows` becomes
        `rows`."""
        if not self.field.startswith(f"{path}."):
            return self

        def short(text: str) -> str:
            return f" {text}".replace(f" {path}.", " ")[1:]

        self.field = short(self.field)
        self.metadata = {key: short(value) if key == "field" else value for key, value in self.metadata.items()}
        self.violations = tuple((short(field), text) for field, text in self.violations)
        return self.with_text(short(self.text))

    def __reduce__(self) -> Any:
        return _rebuild, (self.code, self.text, self.__dict__)


def _rebuild(code: str, text: str, state: dict[str, Any]) -> PosencError:
    """Makes errors work with pickle, for example between Ray's or Spark's processes."""
    error = PosencError(code, text)
    error.__dict__.update(state)
    return error
