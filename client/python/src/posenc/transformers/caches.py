"""Moves the keys of transformers' caches to other positions.

    posenc.transformers.caches.shift(cache, model.config, -2048)
    both = posenc.transformers.caches.join([first, second], model.config)
    posenc.transformers.caches.keep(cache, model.config, [0, 1, 2, 3, *range(900, 1000)])

A cached key was rotated to its position. These functions rotate it to another one, layer by layer, each layer by
its own encoding; layers without rope stay as they are. Values never change. Keys of deeper layers also depend on the
text before them, and no rotation changes that.
"""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, Optional, Union

import torch

from ..client import Client, Rope
from ..coerce import coerce
from ..errors import InvalidArgumentError, invalid
from ..local_server import local
from ..shared import SharedRegion
from ..sources import rope_source

# Bytes that travel at a time: /dev/shm of a container often has only 64 MiB.
_PIECE = 16 << 20

# Layers that hold one key for each token, [batch, heads, tokens, head_dim]. Others may hold compressed or quantised
# keys, or copies in further tensors.
_WITH_TOKENS = {
    "DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer",
    "StaticLayer", "StaticSlidingWindowLayer", "StaticIndexedLayer",
    "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer",
    "LinearAttentionAndStaticFullAttentionLayer", "LinearAttentionAndStaticSlidingWindowAttentionLayer",
}  # fmt: skip
# Weights that differ within a pair do not commute with a rotation.
_NORM_AFTER_ROTATION = {"hunyuan_v1_dense", "hunyuan_v1_moe", "hunyuan_vl_text"}
_WITHOUT_TOKENS = {"DummyLayer", "LinearAttentionLayer"}


def shift(
    cache: Any, config: Any, by: int, *, client: Optional[Client] = None, start: int = 0,
    length: Optional[int] = None, new_length: Optional[int] = None,
) -> None:
    """Moves every key of a cache by `by` positions, in place.

    cache: DynamicCache or StaticCache, with keys [batch, heads, tokens, head_dim].
    config: the model's configuration.
    client: of a server; by default posenc.local(), which lives only for this call.
    length: of the sequence for which the model computed the keys. Only LongRoPE and dynamic NTK need it, since their
        frequencies depend on it.
    new_length: the length after the call; by default `length`. If the frequencies differ, `start` must be the
        position of the first token.

    Tensors are copied through memory that the server shares, 16 MiB at a time; those of a GPU are copied to the
    CPU and back. If the server's machine is another one, the copies are sent.

    Raises InvalidArgumentError before anything changes if a layer cannot be moved. After another error some keys may
    have moved: compute the cache again.
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

    caches: each with its first token at position 0, without padding: shift() others first. They must have the
        same layers, batch and dtype. A static cache gets no longer: the first one needs room for all.
    Other arguments and errors are those of shift(). The given caches do not change.

    A sliding layer holds the last tokens of the whole. Recurrent layers (Mamba) and multimodal positions of images
    cannot be joined.
    """
    if not caches:
        raise invalid("caches", "is empty; must have at least one cache")
    with _mover(client, config, length, new_length) as mover:
        totals = [_total(cache, f"caches[{i}]") for i, cache in enumerate(caches)]
        for i, cache in enumerate(caches):
            mover.keys_of(cache, f"caches[{i}]")
            _check_alike(caches[0], cache, f"caches[{i}]")
        _check_room(caches[0], sum(totals))
        joined, end = _copied(caches[0]), totals[0]
        for keys in mover.keys_of(joined):
            mover.move(keys, keys.first, 0)
        for cache, total in zip(caches[1:], totals[1:]):
            moved = _copied(cache)
            for keys in mover.keys_of(moved):
                mover.move(keys, keys.first, end)
            for layer, more in zip(joined.layers, moved.layers):
                _append(layer, more)
            end += total
        return joined


