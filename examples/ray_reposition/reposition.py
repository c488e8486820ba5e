"""Moves the keys of all .safetensors files of a folder, over several servers.

    reposition.py --servers A:50051,B:50051 --rope config.json --shift N IN OUT
"""

import argparse
import itertools
import os
import re
from pathlib import Path

import posenc
import ray

from files import read, write

KEYS = re.compile(r"(?:^|\.)layers\.(\d+)\.k$")


@ray.remote
class Turns:
    """Deals servers out to workers, in turn."""

    def __init__(self, servers):
        self.servers = itertools.cycle(servers)

    def next(self):
        return next(self.servers)


class Mover:
    """A worker: one client, and the encodings that it has met."""

    def __init__(self, turns, rope, shift, out):
        self.server = ray.get(turns.next.remote())
        self.client = posenc.connect(self.server)
        self.rope, self.shift, self.out = rope, shift, Path(out)
        self.layers = {}

    def encoding(self, layer):
        if layer not in self.layers:
            self.layers[layer] = self.client.rope(self.rope, layer_index=layer)
        return self.layers[layer]

    def __call__(self, row):
        path = Path(row["item"])
        target = self.out / path.name
        moved = 0
        if not target.exists():
            tensors = read(path)
            for name, tensor in tensors.items():
                found = KEYS.search(name)
                if found:
                    tensors[name] = self.encoding(int(found[1])).reposition(
                        tensor, shift=self.shift, layout="thd")
                    moved += 1
            write(target, tensors)
        return {"file": path.name, "server": self.server, "moved": moved}


def reposition(folder, out, servers, rope, shift, workers):
    """A row a file: its name, the server that moved it, how many tensors moved."""
    os.makedirs(out, exist_ok=True)
    paths = sorted(str(path) for path in Path(folder).glob("*.safetensors"))
    turns = Turns.remote(servers)
    files = ray.data.from_items(paths, override_num_blocks=max(len(paths), 1))
    return files.map(Mover, fn_constructor_args=(turns, rope, shift, str(out)),
                     concurrency=workers, num_cpus=0.5).take_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--rope", required=True, help="a config.json or a preset's name")
    parser.add_argument("--shift", type=int, required=True)
    parser.add_argument("--workers", type=int, help="one for each server if not given")
    options = parser.parse_args()
    servers = options.servers.split(",")
    rope = os.path.abspath(options.rope) if os.path.exists(options.rope) else options.rope
    for row in reposition(os.path.abspath(options.folder), os.path.abspath(options.out), servers,
                          rope, options.shift, options.workers or len(servers)):
        print(f"{row['file']}: {row['moved']} tensors moved by {row['server']}")


if __name__ == "__main__":
    main()
