"""A unary call with tensors: as bytes, or as their places in shared memory."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .arrays import Borrowed, Result
from .errors import PosencError
from .shared import SharedRegion
from .tensor import SharedMemory, Tensor
from .wire import Buffer, Message, decode

# Errors by which the server refuses a call before it writes anything.
_UNTOUCHED = ("INVALID_ARGUMENT", "NOT_FOUND", "PERMISSION_DENIED", "ABORTED", "UNIMPLEMENTED")


@dataclasses.dataclass(frozen=True)
class TensorCall:
    """placed: results that the server writes to their place. in_place: inputs that it overwrites."""

    request: Message
    answer: type[Message]
    inputs: Mapping[str, Borrowed]
    results: Sequence[Result]
    placed: frozenset[str] = frozenset()
    in_place: tuple[str, ...] = ()

    def with_bytes(self) -> Message:
        return dataclasses.replace(self.request, **{name: array.tensor for name, array in self.inputs.items()})

    def in_memory(self, regions: Iterable[SharedRegion]) -> TensorCall:
        """Returns the call with places for all that lies in a region."""

        def place(data: Buffer) -> Any:
            return next(filter(None, (region.place_of(data) for region in regions)), None)

        fields: dict[str, Any] = {}
        held: dict[str, SharedMemory] = {}
        for name, array in self.inputs.items():
            fields[name], found = array.tensor, place(array.tensor.data)
            if found is not None:
                held[name] = found
                fields[name] = Tensor(array.tensor.dtype, array.tensor.shape, shared=found)
        placed = {}
        for result in self.results:
            memory = result.given()
            # The server writes the whole result even if `out` is smaller.
            if memory is not None and len(memory.bytes) == result.size and place(memory.bytes) is not None:
                placed[result.name] = fields[result.output] = place(memory.bytes)
        return dataclasses.replace(
            self,
            request=dataclasses.replace(self.request, **fields),
            placed=frozenset(placed),
            in_place=tuple(name for name, at in placed.items() if at in held.values()),
        )

    @property
    def names_places(self) -> bool:
        return bool(self.placed) or any(getattr(self.request, name).shared for name in self.inputs)

    def read(self, data: Buffer) -> tuple[Any, dict[str, Any]]:
        """Returns the answer, and its tensors as the caller's arrays."""
        answer = decode(self.answer, data)
        arrays = {}
        for result in self.results:
            if result.name in self.placed:
                result.tensor(answer, placed=True)
                arrays[result.name] = result.out
            else:
                arrays[result.name] = result.array(answer)
        return answer, arrays

    def explained(self, error: PosencError) -> PosencError:
        """Says what to do after an error of a call in place."""
        if not self.in_place or error.code in _UNTOUCHED:
            return error
        names = " and ".join(self.in_place)
        return error.with_text(f"{error}; {names} may have been rotated by then, in part or whole: write it anew")


def refused(error: PosencError) -> bool:
    """Returns whether bytes must be sent, because the server shares no memory with this client or is too old."""
    reasons = "SHARED_MEMORY_UNAVAILABLE", "FIELD_UNKNOWN"
    return error.reason in reasons and error.code in ("UNIMPLEMENTED", "PERMISSION_DENIED")


def too_large(error: PosencError) -> bool:
    return error.code == "RESOURCE_EXHAUSTED" and error.reason != "OVERLOADED"
