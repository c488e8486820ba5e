"""Rotations as streams give the same bytes as the unary call, wherever the messages are cut."""

import asyncio
import dataclasses
import itertools
import threading
import time

import numpy
import oracle
import posenc
import pytest
from conftest import start
from fake import bytes_of, rejoining, serving
from posenc import messages as m
from posenc import streams
from posenc.channels import Call
from posenc.wire import decode

SPEC = {"pairing": "half_split"}
AXES = {**SPEC, "rotary_dim": 16, "axes": {"assignment": "sectioned", "sections": [3, 5]}}
LAYOUTS = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3), "sbhd": (1, 0, 2, 3)}


@pytest.fixture(scope="module")
def cutting(target):
    """The address of a server that joins the messages of a stream, and makes the unary call to the real server.
    This server cuts the answer at random bytes."""
    with posenc.Client(target) as real:
        rotations = [("ApplyRope", m.ApplyRopeStreamRequest), ("Reposition", m.RepositionStreamRequest)]
        with serving({f"{name}Stream": rejoining(real, name, request) for name, request in rotations}) as (_, address):
            yield address


@pytest.fixture(params=["posencd", "cutting"])
def streaming(request, target, cutting, random, monkeypatch):
    """A client that sends all rotations as streams, in messages of random sizes."""
    monkeypatch.setattr(streams, "CHUNK_BYTES", 64 * int(random.integers(1, 40)))
    monkeypatch.setattr(streams, "SMALL_BYTES", int(random.integers(0, 200)))
    with posenc.Client(target if request.param == "posencd" else cutting, stream_above_bytes=0) as client:
        yield client


@pytest.mark.parametrize("layout", [*LAYOUTS, "thd"])
@pytest.mark.parametrize("form", ["start", "row", "rows", "starts", "fractions", "axes"])
def test_a_stream_gives_the_same_bytes(client, streaming, random, layout, form):
    q = random.standard_normal((3, 33, 4, 16)).astype(numpy.float32)
    k = random.standard_normal((3, 33, 2, 16)).astype(numpy.float16)
    q, k = (
        x.reshape(99, -1, 16) if layout == "thd" else numpy.ascontiguousarray(x.transpose(LAYOUTS[layout]))
        for x in (q, k)
    )
    tokens = 99 if layout == "thd" else 33
    if layout == "thd" and form in ("rows", "starts"):
        positions = posenc.packed([0, 40, 40, 99], starts=[5, 6, 7])
    else:
        positions = {
            "start": 12,
            "row": random.integers(0, 1000, tokens),
            "rows": random.integers(0, 1000, (3, 33)),
            "starts": {"starts": [0, 10, 20]},
            "fractions": random.random(tokens),
            "axes": random.integers(0, 1000, (2, tokens)),
        }[form]
    arguments = {"rope": AXES if form == "axes" else SPEC, "positions": positions, "layout": layout}
    for actual, expected in zip(streaming.apply_rope(q, k, **arguments), client.apply_rope(q, k, **arguments)):
        assert actual.tobytes() == expected.tobytes() and actual.dtype == expected.dtype


@pytest.mark.parametrize("dtype", ["float64", "bfloat16", "float8_e4m3fn"])
@pytest.mark.parametrize("form", ["shift", "shifts", "moved"])
def test_a_stream_repositions_every_dtype(client, streaming, random, dtype, form):
    k = random.standard_normal((2, 50, 2, 16)).astype(posenc.tensor.numpy_dtype(posenc.Dtype[dtype.upper()]))
    ids = random.integers(-100, 100, (2, 2, 50))
    movement = {"shift": {"shift": 7}, "shifts": {"shift": ids[0]}}.get(form)
    movement = movement or {"old_positions": ids[0], "new_positions": ids[1]}
    arguments = {"rope": SPEC, "layout": "bshd", "saturation": "finite", **movement}
    moved = streaming.reposition(k, **arguments)
    assert moved.tobytes() == client.reposition(k, **arguments).tobytes()


def test_a_stream_writes_to_the_callers_memory_also_to_the_inputs(client, streaming, random):
    q, k = random.standard_normal((2, 1, 40, 2, 16))
    expected = client.apply_rope(q, k, rope=SPEC, positions=3, layout="bshd")
    result = streaming.apply_rope(q, k, rope=SPEC, positions=3, layout="bshd", out=(q, k))
    assert result[0] is q and result[1] is k and (q == expected[0]).all() and (k == expected[1]).all()


