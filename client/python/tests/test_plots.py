"""Compares the numbers in the pictures with the formulas."""

import matplotlib
import numpy
import posenc
import pytest

matplotlib.use("Agg")
import posenc.plots as plots  # noqa: E402  (after the choice of a backend without a screen)

EIGHT = {"pairing": "half_split", "rotary_dim": 8}
W = 10.0 ** -numpy.arange(4.0)


@pytest.fixture(autouse=True)
def closed():
    yield
    matplotlib.pyplot.close("all")


def lines(ax):
    return {line.get_label(): numpy.array(line.get_data()) for line in ax.lines}


def test_frequencies_and_wavelengths(client):
    x, y = lines(plots.frequencies(client, EIGHT))["rope"]
    numpy.testing.assert_array_equal(x, range(4))
    numpy.testing.assert_allclose(y, W, rtol=1e-15)
    drawn = lines(plots.wavelengths(client, EIGHT, trained_length=100))
    numpy.testing.assert_allclose(drawn["rope"][1], 2 * numpy.pi / W, rtol=1e-15)
    assert set(drawn["trained length 100"][1]) == {100}


def test_several_ropes_are_a_curve_each(client):
    drawn = lines(plots.frequencies(client, {"ten": EIGHT, "hundred": {**EIGHT, "rope_theta": 100}}))
    numpy.testing.assert_allclose(drawn["ten"][1], W, rtol=1e-15)
    numpy.testing.assert_allclose(drawn["hundred"][1], 100 ** (-numpy.arange(4) / 4), rtol=1e-15)


def test_decay_and_similarity(client):
    r = 7 * numpy.arange(43)
    waves = numpy.exp(1j * numpy.outer(r, W))
    x, y = lines(plots.decay(client, EIGHT, max_distance=300, distance_step=7))["rope"]
    numpy.testing.assert_array_equal(x, r)
    numpy.testing.assert_allclose(y, numpy.abs(waves.cumsum(axis=1)).mean(axis=1), atol=1e-13)
    x, y = lines(plots.similarity(client, EIGHT, max_distance=300, distance_step=7))["rope"]
    numpy.testing.assert_allclose(y, waves.real.mean(axis=1), atol=1e-13)


def test_heat_maps(client):
    positions = numpy.arange(5, 12)
    image = plots.angles(client, EIGHT, start=5, rows=7).images[0]
    turns = numpy.outer(positions, W) / (2 * numpy.pi)
    numpy.testing.assert_allclose(image.get_array(), numpy.maximum(turns, 1e-4), rtol=1e-14)
    assert tuple(image.get_extent()) == (-0.5, 3.5, 11.5, 4.5)
    for values, function in (("cos", numpy.cos), ("sin", numpy.sin)):
        image = plots.table(client, EIGHT, start=5, rows=7, values=values).images[0]
        # The elements of the server's tables are float32.
        numpy.testing.assert_allclose(image.get_array(), function(numpy.outer(positions, W)), atol=2**-24)
        assert image.get_cmap().name == "cividis"


def test_channels_of_the_sinusoidal_encoding(client):
    encoding = {"sinusoidal": {"dim": 4, "order": "interleaved"}}
    drawn = lines(plots.table(client, absolute=encoding, rows=9, channels=2))
    numpy.testing.assert_allclose(drawn["channel 0"][1], numpy.sin(range(9)), atol=2**-24)
    numpy.testing.assert_allclose(drawn["channel 1"][1], numpy.cos(range(9)), atol=2**-24)


@pytest.mark.parametrize("pairing", ["half_split", "interleaved"])
def test_the_arrow_ends_where_the_rotation_puts_the_vector(client, pairing):
    rope = {"pairing": pairing, "rotary_dim": 8}
    drawn = lines(plots.rotation(client, rope, position=7, pair=1, vector=(3, -2)))
    c, s = numpy.cos(0.7), numpy.sin(0.7)
    numpy.testing.assert_allclose(drawn["before"][:, 1], (3, -2))
    numpy.testing.assert_allclose(drawn["after"][:, 1], (3 * c + 2 * s, 3 * s - 2 * c), atol=1e-14)


