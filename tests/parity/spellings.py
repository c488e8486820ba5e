"""The spellings of a configuration's rotary keys."""

import copy
import json

ROPE_KEYS = ("rope_parameters", "rope_scaling", "rope_theta")


def saved(config):
    """Returns the output of save_pretrained: values that differ from the
    class's defaults."""
    return json.loads(config.to_json_string(use_diff=True))


def full(config):
    return json.loads(config.to_json_string(use_diff=False))


def at(values, path):
    for name in path:
        values = values.setdefault(name, {})
    return values


def without(values, path, keys=ROPE_KEYS, **added):
    """Returns a copy whose part at `path` has `added` instead of `keys`."""
    copied = copy.deepcopy(values)
    part = at(copied, path)
    for key in keys:
        part.pop(key, None)
    part.update(added)
    return copied


def old(values, path):
    """Returns the older spelling: rope_theta and rope_scaling instead of rope_parameters."""
    rope = copy.deepcopy(at(copy.deepcopy(values), path).get("rope_parameters"))
    if not rope:
        return None
    nested = {kind: dict for kind, dict in rope.items() if type(dict) is type({})}
    if nested:
        keys = {}
        for kind, theta_key in (("full_attention", "rope_theta"),
                                ("sliding_attention", "rope_local_base_freq")):
            theta = nested.get(kind, {}).pop("rope_theta", None)
            if theta is not None:
                keys[theta_key] = theta
        scaling = nested.get("full_attention")
        if scaling and scaling.get("rope_type", "default") != "default":
            keys["rope_scaling"] = scaling
        return without(values, path, **keys)
    theta = rope.pop("rope_theta", None)
    if rope.get("rope_type", "default") == "default":
        rope.pop("rope_type", None)
    return without(values, path, rope_scaling=rope or None,
                   **({} if theta is None else {"rope_theta": theta}))


def all_of(config, path):
    """Yields (name, values) of each spelling of a configuration."""
    whole = full(config)
    found = [("saved", saved(config)), ("full", whole), ("old", old(whole, path)),
             ("none", without(whole, path)),
             ("theta", without(whole, path, rope_theta=250000.0)),
             ("scaling", without(whole, path, rope_scaling={
                 "rope_type": "linear", "factor": 8.0})),
             # Less common: a dict with the newer name but without a base, and a dict in which the key of the
             # type has the older name.
             ("parameters", without(whole, path, rope_parameters={
                 "rope_type": "linear", "factor": 8.0})),
             ("typed", without(whole, path, rope_theta=250000.0, rope_scaling={
                 "type": "yarn", "factor": 4.0,
                 "original_max_position_embeddings": 2048}))]
    return [(name, values) for name, values in found if values is not None]
