"""Reads and writes .safetensors: a length, a JSON header, and the tensors' bytes."""

import json
import os
import struct

import ml_dtypes
import numpy as np

DTYPES = {"F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
          "BF16": np.dtype(ml_dtypes.bfloat16), "I64": np.dtype("<i8"), "I32": np.dtype("<i4")}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path):
    """Name -> array, as views of the file."""
    data = np.memmap(path, np.uint8, "r")
    (length,) = struct.unpack("<Q", data[:8].tobytes())
    header = json.loads(data[8:8 + length].tobytes())
    header.pop("__metadata__", None)
    tensors = {}
    for name, entry in header.items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        # The array's own memory: a view's elements need not be aligned.
        tensors[name] = np.array(data[begin:end]).view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors


def write(path, tensors):
    """Writes a file whole or not at all."""
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": NAMES[array.dtype], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    fresh = f"{path}.{os.getpid()}.new"
    with open(fresh, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for array in tensors.values():
            file.write(np.ascontiguousarray(array).tobytes())
    os.replace(fresh, path)
