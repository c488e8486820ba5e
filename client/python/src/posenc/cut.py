"""Cuts tensors of heads, and the positions of their tokens, into parts.

A part is contiguous memory that goes through a stream like a separate request,
and its result has the same place in the output. So a tensor is cut along its
outermost dimensions.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

import numpy

from .errors import PosencError
from .messages import Layout, Movement, PackedSequences, Positions, SequenceStarts
from .tensor import ELEMENT_BYTES, Tensor

# Dimensions of a layout, outermost first: batch, tokens, heads, channels.
_AXES = {Layout.BSHD: "bthc", Layout.BHSD: "bhtc", Layout.SBHD: "tbhc", Layout.THD: "thc"}


@dataclass(frozen=True)
class Part:
    """Contiguous bytes of a tensor, and the range of each dimension that they cover."""

    offset: int
    bytes: int
    shape: list[int]
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)


class Misfit(PosencError):
    """A tensor that does not fit its layout or its positions."""


def _misfit(path: str, fact: str) -> Misfit:
    return Misfit("INVALID_ARGUMENT", f"{path}: {fact}; the tensor cannot be cut into parts", field=path)


def extents_of(tensor: Tensor, layout: int, name: str) -> dict[str, int]:
    """Returns batch, tokens and heads of a tensor whose bytes fit its shape."""
    axes = _AXES.get(layout, "")  # type: ignore[call-overload]
    if len(tensor.shape) != len(axes) or not all(extent > 0 for extent in tensor.shape):
        raise _misfit(f"{name}.shape", f"{tensor.shape} is not of layout {layout!r}")
    if math.prod(tensor.shape) * ELEMENT_BYTES.get(tensor.dtype, 0) != len(tensor.data):
        raise _misfit(f"{name}.data", f"{len(tensor.data)} bytes are not {tensor.shape} of {tensor.dtype!r}")
    return {"b": 1, **dict(zip(axes, tensor.shape))}


def cut_tensor(tensor: Tensor, layout: int, whole_heads: bool, max_bytes: int, name: str) -> list[Part]:
    """Yields parts of about max_bytes, in memory order.

    whole_heads: heads have different frequencies, so the server must get all
    heads together.
    """
    extents = extents_of(tensor, layout, name)
    axes, shape = _AXES[Layout(layout)], tensor.shape
    # Channels are never cut, and heads only if a head's tokens are contiguous.
    cuttable = {"bhtc": 1 if whole_heads else 3, "thc": 1}.get(axes, 2)
    step = [ELEMENT_BYTES[tensor.dtype] * math.prod(shape[i + 1 :]) for i in range(len(shape))]
    # Cuts along the outermost axis whose steps are small enough, or else along
    # the last axis that may be cut.
    cut = 0
    while cut + 1 < cuttable and step[cut] > max_bytes:
        cut += 1
    run = min(max(max_bytes // step[cut], 1), shape[cut])
    whole = {axis: (0, extents[axis]) for axis in "bth"}
    parts = []
    offset = 0
    for index in numpy.ndindex(*shape[:cut]):
        ranges = {**whole, **{axes[i]: (at, at + 1) for i, at in enumerate(index)}}
        for begin in range(0, shape[cut], run):
            end = min(begin + run, shape[cut])
            size = (end - begin) * step[cut]
            part_shape = [1] * cut + [end - begin] + shape[cut + 1 :]
            parts.append(Part(offset, size, part_shape, {**ranges, axes[cut]: (begin, end)}))
            offset += size
    return parts


def needs_axes(places: Optional[object], layout: int, extents: dict[str, int]) -> bool:
    """Returns whether only the rope shows if [n, S] ids have a row for each sequence or for each axis."""
    if isinstance(places, Movement):
        inner: Sequence[object] = (places.old_positions, places.new_positions, places.shifts)
        return any(needs_axes(item, layout, extents) for item in inner)
    ids = places.ids if isinstance(places, Positions) else places
    if not isinstance(ids, Tensor) or layout == Layout.THD:
        return False
    return len(ids.shape) == 2 and ids.shape[0] == extents["b"] > 1


def cut_ids(ids: Tensor, layout: int, extents: dict[str, int], several_axes: bool, part: Part) -> Tensor:
    """Ids are [S], [B, S], [axes, S] or [axes, B, S]; [T] or [axes, T] if packed."""
    rank, is_packed = len(ids.shape), layout == Layout.THD
    # The rank and the first extent show which, except if needs_axes().
    if rank == (2 if is_packed else 3) or (rank == 2 and not is_packed and ids.shape[0] != extents["b"]):
        several_axes = True
    axes = ids.shape[0] if several_axes and rank else 1
    per_sequence = rank - several_axes == 2
    batch = extents["b"] if per_sequence else 1
    try:
        rows = numpy.asarray(ids).reshape(axes, batch, extents["t"])
    except ValueError:
        raise _misfit(
            "positions.ids", f"{ids.shape} are not those of {extents['b']} x {extents['t']} tokens"
        ) from None
    first, last = part.ranges["b"] if per_sequence else (0, 1)
    begin, end = part.ranges["t"]
    block = numpy.ascontiguousarray(rows[:, first:last, begin:end])
    shape = ([axes] if several_axes else []) + ([last - first] if per_sequence else []) + [end - begin]
    return Tensor(ids.dtype, shape, [], block.reshape(-1).view(numpy.uint8).data)


def cut_positions(
    positions: Optional[Positions], layout: int, extents: dict[str, int], several_axes: bool, part: Part
) -> Optional[Positions]:
    if positions is None:
        return None  # the server reports that they are missing
    begin = part.ranges["t"][0]
    if positions.start is not None:
        return Positions(start=positions.start + begin)
    if positions.starts is not None:
        values = positions.starts.values
        if len(values) != extents["b"]:
            raise _misfit("positions.starts", f"{len(values)} of {extents['b']} sequences")
        return Positions(starts=SequenceStarts([v + begin for v in values[slice(*part.ranges["b"])]]))
    if positions.ids is not None:
        return Positions(ids=cut_ids(positions.ids, layout, extents, several_axes, part))
    if positions.packed is not None:
        return Positions(packed=_cut_packed(positions.packed, layout, extents["t"], part))
    return positions


def _cut_packed(packed: PackedSequences, layout: int, tokens: int, part: Part) -> PackedSequences:
    """Returns the sequences that a part covers, wholly or partly, each with a
    start.

    cu_seqlens  0     4       9        the part: tokens [2, 6)
                |-----|-------|  -->   cu_seqlens 0 2 4
                   [   part ]          starts     2 0 (if all started at 0)
    """
    bounds = packed.cu_seqlens
    starts = packed.starts or [0] * (len(bounds) - 1)
    if layout != Layout.THD:
        raise _misfit("positions.packed", "goes with layout thd")
    if not bounds or bounds[0] != 0 or bounds[-1] != tokens or bounds != sorted(bounds):
        raise _misfit("positions.packed.cu_seqlens", f"are no ascending bounds from 0 to {tokens} tokens")
    if len(starts) != len(bounds) - 1:
        raise _misfit("positions.packed.starts", f"{len(starts)} of {len(bounds) - 1} sequences")
    begin, end = part.ranges["t"]
    result = PackedSequences([0], [])
    for i in range(bisect.bisect_right(bounds, begin) - 1, len(starts)):
        first, last = max(bounds[i], begin), min(bounds[i + 1], end)
        if bounds[i] >= end:
            break
        if first < last:
            result.cu_seqlens.append(last - begin)
            result.starts.append(starts[i] + first - bounds[i])
    return result


def cut_movement(
    movement: Movement, layout: int, extents: dict[str, int], several_axes: bool, part: Part
) -> Movement:
    shifts = movement.shifts
    return replace(
        movement,
        old_positions=cut_positions(movement.old_positions, layout, extents, several_axes, part),
        new_positions=cut_positions(movement.new_positions, layout, extents, several_axes, part),
        shifts=None if shifts is None else cut_ids(shifts, layout, extents, several_axes, part),
    )
