"""reposition() moves keys inside a paged cache exactly as it moves the same keys outside of the cache."""

import re

import ml_dtypes  # noqa: F401, numpy's bfloat16
import numpy
import posenc
import posenc.client
import pytest
from conftest import ROOT
from posenc import blocks
from posenc.arrays import borrow
from posenc.messages import Dtype, Tensor

SPEC = {"pairing": "half_split"}
BLOCKS, SIZE, HEADS, DIM = 7, 4, 2, 16
TABLE, LENGTHS = numpy.array([[5, 0, 3], [2, 6, -1]], numpy.int32), [10, 7]


def keys(cache, dimensions):
    """Views the keys as [block, token of the block, head, channel]."""
    if "K" in dimensions:
        cache = numpy.take(cache, 0, dimensions.index("K"))
        dimensions = dimensions.replace("K", "")
    return cache.transpose([dimensions.index(letter) for letter in "BTHD"])


def make(random, dimensions, dtype=numpy.float32):
    extent = {"B": BLOCKS, "T": SIZE, "H": HEADS, "K": 2, "D": DIM}
    return random.standard_normal([extent[letter] for letter in dimensions]).astype(dtype)


@pytest.fixture(params=["table", "slots"])
def places(request):
    if request.param == "table":
        return {"block_table": TABLE, "lengths": LENGTHS}
    slots = (TABLE[:, :, None] * SIZE + numpy.arange(SIZE)).reshape(2, -1)[:, : max(LENGTHS)]
    return {"slots": numpy.where(numpy.arange(max(LENGTHS)) < numpy.array(LENGTHS)[:, None], slots, -1)}


