"""ask.py RECORD [GROUP...]: writes what transformers makes of configurations.

Groups: types (every model type in every spelling), variants (scalings),
damaged (files that something is wrong with). All of them if none is named.
"""

import json
import sys

import damage
import library
import record
import spellings
import variants


def attempt(writer, group, model_type, name, text):
    try:
        answers = library.ask(json.loads(text))
    except library.NoRotation:
        return
    except Exception as error:  # whatever the library raises is its answer
        writer.add(group, model_type, name, text,
                   error=f"{type(error).__name__}: {error}"[:200])
        return
    writer.add(group, model_type, name, text, answers)


def ask_types(writer):
    for model_type in library.types():
        try:
            config = library.config_of(
                {"model_type": model_type, **library.SWITCHES.get(model_type, {})})
            found = library.part_of(config)
        except Exception:  # a type without a default configuration
            continue
        if found:
            for name, values in spellings.all_of(config, found[0]):
                attempt(writer, "types", model_type, name, json.dumps(values))


def ask_variants(writer):
    for model_type, name, values in variants.all_of():
        attempt(writer, "variants", model_type, name, json.dumps(values))


def ask_damaged(writer):
    for model_type, name, text in damage.all_of():
        attempt(writer, "damaged", model_type, name, text)


GROUPS = {"types": ask_types, "variants": ask_variants, "damaged": ask_damaged}


def main(path, *groups):
    writer = record.Writer(path, transformers=library.transformers.__version__,
                           torch=library.torch.__version__)
    for group in groups or GROUPS:
        GROUPS[group](writer)
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
