"""Moves the keys of transformers' caches to other positions.

    posenc.transformers.caches.shift(cache, model.config, -2048)
    both = posenc.transformers.caches.join([first, second], model.config)
    posenc.transformers.caches.keep(cache, model.config, [0, 1, 2, 3, *range(900, 1000)])

A cached key was rotated to its position. These functions rotate it to another position, with the encoding of its
layer; layers without rope stay as they are. Only keys change, not the cached values. Keys of deeper layers also depend
on the text before them, and no rotation changes this.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import torch

from ..client import Client, Rope
from ..coerce import coerce
from ..errors import InvalidArgumentError, invalid
from ..local_server import local
from ..shared import SharedRegion
from ..sources import rope_source
from .layers import append, check_alike, check_room, copied, layers_of, room_of, rotated, select, tokens_of, total_of

# Number of bytes that one call moves. It is small, because /dev/shm of a container often has only 64 MiB.
_PIECE = 16 << 20

# These models multiply rotated keys by weights that differ within a pair. Such weights do not commute with a rotation.
_NORM_AFTER_ROTATION = {"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text"}


def shift(
    cache: Any, config: Any, by: int, *, client: Optional[Client] = None, start: int = 0,
    length: Optional[int] = None, new_length: Optional[int] = None,
) -> None:
    """Moves every key of a cache by `by` positions, in place.

    cache: DynamicCache or StaticCache, with keys [batch, heads, tokens, head_dim].
    config: the model's configuration.
    client: a client of posenc; by default posenc.local(), whose server runs only during this call.
    length: the length of the sequence for which the model computed the keys.
        Only LongRoPE and dynamic NTK need `length`, because their frequencies depend on it.
    new_length: the length after the call; by default `length`.
        If the two lengths have different frequencies, `start` must be the position of the first token.

    Tensors are copied through memory that the server shares, 16 MiB at a time.
    Tensors of a GPU are copied to the CPU and back. If the server runs on another machine, the copies are sent to it.

    Raises InvalidArgumentError before anything changes if a layer cannot be moved.
    After another error some keys may have moved, so compute the cache again.
    """
    by, start = coerce("int64", by, "by"), coerce("int64", start, "start")
    with _mover(client, config, length, new_length) as mover:
        for keys in mover.keys_of(cache):
            mover.move(keys, keys.first + start, by)


def join(
    caches: Sequence[Any], config: Any, *, client: Optional[Client] = None,
    length: Optional[int] = None, new_length: Optional[int] = None,
) -> Any:
    """Returns a new cache with the tokens of all caches, one after the other.

    caches: the first token of each cache must be at position 0, without padding; first call shift() for other caches.
        All caches must have the same layers, batch and dtype. A static first cache must have room for all tokens.
    Other arguments and errors are those of shift(). The given caches do not change.

    A sliding layer of the result holds only its last tokens.
    Recurrent layers (Mamba) and multimodal positions of images cannot be joined.
    """
    if not caches:
        raise invalid("caches", "is empty; must have at least one cache")
    with _mover(client, config, length, new_length) as mover:
        totals = [total_of(cache, f"caches[{i}]") for i, cache in enumerate(caches)]
        for i, cache in enumerate(caches):
            mover.keys_of(cache, f"caches[{i}]")
            check_alike(caches[0], cache, f"caches[{i}]")
        check_room(caches[0], sum(totals))
        joined, end = copied(caches[0]), totals[0]
        for keys in mover.keys_of(joined):
            mover.move(keys, keys.first, 0)
        for cache, total in zip(caches[1:], totals[1:]):
            moved = copied(cache)
            for keys in mover.keys_of(moved):
                mover.move(keys, keys.first, end)
            for layer, more in zip(joined.layers, moved.layers):
                append(layer, more)
            end += total
        return joined


def keep(
    cache: Any, config: Any, slots: Union[Sequence[int], torch.Tensor], *, client: Optional[Client] = None,
    length: Optional[int] = None, new_length: Optional[int] = None,
) -> None:
    """Keeps only some tokens of a cache, and moves their keys to positions 0, 1, 2, ..., in place.

        keep(cache, config, [0, 1, 2, 3, *range(900, 1000)])   # attention sinks, and the last 100 of 1000 tokens

    cache: a cache whose first token is at position 0, without padding.
    slots: the tokens to keep, as indices in the sequence, in rising order.
    Other arguments and errors are those of shift(). Recurrent layers (Mamba) cannot drop tokens.
    A sliding layer keeps the last of `slots` that fit its window. If it has already dropped one of these, keep() fails.
    """
    slots = torch.as_tensor(slots).tolist()
    total = total_of(cache)
    if not slots or any(a >= b for a, b in zip([-1, *slots], [*slots, total])):
        raise invalid("slots", f"must be one or more of the cache's tokens 0 to {total - 1}, in rising order")
    with _mover(client, config, length, new_length) as mover:
        mover.keys_of(cache)
        kept = [slots[-room_of(layer) :] for layer in cache.layers]
        for i, (layer, own) in enumerate(zip(cache.layers, kept)):
            first, tokens = tokens_of(layer)
            if tokens and own[0] < first:
                gone = f"layer {i} slides, and has dropped token {own[0]}; it has those from {first} on"
                raise invalid("slots", f"{gone}. Keep more of the last ones, or compute the cache again")
        for layer, own in zip(cache.layers, kept):
            select(layer, own, len(slots))
        for keys in mover.keys_of(cache):
            own = torch.tensor(kept[keys.layer])
            new = torch.arange(len(slots))[-len(own) :]
            mover.move(keys, own, new - own)


@dataclass
class _Keys:
    layer: int
    tensor: torch.Tensor  # a view, [batch, heads, tokens, head_dim]
    first: int  # the position of the first token
    rope: Rope
    new_rope: Optional[Rope]  # the encoding of the new length; None if its frequencies are the same


@contextlib.contextmanager
def _mover(client: Optional[Client], config: Any, length: Optional[int], new: Optional[int]) -> Iterator[_Mover]:
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        mover = _Mover(client or stack.enter_context(local()), config, length, new)
        stack.callback(mover.close)
        yield mover


class _Mover:
    def __init__(self, client: Client, config: Any, length: Optional[int], new_length: Optional[int]) -> None:
        if new_length is not None and length is None:
            raise invalid("length", "is required beside new_length")
        self._client = client
        if not hasattr(config, "get_text_config"):
            raise invalid("config", f"is a {type(config).__name__}; must be the model's configuration: model.config")
        self._config = config.get_text_config(decoder=True)  # the decoder's part, if the model has an encoder
        values = self._config.to_dict()
        if getattr(self._config, "layer_types", None):  # Dory's dict also lists layers without a cache
            values["layer_types"] = list(self._config.layer_types)
        self._source = rope_source(values)
        if values.get("model_type") in _NORM_AFTER_ROTATION:
            text = f"{values['model_type']} normalises keys after their rotation, with a weight for each channel"
            raise invalid("config", f"{text}: they cannot be moved; compute the cache at the new positions")
        self._lengths = length, length if new_length is None else new_length
        self._layers_differ = False
        self._ropes: dict[Any, Any] = {}
        self._region: Optional[SharedRegion] = None

    def close(self) -> None:
        if self._region is not None:
            self._region.close()

    def keys_of(self, cache: Any, path: str = "cache") -> list[_Keys]:
        """Returns the keys that rotate; raises if a layer cannot be moved."""
        found = []
        for i, layer in enumerate(layers_of(cache, path)):
            for part, tensor in rotated(layer, i, self._config, path):
                ropes = self._rope(i, part, tensor.shape[-1])
                if ropes:
                    found.append(_Keys(i, tensor, tokens_of(layer)[0], *ropes))
        return found

    def _rope(self, layer: int, part: Any, head_dim: int) -> Optional[tuple[Rope, Optional[Rope]]]:
        """Returns a layer's encodings before and after the move, or None if the layer does not rotate."""
        index = layer if self._layers_differ else None
        key = index, part, head_dim
        if key not in self._ropes:
            options: Any = {"layer_index": index, "part": part, "head_dim": head_dim}
            try:
                old, new = (self._client.rope(self._source, sequence_length=n, **options) for n in self._lengths)
            except InvalidArgumentError as error:
                if error.reason != "FIELD_REQUIRED" or index is not None:
                    raise
                self._layers_differ = True
                return self._rope(layer, part, head_dim)
            for assumed in old.resolved.assumptions:
                if assumed.field == "frequencies":
                    raise invalid("config", f"layer {layer}'s frequencies are unknown: {assumed.reason}")
            if self._lengths[0] is None and (old.spec.longrope or old.spec.dynamic_ntk):
                text = f"layer {layer}'s frequencies depend on the sequence's length: pass the length of the sequence"
                raise invalid("length", f"is required: {text} for which the keys were computed")
            same = (old.resolved.inv_freq, old.resolved.amplitude) == (new.resolved.inv_freq, new.resolved.amplitude)
            self._ropes[key] = None if old.spec.nope else (old, None if same else new)
        ropes: Optional[tuple[Rope, Optional[Rope]]] = self._ropes[key]
        return ropes

    def move(self, keys: _Keys, old: Any, by: Any) -> None:
        """Moves keys. `old`: the first key's position, or a position for each key.
        `by`: a distance for all keys, or a distance for each key."""
        if keys.new_rope is None and not torch.as_tensor(by).any():
            return
        step = max(1, _PIECE // keys.tensor[:, :, :1].nbytes)
        for begin in range(0, keys.tensor.shape[2], step):
            piece = keys.tensor[:, :, begin : begin + step]
            view = self._shared(piece.nbytes).array(piece.shape, piece.dtype)
            view.copy_(piece)
            places: dict[str, Any] = {"shift": by if isinstance(by, int) else by[begin : begin + step]}
            if keys.new_rope is not None:
                places["old_positions"] = old + begin if isinstance(old, int) else old[begin : begin + step]
                places["new_rope"] = keys.new_rope
            keys.rope.reposition(view, layout="bhsd", out=view, **places)
            with torch.inference_mode(piece.is_inference()):
                piece.copy_(view)

    def _shared(self, size: int) -> SharedRegion:
        if self._region is None or self._region.size < size:
            self.close()
            self._region = self._client.shared_region(size)
        return self._region
