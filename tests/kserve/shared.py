"""The published tritonclient's system shared memory against posencd: shared.py
ADDRESS, a unix socket of a server with --shared-memory-prefix /dev/shm/.

Each answer is compared bit for bit with the native RPC's.
"""

import asyncio
import os
import queue
import sys

import numpy as np
import posenc
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
import tritonclient.utils.shared_memory as shm
from tritonclient.utils import InferenceServerException

PRESET = "llama-3.1-8b"
CALLS = 16  # calls at a time
PARAMETERS = {"rope.preset": PRESET, "positions.start": 5, "layout": "bshd"}


def numbers(shape, dtype=np.float32):
    return np.random.default_rng(7).standard_normal(shape).astype(dtype)


def same(ours, theirs, what):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, what
    assert ours.tobytes() == theirs.tobytes(), f"{what}: bytes differ"


def refused(call, code):
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{code}", (error.status(), error.message())
    else:
        raise AssertionError(f"not refused with {code}")


class Region:
    """A registered file, as in Triton's examples."""

    def __init__(self, client, name, size):
        self.client, self.name = client, name
        key = f"/posenc_triton_{os.getpid()}_{name}"
        self.handle = shm.create_shared_memory_region(name, key, size)
        client.register_system_shared_memory(name, key, size)

    def close(self):
        self.client.unregister_system_shared_memory(self.name)
        shm.destroy_shared_memory_region(self.handle)


def rotate(client, native, dtype, datatype):
    q, k = numbers((2, 16, 4, 128), dtype), numbers((2, 16, 1, 128), dtype)
    expected = native.apply_rope(q, k, rope=PRESET, positions=5, layout="bshd")
    inputs = Region(client, "in", q.nbytes + k.nbytes)
    outputs = Region(client, "out", q.nbytes + k.nbytes)
    try:
        shm.set_shared_memory_region(inputs.handle, [q, k])
        tensors, wanted = [], []
        for name, array, offset in (("q", q, 0), ("k", k, q.nbytes)):
            tensor = triton.InferInput(name, list(array.shape), datatype)
            tensor.set_shared_memory("in", array.nbytes, offset)
            tensors.append(tensor)
            output = triton.InferRequestedOutput(name)
            output.set_shared_memory("out", array.nbytes, offset)
            wanted.append(output)
        done = client.infer("apply_rope", tensors, outputs=wanted, parameters=PARAMETERS)
        for index, (name, array, offset) in enumerate((("q", q, 0), ("k", k, q.nbytes))):
            told = done.get_output(name)
            got = shm.get_contents_as_numpy(outputs.handle, dtype, told.shape, offset)
            same(got, expected[index], f"{name} {datatype}, out of place")
        # In place: the output has the input's place.
        for output in wanted:
            output.unset_shared_memory()
        wanted[0].set_shared_memory("in", q.nbytes, 0)
        wanted[1].set_shared_memory("in", k.nbytes, q.nbytes)
        client.infer("apply_rope", tensors, outputs=wanted, parameters=PARAMETERS)
        same(shm.get_contents_as_numpy(inputs.handle, dtype, q.shape), expected[0],
             f"q {datatype}, in place")
        # Mixed: k is sent by wire, and q is in the answer.
        shm.set_shared_memory_region(inputs.handle, [q])
        tensors[1] = triton.InferInput("k", list(k.shape), datatype)
        tensors[1].set_data_from_numpy(k)
        done = client.infer("apply_rope", tensors, parameters=PARAMETERS)
        same(done.as_numpy("q"), expected[0], f"q {datatype}, mixed")
        same(done.as_numpy("k"), expected[1], f"k {datatype}, mixed")
    finally:
        inputs.close()
        outputs.close()


def shared_rotation(of, shape, size, at):
    """Returns the arguments of a rotation from the place `at` of the inputs to a place after all
    inputs."""
    tensor = of.InferInput("k", list(shape), "FP32")
    tensor.set_shared_memory("many", size, size * at)
    output = of.InferRequestedOutput("k")
    output.set_shared_memory("many", size, size * (CALLS + at))
    return {"inputs": [tensor], "outputs": [output],
            "parameters": {**PARAMETERS, "positions.start": at}}


def many_at_once(client, address, native):
    """Asyncio calls, and a stream whose seventh request names no region."""
    all_k = numbers((CALLS, 1, 8, 2, 128))
    size, shape = all_k[0].nbytes, all_k[0].shape
    expected = [native.apply_rope(None, k, rope=PRESET, positions=at, layout="bshd")[1]
                for at, k in enumerate(all_k)]
    region = Region(client, "many", 2 * CALLS * size)

    def clear():
        shm.set_shared_memory_region(region.handle, [all_k, np.zeros_like(all_k)])

    def check(at, what):
        same(shm.get_contents_as_numpy(region.handle, np.float32, shape, size * (CALLS + at)),
             expected[at], f"{what} {at}")

    async def with_asyncio():
        async with triton_aio.InferenceServerClient(address) as other:
            await asyncio.gather(*(other.infer("apply_rope", **shared_rotation(triton_aio, shape, size, at))
                                   for at in range(CALLS)))

    try:
        clear()
        asyncio.run(with_asyncio())
        for at in range(CALLS):
            check(at, "asyncio")
        clear()
        answers = queue.Queue()
        client.start_stream(callback=lambda result, error: answers.put((result, error)))
        for at in range(CALLS):
            call = shared_rotation(triton, shape, size, at)
            if at == 7:
                call["inputs"][0].set_shared_memory("none", size)
            client.async_stream_infer("apply_rope", request_id=str(at), **call)
        for at in range(CALLS):
            result, error = answers.get(timeout=60)
            if at == 7:
                assert "shared_memory_region" in error.message(), error
                continue
            assert error is None, error
            assert result.get_response().id == str(at)
            check(at, "answer of the stream")
        client.stop_stream()
    finally:
        region.close()


def small_inputs(client, native):
    k, positions = numbers((1, 5, 2, 128)), np.array([3, 1, 4, 1, 5])
    _, expected = native.apply_rope(None, k, rope=PRESET, positions=positions, layout="bshd")
    region = Region(client, "ids", positions.nbytes)
    try:
        shm.set_shared_memory_region(region.handle, [positions])
        ids = triton.InferInput("positions", [5], "INT64")
        ids.set_shared_memory("ids", positions.nbytes)
        tensor = triton.InferInput("k", list(k.shape), "FP32")
        tensor.set_data_from_numpy(k)
        done = client.infer("apply_rope", [tensor, ids],
                            parameters={"rope.preset": PRESET, "layout": "bshd"})
        same(done.as_numpy("k"), expected, "positions in a region")
    finally:
        region.close()


def questions(client):
    assert "system_shared_memory" in client.get_server_metadata().extensions
    region = Region(client, "asked", 4096)
    status = client.get_system_shared_memory_status()
    assert status.regions["asked"].byte_size == 4096
    refused(lambda: client.register_system_shared_memory("asked", "/none", 1), "NOT_FOUND")
    refused(lambda: client.get_system_shared_memory_status("other"), "NOT_FOUND")
    client.unregister_system_shared_memory()
    assert not client.get_system_shared_memory_status().regions
    region.close()


def main(address):
    client = triton.InferenceServerClient(address)
    with posenc.Client(address) as native:
        rotate(client, native, np.float32, "FP32")
        rotate(client, native, np.float16, "FP16")
        many_at_once(client, address, native)
        small_inputs(client, native)
    questions(client)
    print("tritonclient: system shared memory, sync, asyncio and stream, agrees with the native RPCs "
          "bit for bit")


main(sys.argv[1])