def keep(
    cache: Any, config: Any, slots: Union[Sequence[int], torch.Tensor], *, client: Optional[Client] = None,
    length: Optional[int] = None, new_length: Optional[int] = None,
) -> None:
    """Keeps only some tokens of a cache, and moves their keys to positions 0, 1, 2, ..., in place.

        keep(cache, config, [0, 1, 2, 3, *range(900, 1000)])   # attention sinks, and the last 100 of 1000 tokens

    cache: its first token is at position 0, without padding.
    slots: the tokens to keep, by their number in the sequence, in rising order.
    Other arguments and errors are those of shift(). A sliding layer keeps the last of these tokens; it
    is an error if it has dropped one of them. Recurrent layers (Mamba) cannot drop tokens.
    """
    slots = torch.as_tensor(slots).tolist()
    total = _total(cache)
    if not slots or any(a >= b for a, b in zip([-1, *slots], [*slots, total])):
        raise invalid("slots", f"must be one or more of the cache's tokens 0 to {total - 1}, in rising order")
    with _mover(client, config, length, new_length) as mover:
        mover.keys_of(cache)
        kept = [slots[-_room(layer) :] for layer in cache.layers]
        for i, (layer, own) in enumerate(zip(cache.layers, kept)):
            if _tokens(layer)[1] and own[0] < _tokens(layer)[0]:
                gone = f"layer {i} slides, and has dropped token {own[0]}; it has those from {_tokens(layer)[0]} on"
                raise invalid("slots", f"{gone}. Keep more of the last ones, or compute the cache again")
        for layer, own in zip(cache.layers, kept):
            _select(layer, own, len(slots))
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
    new_rope: Optional[Rope]  # of another length; None: the same frequencies


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
        # Of an encoder-decoder, the decoder.
        self._config = config.get_text_config(decoder=True) if hasattr(config, "get_text_config") else config
        values = self._config.to_dict() if hasattr(self._config, "to_dict") else dict(self._config)
        if getattr(self._config, "layer_types", None):  # Dory saves further layers, which cache nothing
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
        for i, layer in enumerate(_layers(cache, path)):
            first, tokens = _tokens(layer)
            if not tokens:
                continue
            if layer.keys.requires_grad:
                raise invalid(path, f"layer {i} requires grad; compute the cache under torch.no_grad()")
            tensors: list[tuple[Optional[str], torch.Tensor]] = [(None, self._rotated(i, layer)[:, :, :tokens])]
            if getattr(layer, "is_indexer_initialized", False):
                width = layer.indexer_keys.shape[-1]
                if layer.indexer_position_ids is not None or width != self._value(i, "index_head_dim"):
                    raise invalid(path, f"layer {i}'s indexer caches other things than its rotated keys")
                tensors.append(("indexer", layer.indexer_keys[:, None, :tokens]))
            for part, tensor in tensors:
                ropes = self._rope(i, part, tensor.shape[-1])
                if ropes:
                    found.append(_Keys(i, tensor, first, *ropes))
        return found

    def _value(self, layer: int, key: str) -> Any:
        """Returns a value of the configuration, which may differ by layer."""
        own = getattr(self._config, "per_layer_config", None)
        return getattr(own[layer] if own else self._config, key, None)

    def _rotated(self, i: int, layer: Any) -> torch.Tensor:
        """Returns the tensor with the rotated channels. A cache of latents (DeepSeek) has them in the place of values,
        [batch, 1, tokens, qk_rope_head_dim]; the latents, in the place of keys, do not rotate."""
        latent = self._value(i, "kv_lora_rank"), self._value(i, "qk_rope_head_dim")
        has_latents = (layer.keys.shape[-1], layer.values.shape[-1]) == latent and layer.keys.shape[1] == 1
        rotated: torch.Tensor = layer.values if has_latents else layer.keys
        return rotated

    def _rope(self, layer: int, part: Any, head_dim: int) -> Optional[tuple[Rope, Optional[Rope]]]:
        """Returns a layer's encoding before and after; None if it does not rotate."""
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
        """Moves keys at the positions `old` (a start, or one for each token) by `by` (alike)."""
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


# ---- Layers of transformers ----------------------------------------------------


def _layers(cache: Any, path: str) -> list[Any]:
    kind = type(cache).__name__
    if hasattr(cache, "self_attention_cache"):
        raise invalid(path, f"is an {kind}; pass its self_attention_cache, since the other keys do not rotate")
    if not isinstance(getattr(cache, "layers", None), list):
        raise invalid(path, f"is a {kind}; must be a DynamicCache or StaticCache of transformers")
    for i, layer in enumerate(cache.layers):
        name = type(layer).__name__
        if name not in _WITH_TOKENS | _WITHOUT_TOKENS:
            fact = f"layer {i} is a {name}, which holds more or other than a key for each token"
            raise invalid(path, f"{fact}: its keys cannot be moved; compute the cache at the new positions")
    return list(cache.layers)


