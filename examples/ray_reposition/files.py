"""Reads and writes .safetensors: a length, a JSON header, and the tensors' bytes."""

import json
import os
import struct

import ml_dtypes
import numpy as np

DTYPES = {
    "F64": np.dtype("<f8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"),
    "BF16": np.dtype(ml_dtypes.bfloat16), "F8_E4M3": np.dtype(ml_dtypes.float8_e4m3fn),
    "F8_E5M2": np.dtype(ml_dtypes.float8_e5m2), "I64": np.dtype("<i8"), "I32": np.dtype("<i4"),
    "I16": np.dtype("<i2"), "I8": np.dtype("i1"), "U64": np.dtype("<u8"), "U32": np.dtype("<u4"),
    "U16": np.dtype("<u2"), "U8": np.dtype("u1"), "BOOL": np.dtype("?"), "C64": np.dtype("<c8"),
}
NAMES = {dtype: name for name, dtype in DTYPES.items()}


def read(path):
    """Returns arrays by name, and the file's metadata or None."""
    data = np.fromfile(path, np.uint8)
    try:
        (length,) = struct.unpack("<Q", data[:8].tobytes())
        header = json.loads(data[8:8 + length].tobytes())
        metadata = header.pop("__metadata__", None)
        tensors = {}
        for name, entry in header.items():
            begin, end = (8 + length + offset for offset in entry["data_offsets"])
            # Makes a copy, because elements of the file may be unaligned.
            tensors[name] = data[begin:end].copy().view(DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except KeyError as error:
        raise ValueError(f"{path}: {error} is unknown here") from error
    except (ValueError, AttributeError, TypeError, struct.error) as error:
        raise ValueError(f"{path} is no .safetensors file, or was cut off: {error}") from error
    return tensors, metadata


def write(path, tensors, metadata=None):
    """Writes a file completely or not at all."""
    header, at = {} if metadata is None else {"__metadata__": metadata}, 0
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