@pytest.mark.parametrize("kind", ["numpy", "torch"])
@pytest.mark.parametrize("outs", [(1000, 0), (1000, None), (None, 0), (1, None), (500, None)])
def test_a_stream_reads_its_inputs_before_a_result_is_written_over_them(client, random, outs, kind):
    # q is the first 1000 rows (8 MiB), and k the next 1000 rows. This is more than gRPC sends before answers are read.
    memory = random.standard_normal((2500, 8, 128))
    q, k, *out = (None if row is None else memory[None, row : row + 1000] for row in (0, 1000, *outs))
    expected = client.apply_rope(q, k, rope=SPEC, positions=3, layout="bshd")
    if kind == "torch":
        torch = pytest.importorskip("torch", reason="torch is not installed")
        q, k, *out = (None if each is None else torch.from_numpy(each) for each in (q, k, *out))
    result = client.apply_rope(q, k, rope=SPEC, positions=3, layout="bshd", out=out)
    for actual, right, own in zip(result, expected, out):
        assert (numpy.asarray(actual) == right).all() and (own is None or actual is own)


def test_a_tensor_without_elements_has_no_bytes(client, streaming):
    empty, one = numpy.zeros((1, 5, 0, 8)), numpy.ones((1, 5, 1, 8))
    q, k = streaming.apply_rope(empty, one, rope=SPEC, positions=1, layout="bshd")
    assert q.shape == empty.shape and (k == client.apply_rope(one, rope=SPEC, positions=1, layout="bshd")[0]).all()


def test_faults_of_the_description_are_told_as_by_the_unary_call(streaming, random):
    x = random.standard_normal((1, 600, 2, 16)).astype(numpy.float32)
    with pytest.raises(posenc.PosencError) as caught:
        streaming.apply_rope(x, rope=SPEC, positions=[1, 2, 3], layout="bshd")
    assert (caught.value.code, caught.value.reason) == ("INVALID_ARGUMENT", "SHAPE_MISMATCH")


def test_a_stream_of_16_mib_is_right_at_its_default_chunks(client, random):
    x = random.standard_normal((1, 1100, 32, 128)).astype(numpy.float32)
    rotated, _ = client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")
    oracle.assert_near(rotated, oracle.rotate(x, numpy.arange(1100)))


def test_what_is_over_the_servers_limit_goes_as_a_stream(posencd, tmp_path, random):
    process, address = start(posencd, tmp_path, "--max-request-bytes", "1MiB", "--max-response-bytes", "1MiB")
    try:
        with posenc.Client(address, stream_above_bytes=1 << 30) as client:
            x = random.standard_normal((1, 600, 8, 128)).astype(numpy.float32)
            rotated, _ = client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")
            oracle.assert_near(rotated, oracle.rotate(x, numpy.arange(600)))
            cos, sin = client.build_table(rope={**SPEC, "rotary_dim": 128}, rows=5000)
            oracle.assert_near(sin, numpy.sin(oracle.angles(numpy.arange(5000), 128)))
    finally:
        process.terminate()
        process.wait(60)


