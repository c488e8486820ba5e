"""Tables and biases that come in parts are joined correctly, wherever the server cuts them."""

import itertools

import numpy
import posenc
import pytest
from fake import bytes_of, serving
from posenc import messages as m
from posenc.arrays import borrow

SPEC = {"pairing": "half_split", "rotary_dim": 8}


def cuts(random, extent):
    """Returns ranges that cover an extent. The ends of the ranges are random."""
    ends = [0, *numpy.unique(random.integers(1, extent, 5)), extent]
    return list(zip(ends, ends[1:]))


def answers(matrix, tiles, whole):
    for i, (rows, columns) in enumerate(tiles):
        tile = matrix[:, slice(*rows), slice(*columns)]
        start = {"query_start": 5 + rows[0], "key_start": 7 + columns[0], "whole_shape": whole if i == 0 else []}
        yield bytes_of(m.BuildBiasResponse(**start, tile=borrow(tile, "tile").tensor))


def built(address, **arguments):
    with posenc.Client(address) as client:
        starts = {"query_length": 17, "key_length": 23, "query_start": 5, "key_start": 7}
        return client.build_bias({"alibi": {"heads": 3}}, **starts, **arguments)


@pytest.mark.parametrize("seed", range(5))
def test_a_bias_is_joined_from_tiles_of_any_size(seed):
    random = numpy.random.default_rng(seed)
    matrix = random.standard_normal((3, 17, 23)).astype(numpy.float16)
    tiles = list(itertools.product(cuts(random, 17), cuts(random, 23)))
    with serving({"BuildBias": lambda requests, context: answers(matrix, tiles, [3, 17, 23])}) as (_, address):
        bias = built(address)
    assert bias.dtype == matrix.dtype and (bias == matrix).all()


@pytest.mark.parametrize(
    "tiles, whole, said",
    [
        ([((0, 17), (0, 23))], [], "does not fit: the first answer tells .* as the shape of its tile"),
        ([((0, 17), (0, 23))], [17, 23], "does not fit: a tile .* lies outside of .17, 23."),
        ([((0, 17), (0, 20))], [3, 17, 23], "does not fit: tile came with parts missing or twice"),
        ([((0, 17), (0, 23)), ((0, 17), (0, 23))], [3, 17, 23], "does not fit: tile came with parts missing or twice"),
        ([((0, 10), (0, 23)), ((10, 17), (0, 23))], [3, 16, 23], "does not fit: a tile .* lies outside of"),
        ([], [], "does not fit: tile came with parts missing"),
    ],
)
def test_a_bias_of_other_parts_is_internal(tiles, whole, said):
    matrix = numpy.zeros((3, 17, 23), numpy.float32)
    with serving({"BuildBias": lambda requests, context: answers(matrix, tiles, whole)}) as (_, address):
        with pytest.raises(posenc.PosencError, match=said) as caught:
            built(address)
    assert caught.value.code == "INTERNAL"


@pytest.mark.parametrize("kind", ["half", "complex", "absolute"])
def test_a_table_is_joined_from_rows_and_goes_to_the_callers_memory(random, kind):
    shape = {"half": (40, 4), "complex": (40, 4, 2), "absolute": (40, 6)}[kind]
    names = ("cos", "sin") if kind == "half" else ("table",)
    arrays = {name: random.standard_normal(shape).astype(numpy.float32) for name in names}

    def rows(requests, context):
        for begin, end in cuts(random, 40):
            tensors = {name: borrow(array[begin:end], name).tensor for name, array in arrays.items()}
            whole = [] if begin else list(shape)
            yield bytes_of(m.BuildTableStreamResponse(amplitude=2, first_row=begin, whole_shape=whole, **tensors))

    encoding = {"absolute": {"sinusoidal": {"dim": 6}}} if kind == "absolute" else {"rope": SPEC, "layout": kind}
    outs = {name: numpy.zeros_like(array) for name, array in arrays.items()}
    out = tuple(outs.values()) if kind == "half" else outs["table"]
    with serving({"BuildTableStream": rows}) as (fake, address):
        with posenc.Client(address, stream_above_bytes=0) as client:
            table = client.build_table(**encoding, rows=40, out=out)
    assert all((outs[name] == array).all() for name, array in arrays.items()) and len(fake.calls) == 1
    assert table is out or (table.cos is out[0] and table.sin is out[1] and table.amplitude == 2)
