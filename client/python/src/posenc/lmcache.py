"""Moves LMCache's chunks, whose keys were rotated to old positions, to new positions.

    rope = client.rope("config.json")
    mover = posenc.lmcache.Mover(client, rope, head_dim=128)
    mover.move(chunk, 2048, old_start=512)

    connector = posenc.lmcache.Connector(connector, mover)    # for LMCacheEngineBuilder.get_or_create()

A chunk is a MemoryObj of LMCache, or its tensor [2, layers, tokens, heads * head_dim]. Only keys change, not the cached
values. Keys of deeper layers also depend on the text before them, and no rotation changes this.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Sequence
from typing import Any, Optional, Union

import torch
from lmcache.v1.gpu_connector.gpu_connectors import GPUConnectorInterface
from lmcache.v1.memory_management import MemoryObj, TensorMemoryObj

from .arrays import borrow
from .client import Client, Rope
from .coerce import coerce
from .errors import invalid
from .shared import SharedRegion

# Number of bytes that one call moves. It is small, because /dev/shm of a container often has only 64 MiB.
_PIECE = 16 << 20


class Mover:
    """Moves chunks of one model. Threads may share a mover; it moves one chunk at a time.

    client: a client of posenc. If its server shares memory, keys are copied to this memory and back, 16 MiB at a time.
        Keys in a region of client.shared_region() are not copied. If the server shares no memory, keys are sent.
    ropes: the result of client.rope() for all layers, or a list with a result for each layer of a chunk.
        Layers without rope do not change.
    head_dim: the number of channels of a head.
    """

    def __init__(self, client: Client, ropes: Union[Rope, Sequence[Rope]], head_dim: int) -> None:
        self._client = client
        self._ropes = ropes
        self._head_dim: int = coerce("int64", head_dim, "head_dim")
        if self._head_dim <= 0:
            raise invalid("head_dim", f"is {head_dim}; must be above 0")
        self._region: Optional[SharedRegion] = None
        self._lock = threading.Lock()

    def move(self, chunk: Any, start: int, *, old_start: Optional[int] = None) -> None:
        """Moves a chunk's keys to the positions start, start + 1, ..., in place.

        old_start: the position of the first key now. The default is taken from a MemoryObj's metadata.cached_positions.
            The new positions replace metadata.cached_positions.

        Raises InvalidArgumentError, whose `field` names the argument, if the chunk cannot be moved (quantised keys).
        If a call to the server fails, some keys may have moved, so drop the chunk.
        """
        keys = self._keys(chunk)
        old = _positions(chunk, old_start, keys.shape[1])
        start = coerce("int64", start, "start")
        new = torch.arange(start, start + keys.shape[1])
        if (new != old).any():
            with self._lock, torch.no_grad():
                self._rotate(keys, new - old)
        if isinstance(chunk, MemoryObj):
            chunk.metadata.cached_positions = new

    def close(self) -> None:
        """Frees the mover's shared memory. The next move allocates it again."""
        with self._lock:
            if self._region is not None:
                self._region.close()
            self._region = None

    def _keys(self, chunk: Any) -> torch.Tensor:
        """Views the keys as [layers, tokens, heads, head_dim]."""
        if isinstance(chunk, MemoryObj):
            name = chunk.get_memory_format().name
            if name != "KV_2LTD":
                raise invalid("chunk", f"has the format {name}; must be KV_2LTD")
            if len(chunk.metadata.shapes or [0]) > 1:
                raise invalid("chunk", f"has {len(chunk.get_shapes())} groups of layers; move each group's tensor")
            chunk = chunk.tensor
        if not isinstance(chunk, torch.Tensor) or chunk.dim() != 4 or len(chunk) != 2 or not chunk.is_contiguous():
            raise invalid("chunk", "must be a MemoryObj or a contiguous tensor [2, layers, tokens, hidden]")
        _, layers, tokens, hidden = chunk.shape
        if hidden % self._head_dim:
            raise invalid("head_dim", f"is {self._head_dim}; must divide the chunk's hidden size {hidden}")
        if not isinstance(self._ropes, Rope) and len(self._ropes) != layers:
            raise invalid("ropes", f"has {len(self._ropes)} encodings; the chunk has {layers} layers")
        return chunk[0].view(layers, tokens, hidden // self._head_dim, self._head_dim)

    def _rotate(self, keys: torch.Tensor, shift: torch.Tensor) -> None:
        layers, tokens = keys.shape[:2]
        ropes = [self._ropes] * layers if isinstance(self._ropes, Rope) else self._ropes
        cache = {"dimensions": "LBHD", "slots": torch.arange(tokens, dtype=torch.int32)}
        step = max(1, _PIECE // keys[0].nbytes)
        for source, run in itertools.groupby(range(layers), key=lambda layer: ropes[layer].source):
            own = list(run)
            if ropes[own[0]].spec.nope:
                continue
            for i in range(0, len(own), step):
                piece = keys[own[i] : own[min(i + step, len(own)) - 1] + 1]
                view = piece if self._is_shared(piece) else self._shared(piece)
                self._client.reposition(view, rope=source, cache=cache, shift=shift, out=view)
                if view is not piece:
                    with torch.inference_mode(piece.is_inference()):
                        piece.copy_(view)

    def _is_shared(self, piece: torch.Tensor) -> bool:
        data = borrow(piece, "chunk").tensor.data if piece.device.type == "cpu" else b""
        return any(region.place_of(data) for region in self._client._regions)

    def _shared(self, piece: torch.Tensor) -> Any:
        if self._region is None or self._region.size < piece.nbytes:
            if self._region is not None:
                self._region.close()
            self._region = self._client.shared_region(piece.nbytes)
        view = self._region.array(piece.shape, piece.dtype)
        view.copy_(piece)
        return view


class Connector(GPUConnectorInterface):
    """A GPU connector for LMCache's engine. It moves chunks that come back at another offset before `inner` loads them.
    When `inner` has stored a chunk, the connector writes the chunk's positions into metadata.cached_positions.

    A chunk at its old offset is loaded unchanged.
    Otherwise a copy of the chunk is moved and loaded, because the cache keeps the chunk.
    `inner` must not be layerwise, and must have read the chunks when its functions return.
    A retrieval raises InvalidArgumentError for a chunk without positions; remote backends do not keep positions.
    """

    def __init__(self, inner: GPUConnectorInterface, mover: Mover) -> None:
        self._inner = inner
        self._mover = mover

    def from_gpu(self, memory_obj: MemoryObj, start: int, end: int, **kwargs: Any) -> None:
        self.batched_from_gpu([memory_obj], [start], [end], **kwargs)

    def batched_from_gpu(self, memory_objs: Any, starts: list[int], ends: list[int], **kwargs: Any) -> None:
        self._inner.batched_from_gpu(memory_objs, starts, ends, **kwargs)
        for memory_obj, start, end in zip(memory_objs, starts, ends):
            memory_obj.metadata.cached_positions = torch.arange(start, end)

    def to_gpu(self, memory_obj: MemoryObj, start: int, end: int, **kwargs: Any) -> None:
        self.batched_to_gpu([memory_obj], [start], [end], **kwargs)

    def batched_to_gpu(self, memory_objs: Any = None, starts: Any = None, ends: Any = None, **kwargs: Any) -> None:
        moved = [self._at(memory_obj, start) for memory_obj, start in zip(memory_objs, starts)]
        self._inner.batched_to_gpu(moved, starts, ends, **kwargs)

    def get_shape(self, num_tokens: int) -> torch.Size:
        return self._inner.get_shape(num_tokens)

    def initialize_kvcaches_ptr(self, **kwargs: Any) -> None:
        self._inner.initialize_kvcaches_ptr(**kwargs)

    def __getattr__(self, name: str) -> Any:  # the engine reads load_stream, for example
        return getattr(self._inner, name)

    def _at(self, chunk: MemoryObj, start: int) -> MemoryObj:
        tokens = chunk.get_num_tokens()
        if torch.equal(_positions(chunk, None, tokens), torch.arange(start, start + tokens)):
            return chunk
        raw = chunk.raw_tensor
        copy = torch.empty_like(raw, pin_memory=raw.is_pinned()).copy_(raw)  # a GPU reads only pinned memory
        moved = TensorMemoryObj(copy, dataclasses.replace(chunk.metadata, ref_count=1, pin_count=0), None)
        self._mover.move(moved, start)
        return moved


def _positions(chunk: Any, old_start: Optional[int], tokens: int) -> torch.Tensor:
    if old_start is not None:
        old_start = coerce("int64", old_start, "old_start")
        return torch.arange(old_start, old_start + tokens)
    known = chunk.metadata.cached_positions if isinstance(chunk, MemoryObj) else None
    if known is None:
        kept = "the chunk has no metadata.cached_positions, which LMCache keeps in memory and on its local disk"
        raise invalid("old_start", f"is required: {kept}")
    if known.numel() != tokens:
        raise invalid("chunk", f"has {known.numel()} cached_positions for {tokens} tokens")
    positions: torch.Tensor = known.to("cpu", torch.int64)
    return positions
