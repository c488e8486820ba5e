"""The layers of transformers' caches: which tensors rotate, which tokens they hold, and how they grow."""

from __future__ import annotations

import copy
import sys
from itertools import zip_longest
from typing import Any, Optional

import torch

from ..errors import invalid

# Classes of layers that hold one key for each token, [batch, heads, tokens, head_dim]. Layers of other classes may
# hold compressed or quantised keys, or copies in further tensors.
_WITH_TOKENS = {
    "DynamicLayer", "DynamicSlidingWindowLayer", "DynamicIndexedLayer",
    "StaticLayer", "StaticSlidingWindowLayer", "StaticIndexedLayer",
    "LinearAttentionAndFullAttentionLayer", "LinearAttentionAndSlidingWindowAttentionLayer",
    "LinearAttentionAndStaticFullAttentionLayer", "LinearAttentionAndStaticSlidingWindowAttentionLayer",
}  # fmt: skip
_WITHOUT_TOKENS = {"DummyLayer", "LinearAttentionLayer"}
_LATENT = "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim"


def layers_of(cache: Any, path: str) -> list[Any]:
    """Returns a cache's layers; raises if one of them is of a class whose keys cannot be moved."""
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


def rotated(layer: Any, i: int, config: Any, path: str) -> list[tuple[Optional[str], torch.Tensor]]:
    """Returns views of the tensors with rotated channels, [batch, heads, tokens, head_dim], each with its model part.
    In a layer with latents (DeepSeek), `keys` has the latents, which do not rotate.
    The layer's `values` has the rotated channels, [batch, 1, tokens, qk_rope_head_dim]."""
    tokens = tokens_of(layer)[1]
    if not tokens:
        return []
    if layer.keys.requires_grad:
        raise invalid(path, f"layer {i} requires grad; compute the cache under torch.no_grad()")
    # Each layer may have its own configuration.
    config = config.per_layer_config[i] if getattr(config, "per_layer_config", None) else config
    latent, rope, nope = (getattr(config, key, None) or 0 for key in _LATENT)
    width, keys = layer.keys.shape[-1], layer.keys
    if latent and (width, layer.values.shape[-1]) == (latent, rope):
        keys = layer.values
    elif latent and width != nope + rope:
        raise invalid(path, f"layer {i} has keys of {width} channels; must be latents of {latent}, or {nope} + {rope}")
    found: list[tuple[Optional[str], torch.Tensor]] = [(None, keys[:, :, :tokens])]
    if getattr(layer, "is_indexer_initialized", False):
        width = layer.indexer_keys.shape[-1]
        if layer.indexer_position_ids is not None or width != getattr(config, "index_head_dim", None):
            raise invalid(path, f"layer {i}'s indexer caches more than its rotated keys: compute the cache again")
        found.append(("indexer", layer.indexer_keys[:, None, :tokens]))
    return found


def tokens_of(layer: Any) -> tuple[int, int]:
    """Returns the index of the first token that a layer holds, and the number of tokens that it holds."""
    if type(layer).__name__ in _WITHOUT_TOKENS or layer.keys is None:
        return 0, 0
    total = int(layer.get_seq_length())
    held = min(total, layer.keys.shape[2])
    return total - held, held


def total_of(cache: Any, path: str = "cache") -> int:
    """Returns how many tokens a cache has seen; raises if its layers disagree, or have states instead of tokens."""
    totals = set()
    for i, layer in enumerate(layers_of(cache, path)):
        if hasattr(layer, "conv_states"):
            raise invalid(path, f"layer {i} is a {type(layer).__name__}: its state has no tokens to choose or to join")
        totals.add(sum(tokens_of(layer)))
    if len(totals - {0}) > 1:
        raise invalid(path, f"has layers of {sorted(totals - {0})} tokens; must have the same in each")
    return max(totals, default=0)


def room_of(layer: Any) -> int:
    """Returns how many tokens a layer can hold."""
    if hasattr(layer, "max_cache_len"):
        return int(layer.max_cache_len)
    return int(layer.sliding_window) - 1 if hasattr(layer, "sliding_window") else sys.maxsize


def check_room(cache: Any, total: int) -> None:
    for layer in cache.layers:
        # A static layer that slides is not croppable, and needs room only for its window.
        if hasattr(layer, "max_cache_len") and layer.is_croppable and total > layer.max_cache_len:
            raise invalid("caches[0]", f"has room for {layer.max_cache_len} tokens; needs {total}: use a DynamicCache")


def check_alike(first: Any, cache: Any, path: str) -> None:
    def facts(cache: Any) -> list[Any]:
        held = [(type(layer).__name__, layer.keys if tokens_of(layer)[1] else None) for layer in cache.layers]
        return [(name, k is None or [*k.shape[:2], k.shape[3], k.dtype, k.device]) for name, k in held]

    for i, (ours, theirs) in enumerate(zip_longest(facts(cache), facts(first))):
        if ours != theirs:
            raise invalid(path, f"layer {i} is {ours}; must be as caches[0]'s, {theirs}")


def copied(cache: Any) -> Any:
    copied = copy.copy(cache)
    copied.layers = copy.deepcopy(cache.layers)
    return copied


def append(layer: Any, more: Any) -> None:
    """Adds the tokens of another layer, as the model would."""
    dropped, tokens = tokens_of(more)
    if not tokens:
        return
    layer.update(more.keys[:, :, :tokens], more.values[:, :, :tokens])
    if getattr(more, "is_indexer_initialized", False):
        layer.update_indexer(more.indexer_keys[:, :tokens])
    if dropped:  # then both layers slide, and `layer` is full
        name = "cumulative_length_int" if hasattr(layer, "cumulative_length_int") else "cumulative_length"
        setattr(layer, name, getattr(layer, name) + dropped)


def select(layer: Any, own: list[int], total: int) -> None:
    """Removes all tokens of a layer except `own`. The sequence then has `total` tokens."""
    first, tokens = tokens_of(layer)
    if not tokens:
        return
    static = hasattr(layer, "max_cache_len")
    with torch.inference_mode(layer.keys.is_inference()):
        for name, dim in (("keys", 2), ("values", 2), ("indexer_keys", 1)):
            tensor = getattr(layer, name, None)
            if tensor is None:
                continue
            kept = tensor.index_select(dim, torch.tensor(own, device=tensor.device) - first)
            if static:  # compiled models hold the tensor's address
                tensor.zero_().narrow(dim, 0, len(own)).copy_(kept)
            else:
                setattr(layer, name, kept)
        for name in ("cumulative_length", "cumulative_length_int", "indexer_cumulative_length"):
            length = getattr(layer, name, None)
            if isinstance(length, torch.Tensor):
                length.fill_(total)
            elif length is not None:
                setattr(layer, name, total)
