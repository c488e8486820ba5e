"""The published InferenceGRPCClient of kserve, with tensors in shared memory:
kserve_shared.py ADDRESS, a unix socket of a server with --shared-memory-prefix /dev/shm/.

It has no method that registers a region, so this program does it over its own
channel; parameters of inputs and outputs name their places. Each answer is
compared bit for bit with the native RPC's.
"""

import asyncio
import mmap
import os
import sys

import grpc
import numpy as np
import posenc
from kserve import InferenceGRPCClient, InferInput, InferRequest
from kserve.protocol.infer_type import RequestedOutput

PRESET = "llama-3.1-8b"
PARAMETERS = {"rope.preset": PRESET, "positions.start": 9, "layout": "bshd"}
KEY = f"posenc_kserve_{os.getpid()}"


def varint(number):
    made = b""
    while number >= 128:
        made += bytes([number & 127 | 128])
        number >>= 7
    return made + bytes([number])


def register(address, name, size):
    """SystemSharedMemoryRegister: name = 1, key = 2, byte_size = 4."""
    message = b"".join(bytes([field << 3 | 2]) + varint(len(text)) + text.encode()
                       for field, text in ((1, name), (2, KEY))) + bytes([4 << 3]) + varint(size)
    with grpc.insecure_channel(address) as channel:
        channel.unary_unary("/inference.GRPCInferenceService/SystemSharedMemoryRegister",
                            lambda raw: raw, lambda raw: raw)(message, timeout=10)


def place(size, offset=0):
    made = {"shared_memory_region": "r", "shared_memory_byte_size": size}
    return made | {"shared_memory_offset": offset} if offset else made


async def rotate(address, native, memory, dtype, datatype):
    q = np.random.default_rng(7).standard_normal((2, 16, 4, 128)).astype(dtype)
    expected, _ = native.apply_rope(q, None, rope=PRESET, positions=9, layout="bshd")
    size = q.nbytes

    def infer(client, output):
        made = InferInput("q", list(q.shape), datatype, data=[], parameters=place(size))
        asked = [RequestedOutput("q", output)] if output else None
        return client.infer(InferRequest("apply_rope", [made], request_id="nine",
                                         parameters=dict(PARAMETERS), request_outputs=asked))

    client = InferenceGRPCClient(address)
    memory[:size] = q.tobytes()
    done = await infer(client, None)
    assert done.id == "nine"
    assert done.outputs[0].as_numpy().tobytes() == expected.tobytes(), f"{datatype}: sent back"
    done = await infer(client, place(size, size))
    assert done.outputs[0].shape == list(q.shape)
    assert memory[size:2 * size] == expected.tobytes(), f"{datatype}: out of place"
    assert memory[:size] == q.tobytes(), f"{datatype}: the input was written to"
    await asyncio.gather(*(infer(client, place(size, size * at)) for at in range(1, 8)))
    for at in range(1, 8):
        assert memory[at * size:(at + 1) * size] == expected.tobytes(), f"{datatype}: call {at}"
    await infer(client, place(size))
    assert memory[:size] == expected.tobytes(), f"{datatype}: in place"
    await client.close()


async def main(address):
    size = 8 * 2 * 16 * 4 * 128 * 8  # eight tensors of FP64
    path = f"/dev/shm/{KEY}"
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(file, 0, size)
        memory = mmap.mmap(file, size)
        register(address, "r", size)
        with posenc.Client(address) as native:
            for dtype, datatype in ((np.float32, "FP32"), (np.float64, "FP64")):
                await rotate(address, native, memory, dtype, datatype)
    finally:
        os.unlink(path)
        os.close(file)
    print("kserve: regions of shared memory agree with the native RPC bit for bit")


asyncio.run(main(sys.argv[1]))
