import json

import numpy
import oracle
import posenc
import pytest


def test_tells_the_servers_version_and_presets(client):
    info = client.get_server_info()
    assert info.version and "llama-3.1-8b" in info.presets and info.limits.stream_chunk_bytes > 0


def test_resolves_a_preset_to_a_complete_specification(client):
    resolved = client.resolve("llama-3.1-8b")
    assert resolved.spec.rotary_dim == 128 and resolved.spec.rope_theta == 500000
    assert resolved.spec.llama3.factor == 8 and len(resolved.inv_freq) == 64
    assert resolved.inv_freq[0] == 1.0


def test_resolves_the_part_that_is_asked_for(client):
    model = {"model_type": "qwen2_vl", "hidden_size": 1024, "num_attention_heads": 8,
             "vision_config": {"embed_dim": 1280, "num_heads": 16}}
    assert client.resolve(model).head_dim == 128
    vision = client.resolve(model, part="vision")
    assert vision.head_dim == 80 and vision.axis_of_pair == [0] * 20 + [1] * 20
    grid = {"vision": {"rope": {"config_json": json.dumps(model), "part": "vision"},
                       "grids": [{"height": 2, "width": 2}]}}
    assert client.build_positions(grid).positions.ids.shape == [2, 4]


def test_explains_the_difference_to_another(client):
    spec = {"pairing": "half_split", "rotary_dim": 64}
    resolved = client.resolve(spec, compare_with={**spec, "rope_theta": 20000})
    assert resolved.difference.equal is False and resolved.difference.max_relative_frequency_difference > 0


@pytest.mark.parametrize("rows", [3, 5000, 20000])
def test_builds_a_table_of_any_length(client, rows):
    table = client.build_table(rope={"pairing": "half_split", "rotary_dim": 64}, rows=rows)
    cos, sin = table
    assert cos.shape == (rows, 32) and cos.dtype == numpy.float32 and table.amplitude == 1
    expected = oracle.angles(numpy.arange(rows), 64)
    # The bound allows for errors of numpy's argument reduction. The table itself is correctly rounded.
    assert numpy.abs(cos - numpy.cos(expected)).max() < 1e-6
    assert numpy.abs(sin - numpy.sin(expected)).max() < 1e-6


def test_builds_a_complex_table_as_one_array(client):
    rope = {"pairing": "half_split", "rotary_dim": 8}
    table = client.build_table(rope=rope, rows=4, layout="complex", dtype="float64")
    oracle.assert_near(table[..., 1], numpy.sin(oracle.angles(numpy.arange(4), 8)))


def test_builds_a_sinusoidal_table(client):
    absolute = {"sinusoidal": {"dim": 16, "order": "interleaved"}}
    table = client.build_table(absolute=absolute, rows=10)
    oracle.assert_near(table[:, 0::2], numpy.sin(oracle.angles(numpy.arange(10), 16)))
    oracle.assert_near(table[:, 1::2], numpy.cos(oracle.angles(numpy.arange(10), 16)))


def test_builds_a_grid_without_positions(client):
    grid = {"sincos_grid": {"dim": 8, "extents": [2, 3]}}
    assert client.build_table(absolute=grid).shape == (6, 8)


def test_builds_a_bias_of_many_tiles(client):
    bias = client.build_bias({"alibi": {"heads": 4}}, query_length=300, key_length=517, query_start=217)
    i, j = numpy.arange(217, 517)[:, None], numpy.arange(517)[None]
    slopes = 2.0 ** (-8 * numpy.arange(1, 5) / 4)
    oracle.assert_near(bias, -slopes[:, None, None] * numpy.abs(i - j))
    tiles = client.build_bias({"alibi": {"heads": 4}}, query_length=300, key_length=517, query_start=217, key_tile=64)
    assert (bias == tiles).all()


def test_builds_positions_that_go_into_other_calls(client, random):
    answer = client.build_positions({"padded": {"lengths": [2, 4], "padded_length": 4, "left": True}})
    assert numpy.asarray(answer.positions.ids).tolist() == [[0, 0, 0, 1], [0, 1, 2, 3]]
    x = random.standard_normal((2, 4, 1, 8)).astype(numpy.float32)
    rotated, _ = client.apply_rope(x, rope={"pairing": "half_split"}, positions=answer.positions, layout="bshd")
    oracle.assert_near(rotated, oracle.rotate(x, [[0, 0, 0, 1], [0, 1, 2, 3]]))


def test_adds_an_encoding_in_place(client, random):
    x = random.standard_normal((2, 5, 8))
    expected = x.copy()
    expected[..., 0::2] += numpy.sin(oracle.angles(numpy.arange(5), 8))
    expected[..., 1::2] += numpy.cos(oracle.angles(numpy.arange(5), 8))
    encoding = {"sinusoidal": {"dim": 8, "order": "interleaved"}}
    assert client.add_encoding(x, encoding=encoding, positions=0, out=x) is x
    oracle.assert_near(x, expected)


def test_adds_a_learned_table_given_as_an_array(client, random):
    table = random.standard_normal((6, 4))
    x = numpy.zeros((3, 4))
    added = client.add_encoding(x, encoding={"learned": {"table": table}}, positions=[5, 0, 2])
    oracle.assert_near(added, table[[5, 0, 2]])


