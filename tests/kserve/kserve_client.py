"""The published InferenceGRPCClient of kserve against posencd:
kserve_client.py ADDRESS."""

import asyncio
import sys

import grpc
import numpy as np
import posenc
from kserve import InferenceGRPCClient, InferInput, InferRequest

PRESET = "llama-3.1-8b"
PARAMETERS = {"rope.preset": PRESET, "positions.start": 9, "layout": "bshd"}


def request(array, datatype, binary, parameters=None):
    made = InferInput("k", list(array.shape), datatype)
    made.set_data_from_numpy(array, binary_data=binary)
    return InferRequest("apply_rope", [made], request_id="nine",
                        parameters=parameters or PARAMETERS)


async def main(address):
    client = InferenceGRPCClient(address)
    assert await client.is_server_live()
    assert await client.is_server_ready()
    assert await client.is_model_ready("apply_rope")
    rng = np.random.default_rng(7)
    with posenc.Client(address) as native:
        for dtype, datatype, binary in ((np.float32, "FP32", True), (np.float32, "FP32", False),
                                        (np.float16, "FP16", True), (np.float64, "FP64", True),
                                        (np.float64, "FP64", False)):
            k = rng.standard_normal((1, 8, 2, 128)).astype(dtype)
            done = await client.infer(request(k, datatype, binary))
            _, expected = native.apply_rope(None, k, rope=PRESET, positions=9, layout="bshd")
            assert done.id == "nine"
            ours = done.outputs[0].as_numpy()
            assert ours.dtype == expected.dtype
            assert ours.tobytes() == expected.tobytes(), (datatype, binary)
    # Its parameters cannot hold doubles, so numbers may be text.
    numbers = {"rope.spec.rope_theta": "10000.5", "rope.spec.pairing": "half_split",
               "positions.start": 0, "layout": "bshd"}
    assert (await client.infer(request(k, "FP64", True, numbers))).outputs[0].shape == [1, 8, 2, 128]
    try:
        await client.infer(request(k, "FP64", True, {**PARAMETERS, "layuot": "bshd"}))
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.INVALID_ARGUMENT
        assert "parameters.layuot" in error.details()
    else:
        raise AssertionError("not refused")
    await client.close()
    print("kserve: raw and typed contents agree with the native RPC bit for bit")


asyncio.run(main(sys.argv[1]))
