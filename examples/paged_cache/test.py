"""Compares moved keys with their models' formulas, in float64: test.py ADDRESS.

The formulas are written out here from the papers and from transformers'
documentation, independently of the server.
"""

import math
import sys

import ml_dtypes
import numpy as np
import posenc

from paged_cache import move_blocks, move_slots, resolve_layers

BLOCKS, BLOCK_SIZE, KV_HEADS = 24, 16, 4
TOKENS, SHIFT = 5 * BLOCK_SIZE, 3001


def plain(dim, theta):
    return theta ** (-2.0 * np.arange(dim // 2) / dim)


def yarn(dim, theta, factor, original):
    """arXiv:2309.00071: frequencies with more than 32 rotations in the original length are
    kept, frequencies with fewer than 1 are divided, and a ramp blends the others."""
    def pair_of(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(theta))
    low, high = max(math.floor(pair_of(32)), 0), min(math.ceil(pair_of(1)), dim - 1)
    kept = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    return plain(dim, theta) * (kept + (1 - kept) / factor), 0.1 * math.log(factor) + 1


def gemma3():
    config = {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 6,
        "num_attention_heads": 8, "num_key_value_heads": KV_HEADS, "head_dim": 256,
        "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
        "sliding_window": 1024, "sliding_window_pattern": 6, "max_position_embeddings": 131072,
    }
    local = (plain(256, 1e4), 1.0)
    return config, 256, [local] * 5 + [(plain(256, 1e6) / 8, 1.0)]


def partial_rotary():
    config = {
        "model_type": "phi", "hidden_size": 2560, "num_hidden_layers": 2,
        "num_attention_heads": 32, "num_key_value_heads": KV_HEADS, "rope_theta": 10000.0,
        "partial_rotary_factor": 0.4, "max_position_embeddings": 2048,
    }
    return config, 80, [(plain(32, 1e4), 1.0)] * 2


def yarned():
    config = {
        "model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 2,
        "num_attention_heads": 28, "num_key_value_heads": KV_HEADS, "rope_theta": 1000000.0,
        "max_position_embeddings": 131072,
        "rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768},
    }
    return config, 128, [yarn(128, 1e6, 4.0, 32768)] * 2


def rotate(keys, positions, frequencies, factor):
    """[tokens, heads, head_dim] in half-split pairs, float64."""
    half = len(frequencies)
    angles = positions[:, None, None] * frequencies
    x, y = keys[..., :half], keys[..., half:2 * half]
    turned = np.concatenate([x * np.cos(angles) - y * np.sin(angles),
                             x * np.sin(angles) + y * np.cos(angles)], -1) * factor
    return np.concatenate([turned, keys[..., 2 * half:]], -1)


def pair_lengths(keys, half):
    length = np.hypot(keys[..., :half], keys[..., half:2 * half])
    return np.concatenate([length, length, np.zeros_like(keys[..., 2 * half:])], -1)


def check(client, name, move, make, rng):
    config, head_dim, layers = make()
    ropes = resolve_layers(client, config, len(layers))
    old_blocks = rng.permutation(BLOCKS // 2)[:TOKENS // BLOCK_SIZE]
    new_blocks = BLOCKS // 2 + rng.permutation(BLOCKS // 2)[:TOKENS // BLOCK_SIZE]
    old_slots, new_slots = ((blocks[:, None] * BLOCK_SIZE + np.arange(BLOCK_SIZE)).ravel()
                            for blocks in (old_blocks, new_blocks))
    positions = np.arange(TOKENS, dtype=np.float64)
    raw = rng.standard_normal((len(layers), TOKENS, KV_HEADS, head_dim))
    caches, before = [], []
    for keys, (frequencies, factor) in zip(raw, layers):
        cache = rng.standard_normal((2, BLOCKS, BLOCK_SIZE, KV_HEADS, head_dim))
        cache = cache.astype(ml_dtypes.bfloat16)
        flat = cache.reshape(2, -1, KV_HEADS, head_dim)
        flat[0, old_slots] = rotate(keys, positions, frequencies, factor)
        caches.append(cache)
        before.append(flat.copy())

    if move is move_blocks:
        move(ropes, caches, old_blocks, new_blocks, SHIFT)
    else:
        move(ropes, caches, old_slots, new_slots, SHIFT)

    others = np.setdiff1d(np.arange(BLOCKS * BLOCK_SIZE), new_slots)
    for layer, (frequencies, _) in enumerate(layers):
        flat = caches[layer].reshape(2, -1, KV_HEADS, head_dim)
        cached = before[layer][0, old_slots].astype(np.float64)
        # The cached keys already contain the factor: they are only rotated.
        expected = rotate(cached, np.full(TOKENS, float(SHIFT)), frequencies, 1.0)
        # The bound is 10 units of float32, like the contract's vectors, plus the last rounding:
        # half an ulp of bfloat16, which is at most 2^-8 of the element.
        allowed = pair_lengths(cached, len(frequencies)) * (10 * 2.0 ** -24 + 2.0 ** -8)
        error = np.abs(flat[0, new_slots].astype(np.float64) - expected)
        assert (error <= allowed).all(), f"{name}: layer {layer}: off by {error.max()}"
        # It also equals a key that the model rotates to the new position, up to the rounding of
        # the cached key.
        keys, factor = raw[layer], layers[layer][1]
        itself = rotate(keys, positions + SHIFT, frequencies, factor)
        scale = pair_lengths(keys * factor, len(frequencies))
        allowed = scale * (10 * 2.0 ** -24 + 2 * 2.0 ** -8) + np.abs(keys) * 2.0 ** -8
        assert (np.abs(flat[0, new_slots].astype(np.float64) - itself) <= allowed).all(), name
        assert (flat[1, new_slots] == before[layer][1, old_slots]).all(), f"{name}: values"
        assert (flat[:, others] == before[layer][:, others]).all(), f"{name}: other tokens"
    print(f"{name}, {move.__name__}: {len(layers)} layers, keys and values as the formulas say")


def main(address):
    rng = np.random.default_rng(7)
    with posenc.Client(address) as client:
        for make in (gemma3, partial_rotary, yarned):
            for move in (move_blocks, move_slots):
                check(client, make.__name__, move, make, rng)


if __name__ == "__main__":
    main(*sys.argv[1:])