def test_in_an_image_the_end_of_the_row_looks_nearer_than_the_cell_below(client):
    rope = {"pairing": "half_split", "rotary_dim": 64}
    axes = {"assignment": "per_axis", "sections": [16, 16]}
    line = plots.similarity(client, rope, image=(64, 64)).images[0].get_array()
    plane = plots.similarity(client, {**rope, "axes": axes}, image=(64, 64)).images[0].get_array()
    w = 10000 ** (-numpy.arange(32) / 32)
    numpy.testing.assert_allclose(line[0, 63], numpy.cos(63 * w).mean(), atol=1e-12)
    half = 10000 ** (-numpy.arange(16) / 16)
    numpy.testing.assert_allclose(plane[3, 5], (numpy.cos(3 * half) + numpy.cos(5 * half)).mean() / 2, atol=1e-12)
    assert line[0, 63] > line[1, 0] and plane[0, 63] < plane[1, 0]


def test_a_masked_bias_is_empty_above_the_diagonal(client):
    bias = client.build_bias({"alibi": {"heads": 2}}, query_length=4, key_length=4, causal=True)
    image = plots.bias(bias, head=1).images[0].get_array()
    slope = 2.0**-8
    numpy.testing.assert_array_equal(image[3], [-3 * slope, -2 * slope, -slope, 0])
    assert numpy.ma.getmaskarray(numpy.ma.masked_invalid(image))[0, 1:].all()


def test_compare_and_kept(client):
    slower = {"slower": {**EIGHT, "linear": {"factor": 4}}}
    drawn = lines(plots.compare(client, EIGHT, slower))
    numpy.testing.assert_allclose(drawn["slower"][1], 0.25, rtol=1e-15)
    x, y = lines(plots.kept(client, EIGHT, slower, max_distance=1000))["slower"]
    assert (x[0], x[-1]) == (1, 1000)
    numpy.testing.assert_allclose(y, numpy.cos(numpy.outer(x, 0.75 * W)).mean(axis=1), atol=1e-12)


def test_llama_cpp_keeps_nine_tenths_of_gpt_oss_to_5443(client):
    drawn = lines(plots.kept(client, "gpt-oss-20b"))
    x, y = drawn["llama_cpp"]
    assert y[x < 5443].min() >= 0.9 and y[numpy.searchsorted(x, 5443)] < 0.9
    assert drawn["vllm"][1].min() > 0.99


def test_it_draws_into_the_axes_that_it_is_given(client, tmp_path):
    figure, axes = matplotlib.pyplot.subplots(1, 2)
    assert plots.decay(client, EIGHT, ax=axes[1]) is axes[1]
    assert not axes[0].lines
    figure.savefig(tmp_path / "two.svg")


@pytest.mark.parametrize(
    ("draw", "field"),
    [
        (lambda client: plots.rotation(client, EIGHT, pair=4), "pair"),
        (lambda client: plots.table(client, EIGHT, values="tan"), "values"),
        (lambda client: plots.table(client, EIGHT, rows=4, channels=9), "channels"),
        (lambda client: plots.angles(client, EIGHT, rows=0), "rows"),
        (lambda client: plots.decay(client, EIGHT, max_distance=0), "max_distance"),
        (lambda client: plots.kept(client, EIGHT), "others"),
        (lambda client: plots.kept(client, EIGHT, {}, max_distance=1), "max_distance"),
        (lambda client: plots.frequencies(client, {"nope": True}), "rope"),
        (lambda client: plots.similarity(client, EIGHT, image=(0, 4)), "image"),
        (lambda client: plots.bias(numpy.zeros((2, 3, 3)), head=2), "matrix"),
    ],
)
def test_bad_input_names_its_argument(client, draw, field):
    with pytest.raises(posenc.PosencError, match=f"^INVALID_ARGUMENT: {field}: |{field}: ") as told:
        draw(client)
    assert told.value.code == "INVALID_ARGUMENT"
