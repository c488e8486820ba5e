import asyncio
import inspect

import numpy
import oracle
import posenc
import pytest
from fake import info, serving

SPEC = {"pairing": "half_split"}


def run(body, target, **options):
    async def main():
        async with posenc.AsyncClient(target, **options) as client:
            return await asyncio.wait_for(body(client), 120)

    return asyncio.run(main())


@pytest.fixture
def x(random):
    return random.standard_normal((1, 600, 8, 64)).astype(numpy.float32)


def test_both_clients_have_the_same_methods_and_arguments():
    for blocking, asynchronous in ((posenc.Client, posenc.AsyncClient), (posenc.Rope, posenc.AsyncRope)):
        for name, method in inspect.getmembers(blocking, inspect.isfunction):
            if name.startswith("__"):
                continue
            other = getattr(asynchronous, name)
            assert list(inspect.signature(method).parameters.values()) == list(
                inspect.signature(other).parameters.values()
            ), name


def test_rotates_by_the_formula(target, x):
    async def body(client):
        rope = await client.rope({**SPEC, "rotary_dim": 64})
        return await rope.apply(x, x, start=9, layout="bshd")

    q, k = run(body, target)
    oracle.assert_near(q, oracle.rotate(x, numpy.arange(9, 609)))
    assert (q == k).all()


def test_calls_run_at_the_same_time(target, x):
    async def body(client):
        calls = [client.apply_rope(x, rope=SPEC, positions=i, layout="bshd") for i in range(8)]
        return await asyncio.gather(*calls)

    for i, (q, _) in enumerate(run(body, target)):
        oracle.assert_near(q, oracle.rotate(x, numpy.arange(i, i + 600)))


def test_a_stream_gives_the_same_bytes(client, target, x):
    async def body(streaming):
        return await streaming.reposition(x, rope=SPEC, shift=5, layout="bshd")

    moved = run(body, target, stream_above_bytes=0)
    assert (moved == client.reposition(x, rope=SPEC, shift=5, layout="bshd")).all()


def test_builds_tables_and_biases(target):
    async def body(client):
        cos, sin = await client.build_table(rope={**SPEC, "rotary_dim": 64}, rows=10000)
        bias = await client.build_bias({"alibi": {"heads": 2}}, query_length=3, key_length=4)
        return cos, sin, bias, (await client.get_server_info()).version

    cos, sin, bias, version = run(body, target)
    assert cos.shape == sin.shape == (10000, 32) and bias.shape == (2, 3, 4) and version


def test_errors_are_the_same(client, target):
    async def body(asynchronous):
        await asynchronous.resolve("no-such", request_id="mine")

    with pytest.raises(posenc.PosencError) as one:
        run(body, target)
    with pytest.raises(posenc.PosencError) as other:
        client.resolve("no-such", request_id="mine")
    assert one.value.__dict__ == other.value.__dict__ and str(one.value) == str(other.value)


def test_a_server_that_is_away_is_named():
    async def body(client):
        await client.get_server_info()

    with pytest.raises(posenc.PosencError, match="127.0.0.1:1"):
        run(body, "127.0.0.1:1", timeout=2)


def test_a_stream_without_progress_ends(x):
    import threading

    stuck = threading.Event()

    def silent(requests, context):
        stuck.wait(30)
        yield b""

    async def body(client):
        await client.apply_rope(x, rope=SPEC, positions=0, layout="bshd")

    with serving({"GetServerInfo": info(), "ApplyRopeStream": silent}) as (_, address):
        with pytest.raises(posenc.PosencError, match="no progress"):
            run(body, address, timeout=1, stream_above_bytes=0)
        stuck.set()


def test_a_cancelled_call_ends(target, x):
    async def body(client):
        task = asyncio.ensure_future(client.apply_rope(x, rope=SPEC, positions=0, layout="bshd"))
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        run(body, target)
