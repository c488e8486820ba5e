"""ask.py RECORD [GROUP...]: writes transformers' results for configurations.

Groups: types (every model type in every spelling), audio (the audio parts of whole
files), published (files of checkpoints), variants (scalings), damaged (faulty files),
rewrites (of files of every type), found (rewrites of other seeds that posenc once
answered differently without a warning).
If no group is named, it asks all of them. "rewrites:8:1:1" asks for 8 rewrites of each file, with
seed 1 and step 1 (step 2 takes every second file). "damaged:6000:1" asks for 6000 faulty files of
all types, with seed 1.
"""

import json
import pathlib
import re
import signal
import sys

import damage
import library
import published
import record
import rewrites
import spellings
import variants


FOUND = pathlib.Path(__file__).parents[2] / "tests/data/parity/found.jsonl"


class Endless(BaseException):
    """A configuration on which the library takes too long."""


def give_up(signum, frame):
    raise Endless


# Seconds of processor time for a file; most files take some milliseconds. Damaged files can make very long
# lists.
PATIENCE = 5
signal.signal(signal.SIGVTALRM, give_up)


# Keys that positions depend on. If transformers refuses a file because of another
# key, the file is left out.
POSITION_KEYS = re.compile(
    r"rope|rotary|theta|head_dim|hidden_size|num_attention_heads|num_hidden_layers|layer_types|"
    r"max_position|n_embd|n_head|n_positions|sliding_window_pattern|full_attention|kv_channels|"
    r"d_model|position_embedding|model_type")


def concerns_positions(error):
    """Returns False if the error is about a field without effect on positions, about the pair of an
    encoder and a decoder, or about the number of key heads."""
    field = re.search(r"[Ff]ield '([^']+)'", error)
    if field is None:
        return "encoder-decoder" not in error and "num_key_value_heads must" not in error
    return bool(POSITION_KEYS.search(field[1])) and field[1] != "v_head_dim"


def attempt(writer, group, model_type, name, text):
    signal.setitimer(signal.ITIMER_VIRTUAL, PATIENCE)
    try:
        answers = library.ask(json.loads(text))
    except (library.NoRotation, Endless):
        return
    except Exception as error:  # every exception of the library is its answer
        said = f"{type(error).__name__}: {error}"
        if concerns_positions(said):
            writer.add(group, model_type, name, text, error=said[:200])
        return
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    writer.add(group, model_type, name, text, answers)


def ask_types(writer):
    for model_type, config, path in library.rotating():
        for name, values in spellings.all_of(config, path):
            attempt(writer, "types", model_type, name, json.dumps(values))


def ask_audio(writer):
    """Asks for the audio parts of whole files. The group `types` has these parts as models of their
    own."""
    for model_type in library.types():
        try:
            config = library.config_of({"model_type": model_type})
            part = library.audio_of(config)
            answers = library.ask_part(part) if part else None
        except (Exception, library.NoRotation):  # has no default, or needs a switch
            continue
        if answers:
            for name, values in (("saved", spellings.saved(config)),
                                 ("full", spellings.full(config))):
                writer.add("audio", model_type, name, json.dumps(values), answers)


def ask_published(writer):
    for model_type, name, text, answers in published.all_of():
        if answers is None:
            attempt(writer, "published", model_type, name, text)
        else:
            writer.add("published", model_type, name, text, answers)


def ask_variants(writer):
    for model_type, name, values in variants.all_of():
        attempt(writer, "variants", model_type, name, json.dumps(values))


def alike(cases):
    """Orders files by type, so that they compress better."""
    return sorted(cases, key=lambda case: (case[0], case[2]))


def ask_damaged(writer, *arguments):
    for model_type, name, text in alike(damage.all_of(*map(int, arguments))):
        attempt(writer, "damaged", model_type, name, text)


def ask_rewrites(writer, *arguments):
    names = {}
    cases = []
    for model_type, name, text in rewrites.all_of(*map(int, arguments)):
        number = names[model_type] = names.get(model_type, 0) + 1
        cases.append((model_type, f"{number} {name}", text))
    for model_type, name, text in alike(cases):
        attempt(writer, "rewrites", model_type, name, text)


def ask_found(writer):
    for line in FOUND.read_text().splitlines():
        case = json.loads(line)
        attempt(writer, "found", case["type"], case["name"], case["text"])


GROUPS = {"types": ask_types, "audio": ask_audio, "published": ask_published,
          "variants": ask_variants, "damaged": ask_damaged,
          "rewrites": ask_rewrites, "found": ask_found}


def main(path, *groups):
    writer = record.Writer(path, transformers=library.transformers.__version__,
                           torch=library.torch.__version__)
    for group in groups or GROUPS:
        name, *arguments = group.split(":")
        GROUPS[name](writer, *arguments)
    writer.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
