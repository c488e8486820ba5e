"""The published tritonclient against posencd: triton.py ADDRESS.

Compares each answer bit for bit with the native RPC's, from posenc's own
client in the same process.
"""

import asyncio
import json
import queue
import sys

import ml_dtypes
import numpy as np
import posenc
import tritonclient.grpc as triton
import tritonclient.grpc.aio as triton_aio
from tritonclient.utils import InferenceServerException

PRESET = "llama-3.1-8b"
DATATYPES = {"FP32": np.float32, "FP16": np.float16, "BF16": ml_dtypes.bfloat16,
             "FP64": np.float64}


def numbers(shape, dtype=np.float32):
    rng = np.random.default_rng(7)
    return rng.standard_normal(shape).astype(dtype)


def tensor(name, array, datatype=None, of=triton):
    names = {np.dtype(dtype): name for name, dtype in DATATYPES.items()}
    names |= {np.dtype(np.int64): "INT64", np.dtype(np.int32): "INT32"}
    made = of.InferInput(name, list(array.shape), datatype or names[array.dtype])
    made.set_data_from_numpy(array)
    return made


def same(ours, theirs, what):
    assert ours.dtype == theirs.dtype, f"{what}: {ours.dtype} and {theirs.dtype}"
    assert ours.shape == theirs.shape, f"{what}: {ours.shape} and {theirs.shape}"
    assert ours.tobytes() == theirs.tobytes(), f"{what}: bytes differ"


def refused(call, code, text):
    try:
        call()
    except InferenceServerException as error:
        assert error.status() == f"StatusCode.{code}", (error.status(), error.message())
        assert text in error.message(), error.message()
    else:
        raise AssertionError(f"not refused: {text}")


def rotate_in_every_type(client, native):
    for datatype, dtype in DATATYPES.items():
        q, k = numbers((2, 16, 4, 128), dtype), numbers((2, 16, 1, 128), dtype)
        expected = native.apply_rope(q, k, rope=PRESET, positions=100, layout="bshd")
        done = client.infer(
            "apply_rope", [tensor("q", q), tensor("k", k)], request_id="one",
            outputs=[triton.InferRequestedOutput("k"), triton.InferRequestedOutput("q")],
            parameters={"rope.preset": PRESET, "positions.start": 100, "layout": "bshd"})
        assert done.get_response().id == "one"
        assert [each.name for each in done.get_response().outputs] == ["k", "q"]
        same(done.as_numpy("q"), expected[0], f"q {datatype}")
        same(done.as_numpy("k"), expected[1], f"k {datatype}")


def positions_as_a_tensor(client, native):
    k = numbers((1, 5, 2, 128))
    for positions in (np.array([3, 1, 4, 1, 5]), np.array([3, 1, 4, 1, 5], np.int32),
                      np.array([0.5, 1, 1.5, 2, 2.5], np.float32)):
        _, expected = native.apply_rope(None, k, rope=PRESET, positions=positions, layout="bshd")
        done = client.infer("apply_rope", [tensor("k", k), tensor("positions", positions)],
                            parameters={"rope.preset": PRESET, "layout": "bshd"})
        same(done.as_numpy("k"), expected, f"positions of {positions.dtype}")
    large = np.array([2**40] * 5)
    refused(lambda: client.infer("apply_rope", [tensor("k", k), tensor("positions", large)],
                                 parameters={"rope.preset": PRESET, "layout": "bshd"}),
            "OUT_OF_RANGE", "positions")


def other_models(client, native):
    k = numbers((1, 6, 2, 128), np.float16)
    done = client.infer("reposition", [tensor("k", k)],
                        parameters={"old_rope": json.dumps({"preset": PRESET}),
                                    "movement.shift": -5, "layout": "bshd"})
    same(done.as_numpy("k"), native.reposition(k, rope=PRESET, shift=-5, layout="bshd"),
         "reposition")

    done = client.infer("build_table", [], parameters={
        "rope.preset": PRESET, "positions.start": 0, "rows": 100, "layout": "duplicated"})
    cos, sin = native.build_table(rope=PRESET, rows=100, layout="duplicated")[:2]
    same(done.as_numpy("cos"), cos, "cos")
    same(done.as_numpy("sin"), sin, "sin")
    assert done.get_response().parameters["amplitude"].double_param == 1

    done = client.infer("build_bias", [], parameters={
        "bias.alibi.heads": 8, "query_length": 3, "key_length": 7, "query_start": 4})
    same(done.as_numpy("bias"),
         native.build_bias({"alibi": {"heads": 8}}, query_length=3, key_length=7, query_start=4),
         "bias")

    done = client.infer("resolve_rope", [], parameters={"rope.preset": PRESET})
    resolved = native.resolve(PRESET)
    same(done.as_numpy("inv_freq"), np.array(resolved.inv_freq), "inv_freq")
    parameters = done.get_response().parameters
    assert parameters["content_hash"].string_param == resolved.content_hash
    assert json.loads(parameters["spec"].string_param)["rope_theta"] == resolved.spec.rope_theta


