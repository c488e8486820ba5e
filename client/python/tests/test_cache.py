"""reposition() moves keys inside a paged cache exactly as it moves the same keys outside of the cache."""

import numpy
import posenc
import pytest

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
