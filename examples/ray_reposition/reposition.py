"""Moves the keys of all .safetensors files of a folder, over several servers.

    reposition.py --servers A:50051,B:50051 --rope config.json --shift N IN OUT

Keys of FP8 need --saturation: finite or none.
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


class Mover:
    """A worker. It has a client for each server that it has used, and the encoding of
    each layer, which it resolves once."""

    def __init__(self, rope, movement, out):
        self.rope, self.movement, self.out = rope, movement, Path(out)
        self.clients, self.layers = {}, {}

    def encoding(self, server, layer):
        if server not in self.clients:
            self.clients[server] = posenc.connect(server)
        if (server, layer) not in self.layers:
            self.layers[server, layer] = self.clients[server].rope(self.rope, layer_index=layer)
        return self.layers[server, layer]

    def __call__(self, row):
        path = Path(row["path"])
        target = self.out / path.name
        moved = 0
        if not target.exists():
            tensors, metadata = read(path)
            for name, tensor in tensors.items():
                found = KEYS.search(name)
                if found:
                    tensors[name] = self.encoding(row["server"], int(found[1])).reposition(
                        tensor, layout="thd", **self.movement)
                    moved += 1
            write(target, tensors, metadata)
        return {"file": path.name, "server": row["server"], "moved": moved}


def reposition(folder, out, servers, rope, movement, workers):
    """Returns a row for each file: its name, its server, the number of moved tensors.
    `movement` has arguments of Rope.reposition(): a shift; for FP8 keys a saturation."""
    paths = sorted(str(path) for path in Path(folder).glob("*.safetensors"))
    if not paths:
        raise ValueError(f"{folder} has no .safetensors files")
    os.makedirs(out, exist_ok=True)
    if os.path.samefile(folder, out):
        raise ValueError(f"{out} is the folder of the caches; what is there already is skipped")
    # Each server gets the next file in turn, independently of the worker.
    items = [{"path": path, "server": server}
             for path, server in zip(paths, itertools.cycle(servers))]
    files = ray.data.from_items(items, override_num_blocks=len(items))
    return files.map(Mover, fn_constructor_args=(rope, movement, str(out)),
                     compute=ray.data.ActorPoolStrategy(size=workers), num_cpus=0.5).take_all()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder")
    parser.add_argument("out")
    parser.add_argument("--servers", required=True)
    parser.add_argument("--rope", required=True, help="a config.json or a preset's name")
    parser.add_argument("--shift", type=int, required=True)
    parser.add_argument("--saturation", choices=["finite", "none"])
    parser.add_argument("--workers", type=int, help="one for each server if not given")
    options = parser.parse_args()
    servers = [server for server in options.servers.split(",") if server]
    movement = {"shift": options.shift, "saturation": options.saturation}
    rope = os.path.abspath(options.rope) if os.path.exists(options.rope) else options.rope
    try:
        rows = reposition(os.path.abspath(options.folder), os.path.abspath(options.out), servers,
                          rope, movement, options.workers or len(servers))
    except ValueError as error:
        parser.error(str(error))
    for row in rows:
        print(f"{row['file']}: {row['moved']} tensors moved by {row['server']}")


if __name__ == "__main__":
    main()
