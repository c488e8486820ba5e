"""Writes tests/data/ggml_blocks.json: blocks of 32 numbers as ggml's Python package
quantises them, and the numbers that it reads from them. For
tests/core/rotation/quantised_rows_test.cc.

    pip install gguf==0.19.0 numpy==2.4.6 && python3 tests/reference/ggml_blocks.py

gguf's comment says that its Q8_0 has the same bits as quantize_row_q8_0_ref of
ggml-quants.c. Its Q4_0 has the same operations as quantize_row_q4_0_ref.
"""

import importlib.metadata
import json
import pathlib

import gguf
import numpy as np

FORMATS = {"q8_0": gguf.GGMLQuantizationType.Q8_0,
           "q4_0": gguf.GGMLQuantizationType.Q4_0}
TARGET = pathlib.Path(__file__).resolve().parents[1] / "data/ggml_blocks.json"


def rows():
    random = np.random.default_rng(20261130)
    for scale in (1e-30, 1e-9, 6e-8, 1e-5, 0.02, 1, 3, 700, 5e4, 4e6, 3e7):
        for _ in range(3):
            yield scale * random.standard_normal(32)
    yield np.zeros(32)
    yield np.ones(32)
    yield -np.ones(32)
    yield np.arange(32) - 15.5
    yield np.where(np.arange(32) % 2, 8, -8)      # two largest magnitudes
    yield np.where(np.arange(32) % 2, -3, 3)
    # d is 1: halves, and the neighbours of halves.
    for sign in (1, -1):
        halves = sign * (np.arange(32, dtype=np.float32) * 4 + np.float32(0.5))
        halves[31] = 127
        for toward in (None, 0, 200):
            near = halves if toward is None else np.nextafter(
                halves, np.float32(sign * toward))
            yield np.where(np.arange(32) == 31, 127, near)
        small = sign * (np.arange(32, dtype=np.float32) / 2 - np.float32(7.75))
        small[0] = -8
        for toward in (None, 0, 200):
            near = small if toward is None else np.nextafter(
                small, np.float32(toward))
            yield np.where(np.arange(32) == 0, -8, near)
    # One outlier among small numbers.
    for at in (0, 17, 31):
        outlier = 0.001 * random.standard_normal(32)
        outlier[at] = -40
        yield outlier


def main():
    cases = []
    with np.errstate(all="ignore"):
        for row in rows():
            row = row.astype(np.float32)
            case = {"values": row.astype("<f4").tobytes().hex()}
            for name, form in FORMATS.items():
                block = gguf.quants.quantize(row[None], form)
                read = gguf.quants.dequantize(block, form)
                case[name] = {"bytes": block.tobytes().hex(),
                              "read": read.astype("<f4").tobytes().hex()}
            cases.append(case)
    versions = {name: importlib.metadata.version(name)
                for name in ("gguf", "numpy")}
    lines = ",\n".join(json.dumps(case) for case in cases)
    TARGET.write_text('{"made_by": "tests/reference/ggml_blocks.py", '
                      f'"versions": {json.dumps(versions)}, "blocks": [\n'
                      f"{lines}\n]}}\n", encoding="utf-8")


main()