def _tokens(layer: Any) -> tuple[int, int]:
    """Returns the number of the first token that a layer holds, and how many it holds."""
    if type(layer).__name__ in _WITHOUT_TOKENS or layer.keys is None:
        return 0, 0
    total = int(layer.get_seq_length())
    held = min(total, layer.keys.shape[2])
    return total - held, held


def _total(cache: Any, path: str = "cache") -> int:
    """Returns how many tokens a cache has seen; raises if layers differ, or have states instead of tokens."""
    totals = set()
    for i, layer in enumerate(_layers(cache, path)):
        if hasattr(layer, "conv_states"):
            raise invalid(path, f"layer {i} is a {type(layer).__name__}: its state has no tokens to choose or to join")
        totals.add(sum(_tokens(layer)))
    if len(totals - {0}) > 1:
        raise invalid(path, f"has layers of {sorted(totals - {0})} tokens; must have the same in each")
    return max(totals, default=0)


def _room(layer: Any) -> int:
    """Returns how many tokens a layer can hold."""
    if hasattr(layer, "max_cache_len"):
        return int(layer.max_cache_len)
    return int(layer.sliding_window) - 1 if hasattr(layer, "sliding_window") else sys.maxsize


def _check_room(cache: Any, total: int) -> None:
    for layer in cache.layers:
        # A static layer that slides, and that is shorter than the whole, is its window.
        if hasattr(layer, "max_cache_len") and layer.is_croppable and total > layer.max_cache_len:
            raise invalid("caches[0]", f"has room for {layer.max_cache_len} tokens; needs {total}: use a DynamicCache")


def _check_alike(first: Any, cache: Any, path: str) -> None:
    def facts(cache: Any) -> list[Any]:
        held = [(type(layer).__name__, layer.keys if _tokens(layer)[1] else None) for layer in cache.layers]
        return [(name, k is None or [*k.shape[:2], k.shape[3], k.dtype, k.device]) for name, k in held]

    for i, (ours, theirs) in enumerate(zip_longest(facts(cache), facts(first))):
        if ours != theirs:
            raise invalid(path, f"layer {i} is {ours}; must be as caches[0]'s, {theirs}")


def _copied(cache: Any) -> Any:
    copied = copy.copy(cache)
    copied.layers = copy.deepcopy(cache.layers)
    return copied


def _append(layer: Any, more: Any) -> None:
    """Adds the tokens of another layer, as the model would."""
    dropped, tokens = _tokens(more)
    if not tokens:
        return
    layer.update(more.keys[:, :, :tokens], more.values[:, :, :tokens])
    if getattr(more, "is_indexer_initialized", False):
        layer.update_indexer(more.indexer_keys[:, :tokens])
    if dropped:  # then both slide, and the layer is full
        name = "cumulative_length_int" if hasattr(layer, "cumulative_length_int") else "cumulative_length"
        setattr(layer, name, getattr(layer, name) + dropped)


def _select(layer: Any, own: list[int], total: int) -> None:
    """Leaves only the tokens `own` in a layer, of `total` in the sequence."""
    first, tokens = _tokens(layer)
    if not tokens:
        return
    static = hasattr(layer, "max_cache_len")
    with torch.inference_mode(layer.keys.is_inference()):
        for name, dim in (("keys", 2), ("values", 2), ("indexer_keys", 1)):
            tensor = getattr(layer, name, None)
            if tensor is None:
                continue
            kept = tensor.index_select(dim, torch.tensor(own, device=tensor.device) - first)
            if static:  # compiled models know its address
                tensor.zero_().narrow(dim, 0, len(own)).copy_(kept)
            else:
                setattr(layer, name, kept)
        for name in ("cumulative_length", "cumulative_length_int", "indexer_cumulative_length"):
            length = getattr(layer, name, None)
            if isinstance(length, torch.Tensor):
                length.fill_(total)
            elif length is not None:
                setattr(layer, name, total)
