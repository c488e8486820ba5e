"""The keys of a paged cache (CacheLayout of service.proto)."""

from itertools import product

ENGINES = {  # docs/caches.md
    "llama_cpp": "BHD",
    "lmcache": "KLBHD",
    "sglang_hnd": "BHTD",
    "sglang_nhd": "BHD",
    "vllm_packed": "BTHKD",
    "vllm_split": "KBTHD",
}


def slots_of(cache, block_size):
    """Returns the slot of each token of each sequence; None for a token without
    a slot."""
    table = cache.get("slots") or cache["blockTable"]
    width = table["shape"][-1]
    entries = [int(v) for v in table["values"]]
    rows = [entries[i:i + width] for i in range(0, len(entries), width)]
    if "slots" in cache:
        return [[None if v < 0 else v for v in row] for row in rows]
    lengths = cache.get("lengths") or [width * block_size] * len(rows)
    longest = max(lengths)
    return [[row[t // block_size] * block_size + t % block_size
             if t < length else None for t in range(longest)]
            for row, length in zip(rows, lengths)]


def keys_of(cache, shape):
    """Returns head_dim, (sequences, length), and the keys that move: a dict
    from layer to a list of (sequence, token, head, index of the first channel)."""
    letters = ENGINES.get(cache["dimensions"], cache["dimensions"])
    if letters.endswith("KD") and len(shape) < len(letters):
        shape = shape[:-1] + [2, shape[-1] // 2]
    extent = {**dict.fromkeys("BTHDKL", 1), **dict(zip(letters, shape))}
    slots = slots_of(cache, extent["T"])
    layers = sorted(set(cache.get("layers") or range(extent["L"])))
    keys = {layer: [] for layer in layers}
    for s, row in enumerate(slots):
        for (t, slot), h, layer in product(enumerate(row), range(extent["H"]),
                                           layers):
            if slot is None:
                continue
            place = {"B": slot // extent["T"], "T": slot % extent["T"],
                     "H": h, "L": layer, "K": 0, "D": 0}
            at = 0
            for letter in letters:
                at = at * extent[letter] + place[letter]
            keys[layer].append((s, t, h, at))
    return extent["D"], (len(slots), len(slots[0])), keys
