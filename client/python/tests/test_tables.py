"""Tables in the caller's memory equal tables in new memory. No other bytes of the caller's memory are written."""

import asyncio
import os

import numpy
import posenc
import pytest
from conftest import start
from posenc import messages
from posenc.wire import decode

SPEC = {"pairing": "half_split", "rotary_dim": 8}
BY_HEAD = {"pairing": "half_split", "rotary_dim": 4, "explicit_frequencies": {"heads": 3, "values": [1, 2, 3, 4, 5, 6]}}
LEARNED = numpy.arange(12, dtype=numpy.float32).reshape(4, 3)
FOURIER = numpy.array([[0.5, 2, 1]], numpy.float32)
KINDS = {
    "half": {"rope": SPEC, "positions": 3, "rows": 5},
    "duplicated": {"rope": SPEC, "positions": 3, "rows": 5, "layout": "duplicated", "dtype": "float16"},
    "repeated": {"rope": SPEC, "positions": 3, "rows": 5, "layout": "pair_repeated"},
    "complex": {"rope": SPEC, "positions": 3, "rows": 5, "layout": "complex", "dtype": "float64"},
    "by_head": {"rope": BY_HEAD, "positions": 3, "rows": 5},
    "ids": {"rope": SPEC, "positions": [9, 2, 4]},
    "packed": {"rope": SPEC, "positions": posenc.packed([0, 2, 5])},
    "grid": {"absolute": {"sincos_grid": {"dim": 8, "extents": [2, 3], "leading_zero_rows": 1}}},
    "sinusoidal": {"absolute": {"sinusoidal": {"dim": 7, "order": "sin_cos"}}, "positions": 1, "rows": 2},
    "timestep": {"absolute": {"timestep": {"dim": 6}}, "positions": 1, "rows": 2},
    "learned": {"absolute": {"learned": {"table": LEARNED}}, "positions": 1, "rows": 2},
    "fourier": {"absolute": {"fourier_features": {"frequencies": FOURIER}}, "positions": 1, "rows": 2},
}


def arrays(table):
    return table if isinstance(table, tuple) else (table,)


def same(one, other):
    return all((a == b).all() and a.shape == b.shape and a.dtype == b.dtype for a, b in zip(arrays(one), arrays(other)))


@pytest.fixture
def sharing(shared_server):
    with posenc.Client(shared_server.socket) as client:
        yield client


@pytest.fixture
def sent(monkeypatch):
    """The methods and messages of all calls, in the order of the calls."""
    calls = []
    for kind in ("_unary", "_stream"):
        run = getattr(posenc.Client, kind)

        def noted(client, method, pieces, *rest, run=run):
            calls.append((method, b"".join(pieces)))
            return run(client, method, pieces, *rest)

        monkeypatch.setattr(posenc.Client, kind, noted)
    return calls


def views(region, like):
    """Returns views for the arrays of a table, at multiples of 4096 bytes."""
    return tuple(region.array(each.shape, each.dtype, 4096 * i) for i, each in enumerate(arrays(like)))


