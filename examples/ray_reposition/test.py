"""Moves a folder of caches over several servers: test.py POSENCD.

Every key is compared with the formula, in float64; every server has moved
files; a second run does nothing.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import ray

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from files import read, write  # noqa: E402
from reposition import reposition  # noqa: E402

CONFIG = {"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4,
          "num_hidden_layers": 2, "num_key_value_heads": 2, "rope_theta": 500000.0,
          "max_position_embeddings": 8192}
SERVERS, FILES, LAYERS, TOKENS, HEADS, HEAD_DIM, SHIFT = 3, 12, 2, 96, 2, 64, 777


def turned(keys, positions):
    frequencies = 500000.0 ** (-2.0 * np.arange(HEAD_DIM // 2) / HEAD_DIM)
    angles = positions * frequencies
    x, y = np.split(keys, 2, -1)
    return np.concatenate([x * np.cos(angles) - y * np.sin(angles),
                           x * np.sin(angles) + y * np.cos(angles)], -1)


def start(posencd, folder, n):
    ready = folder / f"ready{n}"
    server = subprocess.Popen([posencd, "--listen", "127.0.0.1:0", "--ready-file", ready],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + 60
    while not (ready.exists() and ready.read_text().strip()):
        if server.poll() is not None or time.monotonic() > end:
            sys.exit("posencd did not start")
        time.sleep(0.05)
    return server, ready.read_text().split()[0]


def check(before, after):
    for name, array in before.items():
        if not name.endswith(".k"):
            assert after[name].tobytes() == array.tobytes(), name
            continue
        keys = array.astype(np.float64)
        length = np.hypot(*np.split(keys, 2, -1))
        # The bound is 10 units of float32, plus half an ulp of bfloat16, at most 2^-8.
        allowed = np.concatenate([length, length], -1) * (10 * 2.0 ** -24 + 2.0 ** -8)
        error = np.abs(after[name].astype(np.float64) - turned(keys, SHIFT))
        assert (error <= allowed).all(), f"{name}: off by {error.max()}"


def main(posencd):
    rng = np.random.default_rng(3)
    servers = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        source, out, config = folder / "in", folder / "out", folder / "config.json"
        source.mkdir()
        config.write_text(json.dumps(CONFIG))
        for n in range(FILES):
            write(source / f"{n:02}.safetensors", {
                f"model.layers.{layer}.{kind}":
                rng.standard_normal((TOKENS, HEADS, HEAD_DIM)).astype(ml_dtypes.bfloat16)
                for layer in range(LAYERS) for kind in "kv"} | {
                    "model.seen": np.arange(n, dtype=np.uint8)}, {"format": "pt"})
        try:
            servers = [start(posencd, folder, n) for n in range(SERVERS)]
            os.environ["PYTHONPATH"] = str(HERE)  # for Ray's workers
            # A small object store is enough, because rows are names, not tensors. It also
            # starts on a busy machine.
            ray.init(num_cpus=2, include_dashboard=False, object_store_memory=128 << 20,
                     log_to_driver=False)
            arguments = (source, out, [address for _, address in servers], str(config),
                         {"shift": SHIFT}, SERVERS)
            rows = reposition(*arguments)
            assert len(rows) == FILES, rows
            assert {row["server"] for row in rows} == {address for _, address in servers}, rows
            for path in source.iterdir():
                (before, _), (after, metadata) = read(path), read(out / path.name)
                check(before, after)
                assert metadata == {"format": "pt"}, metadata
            assert sum(row["moved"] for row in rows) == FILES * LAYERS
            assert sum(row["moved"] for row in reposition(*arguments)) == 0
        finally:
            ray.shutdown()
            for server, _ in servers:
                server.terminate()
                server.wait(timeout=60)
    print(f"{FILES} files over {SERVERS} servers: keys as the formula says, values as they were")


if __name__ == "__main__":
    main(*sys.argv[1:])
