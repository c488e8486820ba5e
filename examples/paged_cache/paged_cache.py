"""Moves cached keys to other positions, in paged caches of vLLM and LMCache: a
layer's cache is [2, num_blocks, block_size, num_kv_heads, head_dim], keys
first."""


def resolve_layers(client, config, layers):
    """Returns the encoding of each layer of a model, resolved once. `config` is
    an argument of Client.rope(): a path of a config.json, a dict, a preset's
    name."""
    return [client.rope(config, layer_index=layer) for layer in range(layers)]


def move_blocks(ropes, caches, old_blocks, new_blocks, shift):
    """Copies whole blocks, and moves their keys by `shift` positions.

    old_blocks, new_blocks: rows of a block table, without its padding. The new
    blocks belong to the caller; old blocks may be shared with other sequences, and do
    not change.
    """
    for rope, cache in zip(ropes, caches):
        keys, values = cache
        # [blocks, block_size, num_kv_heads, head_dim]: a block is a sequence.
        keys[new_blocks] = rope.reposition(keys[old_blocks], shift=shift, layout="bshd")
        values[new_blocks] = values[old_blocks]


def move_slots(ropes, caches, old_slots, new_slots, shift):
    """Does the same token by token: slot = block * block_size + offset, as in a slot mapping.
    Leave out tokens without a slot (-1)."""
    if (old_slots < 0).any() or (new_slots < 0).any():
        raise ValueError("a slot is negative; leave out the tokens that have none")
    for rope, cache in zip(ropes, caches):
        keys, values = cache
        # Indexes by block and offset, because a cache with permuted memory has no flat view.
        block_size = keys.shape[1]
        old, new = ((slots // block_size, slots % block_size) for slots in (old_slots, new_slots))
        # [tokens, num_kv_heads, head_dim]
        keys[new] = rope.reposition(keys[old], shift=shift, layout="thd")
        values[new] = values[old]