def test_a_stream_announces_its_largest_message_and_asks_nothing_before():
    sizes = []

    def echo(requests, context):
        for request in requests:
            sizes.append(len(request))
            data = decode(m.ApplyRopeStreamRequest, request).data
            yield bytes_of(m.ApplyRopeStreamResponse(data=data))

    x = numpy.ones((1, 9000, 4, 64), numpy.float32)
    with serving({"ApplyRopeStream": echo}) as (fake, address), posenc.Client(address) as client:
        assert (client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")[0] == x).all()
    (method, metadata, _), = fake.calls
    assert method == "ApplyRopeStream" and len(sizes) == 6
    assert max(sizes) <= int(metadata["posenc-message-bytes"]) <= max(sizes) + 16 < 4 << 20


@pytest.mark.parametrize("count, said", [(0, "bytes of the tensors are missing"), (2, "more bytes than the tensors")])
def test_an_answer_of_other_bytes_than_the_tensors_is_internal(count, said):
    x = numpy.ones((1, 4, 2, 8), numpy.float32)
    answers = [bytes_of(m.ApplyRopeStreamResponse(data=x.tobytes()))] * count
    with serving({"ApplyRopeStream": lambda requests, context: iter(answers)}) as (_, address):
        with posenc.Client(address, stream_above_bytes=0) as client:
            with pytest.raises(posenc.PosencError, match=f"the server's answer does not fit: .*{said}") as caught:
                client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")
    assert caught.value.code == "INTERNAL"


# ---- Streams that the client itself would not send ----------------------------

ROPE = m.RopeSource(spec=m.RopeSpec(pairing=m.Pairing.HALF_SPLIT))


@pytest.fixture(
    params=[
        m.ApplyRopeRequest(rope=ROPE, positions=m.Positions(start=0), layout=m.Layout.BSHD),
        m.RepositionRequest(old_rope=ROPE, movement=m.Movement(shift=1), layout=m.Layout.BSHD),
    ],
    ids=["ApplyRopeStream", "RepositionStream"],
)
def rotation(request):
    """The name of a stream's method, and a function that makes its request messages. A message has `count` bytes of
    data. If `shape` is given, the message also has a description with a tensor k of this shape."""
    method = type(request.param).__name__.replace("Request", "Stream")

    def message(count, shape=None):
        tensor = m.Tensor(dtype=m.Dtype.FLOAT32, shape=shape or [])
        call = None if shape is None else dataclasses.replace(request.param, k=tensor)
        return bytes_of(getattr(m, method + "Request")(call=call, data=bytes(count)))

    return method, message


SMALL = [1, 2, 1, 4]  # 32 bytes


@pytest.mark.parametrize(
    "sent, reason, field, facts",
    [
        ([], "FIELD_REQUIRED", "", {}),
        ([(16,)], "FIELD_REQUIRED", "call", {"messageIndex": "0"}),
        ([(16, SMALL), (16, SMALL)], "FIELD_INVALID", "call", {"messageIndex": "1"}),
        ([(16, SMALL)], "TENSOR_SIZE_MISMATCH", "data", {"expectedBytes": "32", "actualBytes": "16"}),
        ([(16, SMALL), (16,), (4,)], "TENSOR_SIZE_MISMATCH", "data", {"expectedBytes": "32"}),
        ([(16, SMALL), (3,), (13,)], "FIELD_INVALID", "data", {"messageIndex": "1"}),
    ],
    ids=["empty", "undescribed", "described twice", "short", "long", "cut inside of an element"],
)
def test_a_faulty_stream_is_refused_by_its_field(watched, rotation, sent, reason, field, facts):
    method, message = rotation
    with posenc.Client(watched.address) as client, pytest.raises(posenc.InvalidArgumentError) as caught:
        client._stream(method, [message(*each) for each in sent], [].append, Call())
    error = caught.value
    assert (error.code, error.reason, error.field) == ("INVALID_ARGUMENT", reason, field)
    assert facts.items() <= error.metadata.items() and watched.claims_nothing()


LARGE = [1, 1 << 13, 32, 128]  # 128 MiB: more than a server reads ahead


def stalling(message):
    """Yields one message with a description and data, and then waits longer than the timeout of any test."""
    yield message(1 << 20, LARGE)
    time.sleep(5)


def endless(message):
    yield message(0, LARGE)
    yield from itertools.repeat(message(1 << 20), 128)


@pytest.mark.parametrize("timeout, said", [(None, "no progress for 1 s"), (1, "the timeout is over")])
@pytest.mark.parametrize("requests, read", [(stalling, 0), (endless, 2)], ids=["stalling sender", "idle reader"])
def test_a_stream_that_stands_still_ends_and_holds_nothing(watched, rotation, requests, read, timeout, said):
    method, message = rotation
    with posenc.Client(watched.address, timeout=1) as client:
        with pytest.raises(posenc.DeadlineExceededError, match=said):
            client._stream(method, requests(message), lambda answer: time.sleep(read), Call(timeout=timeout))
        assert watched.claims_nothing() and client.get_server_info().version


@pytest.mark.parametrize("name, moved", [("apply_rope", {"positions": 1}), ("reposition", {"shift": 1})])
def test_a_stream_that_is_cancelled_in_the_middle_ends_at_once(watched, name, moved):
    x = numpy.ones(LARGE, numpy.float32)

    async def cancelled():
        async with posenc.AsyncClient(watched.address) as client:
            call = asyncio.ensure_future(getattr(client, name)(x, rope=SPEC, layout="bshd", out=x, **moved))
            while x[0, 0, 0, 0] == 1 and not call.done():  # waits for the first answer
                await asyncio.sleep(0.001)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert x[0, -1, -1, -1] == 1 and watched.claims_nothing()
            return await client.get_server_info()

    assert asyncio.run(cancelled()).version


def test_a_stream_ends_when_its_client_is_closed():
    waiting, stuck = threading.Event(), threading.Event()

    def silent(requests, context):
        next(requests)
        waiting.set()
        stuck.wait(30)
        yield b""

    x = numpy.ones((1, 9000, 4, 64), numpy.float32)
    with serving({"ApplyRopeStream": silent}) as (_, address):
        client = posenc.Client(address)
        closing = threading.Thread(target=lambda: (waiting.wait(30), client.close()))
        closing.start()
        with pytest.raises(posenc.PosencError) as caught:
            client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")
        stuck.set()
        closing.join()
    assert caught.value.code == "CANCELLED" and isinstance(caught.value, posenc.errors.CancelledError)
