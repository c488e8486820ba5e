"""Calls whose tensors or results lie in regions of shared memory (shared.py)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from .arrays import Borrowed, Output, array_of
from .errors import PosencError
from .shared import Regions, refused, spoiled
from .steps import Limits, Steps, Unary, too_large
from .tensor import SharedMemory, Tensor
from .wire import Buffer, size


@dataclass
class SharedCall:
    """The places that a request has instead of bytes."""

    tensors: dict[str, Tensor]
    places: dict[str, Optional[SharedMemory]]  # of results
    _arrays: dict[str, Borrowed] = field(repr=False)
    _outs: dict[str, Optional[Output]] = field(repr=False)
    _in_place: list[str]

    @classmethod
    def of(
        cls,
        regions: Regions,
        arrays: dict[str, Borrowed],
        outs: dict[str, Optional[Output]],
        out_bytes: Mapping[str, int],
    ) -> Optional[SharedCall]:
        """Returns None if no tensor lies in a region. out_bytes: size of the
        results, which the server writes even if `out` is smaller."""
        tensors = {name: array.tensor for name, array in arrays.items()}
        held = {name: regions.place(array.bytes) for name, array in arrays.items()}
        places = {
            name: regions.place(out.bytes) if out and len(out.bytes) == out_bytes[name] else None
            for name, out in outs.items()
        }
        if not any((*held.values(), *places.values())):
            return None
        for name, place in held.items():
            if place is not None:
                tensors[name] = Tensor(tensors[name].dtype, tensors[name].shape, shared=place)
        in_place = [name for name, place in places.items() if place is not None and place in held.values()]
        return cls(tensors, places, arrays, outs, in_place)

    def ask(self, method: str, pieces: list[Buffer], limits: Limits) -> Steps[Optional[bytes]]:
        """Returns the answer, or None if bytes must be sent instead."""
        if size(pieces) > limits.max_message_bytes:
            return None
        received = sum(len(array.bytes) for name, array in self._arrays.items() if not self.places.get(name))
        try:
            answer: bytes = yield Unary(method, pieces, received, once=bool(self._in_place))
        except PosencError as error:
            if refused(error) or (too_large(error) and not self._in_place):
                return None
            if self._in_place:
                error = spoiled(error, " and ".join(self._in_place))
            raise error from None
        return answer

    def result(self, name: str, tensor: Tensor, like: Borrowed, out_name: str) -> Any:
        out = self._outs[name]
        if out is not None and self.places[name] is not None:
            return out.result()
        return array_of(tensor, like, out, out_name)
