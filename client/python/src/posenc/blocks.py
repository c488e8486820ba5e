"""The blocks of a paged cache that a call moves. If they are at most half of the cache, only these blocks are sent."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Optional

import numpy

from .arrays import Array, Borrowed, Result
from .messages import CacheLayout, Dtype, RepositionRequest, Tensor
from .tensor import ELEMENT_BYTES

# The letters of the engines' layouts (docs/caches.md), up to the last letter that is needed here (B, or T after B).
_LETTERS = {
    "vllm_split": "KBT", "vllm_packed": "BT", "sglang_hnd": "BHT", "sglang_nhd": "B", "lmcache": "KLB",
    "llama_cpp": "B",
}


@dataclass
class Moved:
    """The moved blocks of a cache. The fields `request` and `k` describe a smaller cache with only these blocks."""

    request: RepositionRequest
    k: Borrowed
    result: Result  # the moved keys of the smaller cache
    index: Any  # selects the moved blocks in the whole cache
    cache: Array  # the whole cache, as bytes, in the caller's memory

    def write(self, whole: Result, tensor: Tensor) -> None:
        """Writes the whole cache to the result: the moved blocks, and all other bytes unchanged."""
        room = numpy.frombuffer(whole.room(tensor.dtype, tensor.shape), numpy.uint8).reshape(self.cache.shape)
        if room.ctypes.data != self.cache.ctypes.data:
            room[:] = self.cache
        room[self.index] = self.result.array
        whole.done(tensor.dtype, tensor.shape)


def moved(request: RepositionRequest, k: Borrowed) -> Optional[Moved]:
    """Returns the moved blocks of k, or None if all of k is sent, because more than half of its blocks move.
    Also returns None if the layout is wrong, because the server's error must then be about the whole cache."""
    cache = request.cache
    table = cache and (cache.block_table or cache.slots)
    if not cache or not table or (cache.block_table and cache.slots):
        return None
    letters, shape = _LETTERS.get(cache.dimensions, cache.dimensions), k.tensor.shape
    axis, inner = letters.find("B"), letters.find("T")
    if not 0 <= axis < len(shape) - 1 or inner >= len(shape) - 1 or not len(k.tensor.data):
        return None
    size = shape[inner] if inner > axis else 1  # tokens of a block
    numbers = _numbers(table)
    if numbers is None or size == 0:
        return None
    is_used = numbers >= 0 if cache.slots else _before(cache, numbers, size)
    if is_used is None or (cache.slots and numbers.min() < -1):
        return None
    found = numbers // size if cache.slots else numbers
    blocks = numpy.unique(found[is_used])
    if not len(blocks) or blocks[0] < 0 or blocks[-1] >= shape[axis] or 2 * len(blocks) > shape[axis]:
        return None
    places = numpy.searchsorted(blocks, found)
    if cache.slots:
        places = places * size + numbers % size
    named = Tensor(Dtype.INT64, list(numbers.shape), data=numpy.where(is_used, places, -1).astype("<i8").tobytes())
    change: Any = {"slots" if cache.slots else "block_table": named}
    index = (slice(None),) * axis + (blocks,)
    held = [*shape[:-1], shape[-1] * ELEMENT_BYTES[k.tensor.dtype]]
    whole = numpy.frombuffer(k.tensor.data, numpy.uint8).reshape(held)
    part = whole.take(blocks, axis)
    extents = part.shape
    tensor = Tensor(k.tensor.dtype, [*extents[:-1], shape[-1]], data=part.reshape(-1).data)
    result = Result("k", lambda memory, _shape, _dtype: memory.reshape(extents), tensor.dtype, tensor.shape)
    smaller = dataclasses.replace(request, cache=dataclasses.replace(cache, **change))
    return Moved(smaller, Borrowed(tensor, result.wrap), result, index, whole)


def _numbers(table: Tensor) -> Optional[Array]:
    """Returns the numbers of a block table or of slots, or None for a tensor that is malformed or has `values`."""
    is_plain = table.dtype in (Dtype.INT32, Dtype.INT64) and len(table.shape) in (1, 2) and not table.values
    if not is_plain or len(table.data) != math.prod(table.shape) * ELEMENT_BYTES[table.dtype] or not len(table.data):
        return None
    return numpy.asarray(table).astype(numpy.int64)


def _before(cache: CacheLayout, table: Array, size: int) -> Optional[Array]:
    """Returns for each entry of a block table whether it is before the end of its sequence.
    Returns None if `lengths` is wrong."""
    rows = table.reshape(-1, table.shape[-1])
    lengths = numpy.array(cache.lengths or [rows.shape[1] * size] * len(rows))
    if len(lengths) != len(rows):
        return None
    return (numpy.arange(rows.shape[1]) * size < lengths[:, None]).reshape(table.shape)
