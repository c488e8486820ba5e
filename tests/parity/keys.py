"""Files of every type with one damaged key, the same ones for the same seed.

damage.py and rewrites.py harm what says how to rotate; here it may be any key of the
file, and of the parts in it.
"""

import copy
import json
import random

import damage
import library
import spellings

SEED = 20261124
BAD = [None, "x", "", "8", "NaN", True, False, 0, -1, 7, 1.5, -2.5, 1e30, 1 << 40, [], [1],
       ["a"], [None], {}, {"a": 1}]
# What is said in every file, and which other groups harm.
SKIPPED = ["model_type", "architectures", "transformers_version", "_name_or_path",
           "id2label", "label2id"]


def dicts(values, parts=3):
    """The file and its parts, each a dict."""
    yield values
    for value in values.values():
        if isinstance(value, dict) and parts:
            yield from dicts(value, parts - 1)


def damaged(chance, values):
    """A copy with one damaged key, and its name."""
    copied = copy.deepcopy(values)
    places = [(one, key) for one in dicts(copied) for key in one if key not in SKIPPED]
    where, key = chance.choice(places)
    where[key] = copy.deepcopy(chance.choice(BAD))
    return copied, f"{key}={json.dumps(where[key])}"


def all_of(each=1, seed=SEED):
    """(model type, name, text) of each: `each` for every type."""
    chance = random.Random(seed)
    for model_type, config, _ in library.rotating():
        values = damage.short(spellings.saved(config))
        for number in range(each):
            changed, name = damaged(chance, values)
            yield model_type, f"{number} {name}", json.dumps(changed)