def test_scores_relative_positions(client, random):
    q, k = random.standard_normal((2, 1, 2, 3, 4))
    table = random.standard_normal((5, 4))
    scores = client.score_relative(q, k, score={"shaw": {"key_table": table}})
    index = numpy.clip(numpy.arange(3)[None] - numpy.arange(3)[:, None], -2, 2) + 2
    expected = numpy.einsum("bhid,bhjd->bhij", q, k) + numpy.einsum("bhid,ijd->bhij", q, table[index])
    assert numpy.abs(scores - expected).max() < 1e-12


def test_converts_a_weight_between_pairings_bit_for_bit(client, random):
    weight = random.standard_normal((2 * 8, 3)).astype(numpy.float16)
    arguments = {"old_pairing": "interleaved", "new_pairing": "half_split", "heads": 2}
    converted = client.convert_pairing(weight, **arguments)
    heads = weight.reshape(2, 8, 3)
    assert (converted == numpy.concatenate([heads[:, 0::2], heads[:, 1::2]], 1).reshape(16, 3)).all()


def test_analyzes_wavelengths(client):
    answer = client.analyze_rope({"pairing": "half_split", "rotary_dim": 8}, max_distance=4, trained_length=100)
    expected = 2 * numpy.pi / 10000 ** (-2 * numpy.arange(4) / 8)
    assert numpy.allclose(answer.wavelengths, expected, rtol=1e-14) and len(answer.decay) == 5


def test_tells_what_another_encoding_leaves_of_a_score(client):
    rope, other = ({"pairing": "half_split", "rotary_dim": 8, "rope_theta": theta} for theta in (1e4, 5e5))
    apart = 1e4 ** (-numpy.arange(4) / 4) - 5e5 ** (-numpy.arange(4) / 4)
    kept = numpy.cos(numpy.arange(5)[:, None] * apart).mean(1)
    answer = client.analyze_rope(rope, max_distance=4, compare_with=other)
    assert numpy.allclose(answer.kept, kept, rtol=0, atol=1e-14)
    difference = client.resolve(rope, compare_with=other, length=3).difference
    assert difference.length == 3 and abs(difference.kept_at_length - kept[3]) < 1e-14


def test_diagnoses_a_configuration(client):
    scaling = {"rope_type": "yarn", "type": "linear", "factor": 4.0, "original_max_position_embeddings": 32768}
    config = {"model_type": "llama", "hidden_size": 512, "num_attention_heads": 8, "rope_scaling": scaling}
    inputs = [{"kind": "config", "text": json.dumps(config)}, {"kind": "gguf", "unreadable": "cannot open"}]
    answer = client.diagnose_rope(inputs, readers=["hf", "mlx"], length=4096)
    assert answer.findings[0].id == "config.type-conflict" and answer.summary.error >= 1 and answer.length == 4096
    assert [report.unreadable for report in answer.inputs] == ["", "cannot open"]
    with pytest.raises(posenc.PosencError) as error:
        client.diagnose_rope(inputs, readers=["nobody"])
    assert error.value.field == "readers[0]"
    for wrong in ("GGUF ", 3):
        with pytest.raises(posenc.PosencError, match=r"inputs\[0\].gguf: .* must be bytes"):
            client.diagnose_rope([{"kind": "gguf", "gguf": wrong}])


def test_an_encoding_of_both_kinds_is_refused(client):
    with pytest.raises(posenc.PosencError, match="absolute: excludes rope"):
        client.build_table(rope="llama-3.1-8b", absolute={"sinusoidal": {}}, rows=1)


def test_a_number_that_is_none_is_named(client):
    rope = {"pairing": "half_split", "rotary_dim": 8}
    for call, name in (
        (lambda: client.build_table(rope=rope, rows="eight"), "rows"),
        (lambda: client.resolve(rope, head_dim=1.5), "head_dim"),
        (lambda: client.resolve(rope, layer_index=[1]), "layer_index"),
        (lambda: client.build_bias({"alibi": {"heads": 4}}, query_length=b"3", key_length=3), "query_length"),
    ):
        with pytest.raises(posenc.PosencError, match=f"{name}: is .*; must be int(32|64)") as caught:
            call()
        assert caught.value.field == name


def test_an_output_of_as_many_bytes_but_another_shape_or_dtype_is_refused(client):
    x = numpy.ones((8, 8), numpy.float32)
    heads = numpy.ones((1, 2, 4, 8), numpy.float32)
    encoding = {"sinusoidal": {"dim": 8, "order": "interleaved"}}
    score = {"shaw": {"left": 1, "key_table": numpy.ones((3, 8), numpy.float32)}}
    pairings = {"old_pairing": "half_split", "new_pairing": "interleaved", "heads": 1}
    calls = (
        ("x_output", lambda out: client.add_encoding(x, encoding=encoding, positions=0, out=out), (8, 8)),
        ("weight_output", lambda out: client.convert_pairing(x, **pairings, out=out), (8, 8)),
        ("scores_output", lambda out: client.score_relative(heads, heads, score=score, out=out), (1, 2, 4, 4)),
    )
    for name, call, shape in calls:
        for out in (numpy.empty(shape[::-1] + (1,), numpy.float32), numpy.empty(shape, numpy.int32)):
            with pytest.raises(posenc.PosencError, match=f"^{name}: has (shape|dtype)") as caught:
                call(out)
            assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", name)