def errors(client):
    k = numbers((1, 2, 1, 128))
    good = {"rope.preset": PRESET, "positions.start": 0, "layout": "bshd"}

    def infer(parameters, **arguments):
        return client.infer("apply_rope", [tensor("k", k)], parameters=parameters, **arguments)

    refused(lambda: infer({**good, "layuot": "bshd"}), "INVALID_ARGUMENT",
            "parameters.layuot: the request has no such field")
    refused(lambda: infer({**good, "rope.preset": "none"}), "NOT_FOUND", "none")
    refused(lambda: infer(good, sequence_id=5), "INVALID_ARGUMENT", "sequence_id")
    refused(lambda: infer(good, timeout=1), "DEADLINE_EXCEEDED", "timeout")
    refused(lambda: infer(good, model_version="2"), "NOT_FOUND", "model_version")
    refused(lambda: infer(good, outputs=[triton.InferRequestedOutput("k", class_count=2)]),
            "INVALID_ARGUMENT", "classification")
    refused(lambda: infer(good, compression_algorithm="gzip"), "UNIMPLEMENTED", "")
    refused(lambda: client.infer("rope", [tensor("k", k)]), "NOT_FOUND", "apply_rope")
    refused(lambda: client.load_model("apply_rope"), "UNIMPLEMENTED", "built in")
    assert infer(good, priority=1, timeout=10_000_000,
                 headers={"posenc-message-bytes": "100000"}).as_numpy("k") is not None


def questions(client):
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("apply_rope") and not client.is_model_ready("none")
    assert client.get_server_metadata().name == "posenc"
    metadata = client.get_model_metadata("apply_rope")
    assert [each.name for each in metadata.inputs] == ["q", "k", "positions"]
    config = client.get_model_config("apply_rope").config
    assert [each.name for each in config.input] == ["q", "k", "positions"]
    assert len(client.get_model_repository_index().models) == 10
    before = client.get_inference_statistics("build_table").model_stats[0].inference_count
    client.infer("build_table", [], parameters={
        "rope.preset": PRESET, "positions.start": 0, "rows": 1})
    after = client.get_inference_statistics("build_table").model_stats[0].inference_count
    assert after == before + 1, (before, after)


def stream(client, native):
    """Twenty requests, the seventh with an error."""
    answers = queue.Queue()
    client.start_stream(callback=lambda result, error: answers.put((result, error)))
    k = numbers((1, 4, 2, 128))
    for i in range(20):
        parameters = {"rope.preset": PRESET, "positions.start": i, "layout": "bshd"}
        if i == 7:
            parameters["layuot"] = "bshd"
        client.async_stream_infer("apply_rope", [tensor("k", k)], request_id=str(i),
                                  parameters=parameters)
    for i in range(20):
        result, error = answers.get(timeout=60)
        if i == 7:
            assert "layuot" in error.message()
            continue
        assert error is None, error
        assert result.get_response().id == str(i)
        _, expected = native.apply_rope(None, k, rope=PRESET, positions=i, layout="bshd")
        same(result.as_numpy("k"), expected, f"answer {i} of the stream")
    client.stop_stream()


async def with_asyncio(address, native):
    k = numbers((1, 4, 2, 128))
    async with triton_aio.InferenceServerClient(address) as client:
        done = await asyncio.gather(*(
            client.infer("apply_rope", [tensor("k", k, of=triton_aio)],
                         parameters={"rope.preset": PRESET, "positions.start": i,
                                     "layout": "bshd"}) for i in range(16)))
        for i, each in enumerate(done):
            _, expected = native.apply_rope(None, k, rope=PRESET, positions=i, layout="bshd")
            same(each.as_numpy("k"), expected, f"asyncio {i}")


def large(client, native):
    q = numbers((1, 4096, 16, 128))  # 32 MiB
    expected, _ = native.apply_rope(q, None, rope=PRESET, positions=0, layout="bshd")
    done = client.infer("apply_rope", [tensor("q", q)],
                        parameters={"rope.preset": PRESET, "positions.start": 0,
                                    "layout": "bshd"})
    same(done.as_numpy("q"), expected, "32 MiB")


def main(address):
    client = triton.InferenceServerClient(address)
    with posenc.Client(address) as native:
        rotate_in_every_type(client, native)
        positions_as_a_tensor(client, native)
        other_models(client, native)
        large(client, native)
        stream(client, native)
        asyncio.run(with_asyncio(address, native))
    errors(client)
    questions(client)
    print("tritonclient: sync, asyncio and stream agree with the native RPCs bit for bit")


main(sys.argv[1])