@pytest.mark.parametrize("name, dimensions", [("vllm_split", "KBTHD"), ("vllm_packed", "BTHKD"), ("BHTD", "BHTD")])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_moves_the_keys_of_the_tokens_and_nothing_else(client, random, name, dimensions, dtype, places):
    cache = make(random, dimensions, dtype)
    expected = cache.copy()
    rows = keys(cache, dimensions)
    for row, length in zip(TABLE, LENGTHS):
        at = [(row[t // SIZE], t % SIZE) for t in range(length)]
        gathered = numpy.stack([rows[i] for i in at])[None]
        moved = client.reposition(gathered, rope=SPEC, shift=-3, layout="bshd")[0]
        for (block, token), key in zip(at, moved):
            place = [slice(None)] * len(dimensions)
            place[dimensions.index("B")], place[dimensions.index("T")] = block, token
            if "K" in dimensions:
                place[dimensions.index("K")] = 0
            expected[tuple(place)] = key
    rope = client.rope({**SPEC, "rotary_dim": DIM})
    for call in (client.reposition, rope.reposition):
        source = {"rope": SPEC} if call == client.reposition else {}
        moved = call(cache, cache={"dimensions": name, **places}, shift=-3, **source)
        assert moved.tobytes() == expected.tobytes()


def test_a_cache_in_shared_memory_moves_in_place(shared_server, random):
    with posenc.Client(shared_server.socket) as client:
        cache = make(random, "KBTHD")
        layout = {"dimensions": "vllm_split", "block_table": TABLE, "lengths": LENGTHS}
        expected = client.reposition(cache, rope=SPEC, cache=layout, shift=5)
        with client.shared_region(cache.nbytes) as region:
            view = region.array(cache.shape)
            view[:] = cache
            client.reposition(view, rope=SPEC, cache=layout, shift=5, out=view)
            assert view.tobytes() == expected.tobytes() != cache.tobytes()


def test_a_large_cache_goes_as_a_stream(target, client, random):
    cache = make(random, "BHTD")
    layout = {"dimensions": "sglang_hnd", "block_table": TABLE, "lengths": LENGTHS}
    expected = client.reposition(cache, rope=SPEC, cache=layout, shift=5)
    with posenc.Client(target, stream_above_bytes=0) as streaming:
        assert streaming.reposition(cache, rope=SPEC, cache=layout, shift=5).tobytes() == expected.tobytes()


@pytest.mark.parametrize(
    "field, change",
    [
        ("cache.dimensions", {"dimensions": "vllm"}),
        ("cache.block_table", {"block_table": [[5, 0, 3], [2, 5, 1]]}),
        ("cache.lengths[1]", {"lengths": [10, 13]}),
        ("cache.slots", {"slots": [0]}),
        ("layout", {"layout": "bshd"}),
        ("cache.block", {"block": 1}),
    ],
)
def test_names_the_field_that_is_wrong(client, random, field, change):
    layout = {"dimensions": "vllm_split", "block_table": TABLE, "lengths": LENGTHS, **change}
    order = {"layout": layout.pop("layout")} if "layout" in layout else {}
    with pytest.raises(posenc.InvalidArgumentError) as error:
        client.reposition(make(random, "KBTHD"), rope=SPEC, cache=layout, shift=5, **order)
    assert error.value.field == field


def large(random, dimensions, kind):
    """Returns a cache of 21 blocks, of which less than half move."""
    return numpy.concatenate([make(random, dimensions, kind) for _ in range(3)], dimensions.index("B"))


def bytes_of(array):
    return bytes(borrow(array, "k").tensor.data)


@pytest.mark.parametrize(
    "name, dimensions", [("vllm_split", "KBTHD"), ("vllm_packed", "BTHKD"), ("sglang_hnd", "BHTD"), ("BTHD", "BTHD")]
)
@pytest.mark.parametrize("kind", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("to", ["new", "itself", "other"])
@pytest.mark.parametrize("stream_above", [0, 1 << 20])
def test_blocks_move_alone_as_in_the_whole_cache(
    target, client, random, name, dimensions, kind, to, stream_above, places, monkeypatch
):
    cache = large(random, dimensions, kind)
    layout = {"dimensions": name, **places}
    with monkeypatch.context() as patched:
        patched.setattr(posenc.client, "moved", lambda request, k: None)
        expected = bytes_of(client.reposition(cache, rope=SPEC, cache=layout, shift=5))
    assert expected != bytes_of(cache)
    out = {"new": None, "itself": cache, "other": numpy.zeros_like(cache)}[to]
    with posenc.Client(target, stream_above_bytes=stream_above) as other:
        moved = other.reposition(cache, rope=SPEC, cache=layout, shift=5, out=out)
    assert type(moved) is type(cache) and moved.shape == cache.shape and bytes_of(moved) == expected
    assert out is None or moved is out


def test_only_the_blocks_that_move_are_sent(watched, random, places):
    cache = large(random, "KBTHD", "float32")
    moved = cache.nbytes * len({5, 0, 3, 2, 6}) // 21
    for direction in ("received", "sent"):
        with posenc.Client(watched.address) as client:
            before = watched.metric(f'posenc_bytes_total{{direction="{direction}"}}')
            client.reposition(cache, rope=SPEC, cache={"dimensions": "vllm_split", **places}, shift=5)
            after = watched.metric(f'posenc_bytes_total{{direction="{direction}"}}')
        assert moved < after - before < moved + 1000


def test_an_error_has_the_numbers_of_the_whole_caches_blocks(client, random):
    cache = large(random, "KBTHD", "float32")
    layout = {"dimensions": "vllm_split", "block_table": [[15, 0], [2, 15]]}
    with pytest.raises(posenc.InvalidArgumentError, match="15") as error:
        client.reposition(cache, rope=SPEC, cache=layout, shift=5, out=cache)
    assert error.value.field == "cache.block_table"


@pytest.mark.parametrize(
    "field, places",
    [
        ("cache.block_table", {"block_table": Tensor(Dtype.INT32, [3], data=bytes(4))}),
        ("cache.block_table", {"block_table": Tensor(Dtype.INT32, [-1], data=bytes(4))}),
        ("cache.block_table", {"block_table": Tensor(Dtype.INT32, [1], values=[2.5])}),
        ("cache.block_table", {"block_table": numpy.zeros([2, 0], numpy.int32)}),
        ("cache.slots", {"slots": [5, -2]}),
    ],
    ids=["short", "negative extent", "no integer", "empty", "slot -2"],
)
def test_places_that_are_wrong_are_refused_by_their_field_if_few_blocks_move(client, random, field, places):
    with pytest.raises(posenc.InvalidArgumentError) as error:
        client.reposition(
            large(random, "KBTHD", "float32"), rope=SPEC, cache={"dimensions": "vllm_split", **places}, shift=5
        )
    assert error.value.field.startswith(field)


def test_a_result_may_overlap_the_cache(client, random):
    cache = large(random, "BHTD", "float32")
    pool = numpy.empty(cache.size + 1, numpy.float32)
    held, out = pool[:-1].reshape(cache.shape), pool[1:].reshape(cache.shape)
    held[:] = cache
    layout = {"dimensions": "BHTD", "block_table": TABLE, "lengths": LENGTHS}
    expected = client.reposition(cache, rope=SPEC, cache=layout, shift=5)
    client.reposition(held, rope=SPEC, cache=layout, shift=5, out=out)
    assert out.tobytes() == expected.tobytes()


def test_the_client_knows_the_layouts_of_the_documentation():
    rows = re.findall(r"^\| `(\w+)` \| `([A-Z]+)` \|", (ROOT / "docs" / "caches.md").read_text("utf-8"), re.M)
    known = {name: re.match("[^B]*B[^T]*T|[^B]*B", letters)[0] for name, letters in rows}
    assert blocks._LETTERS == known and len(known) == 6