def given(outs):
    return outs if len(outs) == 2 else outs[0]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_of_every_kind_go_to_their_places(sharing, sent, kind):
    wire = sharing.build_table(**KINDS[kind])
    with sharing.shared_region(8192) as region:
        memory = region.array(2048, "int32")
        memory[:] = 7
        outs = views(region, wire)
        table = sharing.build_table(**KINDS[kind], out=given(outs))
        assert all(one is other for one, other in zip(arrays(table), outs)) and same(table, wire)
        ends = [4096 * i + each.nbytes for i, each in enumerate(outs)]
        assert all(memory.view("uint8")[end] in (0, 7) and memory[-(-end // 4)] == 7 for end in ends)
        request = decode(messages.BuildTableRequest, sent[-1][1])
        places = request.cos_output, request.sin_output, request.table_output
        assert [place.offset for place in places if place] == [4096 * i for i in range(len(outs))]
        if isinstance(table, tuple):
            assert table.amplitude == wire.amplitude


def test_a_table_in_shared_memory_is_no_large_answer(posencd, tmp_path, sent):
    prefix = f"/dev/shm/posenc-test-python-{os.getpid()}-small-"
    flags = ["--listen", f"unix:{tmp_path}/socket", "--shared-memory-prefix", prefix, "--max-response-bytes", "4KiB"]
    process, _ = start(posencd, tmp_path, *flags)
    try:
        with posenc.Client(f"unix:{tmp_path}/socket") as client, client.shared_region(2 * 300 * 256) as region:
            outs = region.array((300, 64)), region.array((300, 64), offset=300 * 256)
            # Only the server knows the size of a preset's table, so that table comes as bytes.
            for rope, methods in (
                ({**SPEC, "rotary_dim": 128}, ["BuildTable"]),
                ("llama-2-7b", ["BuildTable", "BuildTableStream"]),
            ):
                wire = client.build_table(rope=rope, rows=300)
                sent.clear()
                table = client.build_table(rope=rope, rows=300, out=outs)
                assert table.cos is outs[0] and table.sin is outs[1] and same(table, wire)
                assert [method for method, _ in sent] == methods
                outs[0][:], outs[1][:] = 0, 0
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.parametrize("rows", [3, 20000])
def test_a_table_goes_to_arrays_of_the_callers_in_one_message_and_as_a_stream(client, rows):
    rope = client.rope("llama-2-7b")
    wire = rope.table(rows=rows)
    cos, sin = numpy.zeros((2, rows, 64), numpy.float32)
    table = rope.table(rows=rows, out=(cos, sin))
    assert table.cos is cos and table.sin is sin and same(table, wire)
    cos[:] = 0
    table = rope.table(rows=rows, out=(cos, None))
    assert table.cos is cos and same(table, wire)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_table_goes_to_tensors_of_torch(client, dtype):
    torch = pytest.importorskip("torch", reason="torch is not installed")
    element = getattr(torch, dtype)
    wire = client.build_table(rope=SPEC, rows=3, dtype=element)
    outs = torch.zeros((3, 4), dtype=element), torch.zeros((3, 4), dtype=element)
    assert client.build_table(rope=SPEC, rows=3, dtype=element, out=outs).cos is outs[0]
    assert torch.equal(outs[0], wire.cos) and torch.equal(outs[1], wire.sin)


def test_the_asyncio_client_fills_places_too(shared_server):
    async def fill():
        async with posenc.AsyncClient(shared_server.socket) as client:
            with await client.shared_region(8192) as region:
                wire = await client.build_table(rope=SPEC, rows=3)
                return same(await client.build_table(rope=SPEC, rows=3, out=views(region, wire)), wire)

    assert asyncio.run(fill())


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"out": numpy.zeros((3, 4), "f")}, r"out: must be a pair \(cos, sin\)"),
        ({"out": [numpy.zeros((3, 4), "f")]}, r"out: must be a pair \(cos, sin\)"),
        ({"layout": "complex", "out": (None, None)}, "out: is a pair; must be one array, as this table is"),
        ({"out": (numpy.zeros((1, 4), "f"), None)}, r"cos_output: has shape \[1, 4\]; must be \[3, 4\]"),
        ({"out": (None, numpy.zeros((3, 4)))}, r"sin_output: has dtype float64; must be float32"),
        ({"out": (numpy.zeros((3, 8), "f")[:, ::2], None)}, "cos_output: "),
        ({"rope": "llama-2-7b", "out": (numpy.zeros((3, 4), "f"), None)}, "cos_output: has 48 bytes; the result "),
        ({"rope": "llama-2-7b", "rows": 9999, "out": (numpy.zeros((3, 4), "f"), None)}, "cos_output: has 48 bytes; "),
    ],
)
def test_memory_that_does_not_fit_is_named(client, arguments, text):
    with pytest.raises(posenc.PosencError, match="^" + text) as error:
        client.build_table(**{"rope": SPEC, "rows": 3, **arguments})
    assert error.value.code == "INVALID_ARGUMENT" and text.startswith(error.value.field + ":")


def test_a_table_that_the_server_cannot_place_comes_as_bytes(shared_server, sharing):
    with posenc.Client(shared_server.address) as remote, sharing.shared_region(8192) as region:
        wire = remote.build_table(rope=SPEC, rows=3)
        remote._regions.append(region)  # the server refuses places from clients of this address
        assert same(remote.build_table(rope=SPEC, rows=3, out=views(region, wire)), wire)
