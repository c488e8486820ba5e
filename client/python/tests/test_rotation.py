import numpy
import oracle
import posenc
import pytest

SPEC = {"pairing": "half_split"}
LAYOUTS = {"bshd": (0, 1, 2, 3), "bhsd": (0, 2, 1, 3), "sbhd": (1, 0, 2, 3)}


@pytest.fixture
def q(random):
    return random.standard_normal((2, 7, 3, 16)).astype(numpy.float32)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rotates_by_the_formula_in_every_layout(client, q, layout):
    axes = LAYOUTS[layout]
    rotated, k = client.apply_rope(q.transpose(axes), rope=SPEC, positions=5, layout=layout)
    oracle.assert_near(rotated.transpose(numpy.argsort(axes)), oracle.rotate(q, numpy.arange(5, 12)))
    assert k is None


def test_rotates_keys_with_fewer_heads_beside_queries(client, q, random):
    k = random.standard_normal((2, 7, 1, 16)).astype(numpy.float32)
    rotated_q, rotated_k = client.apply_rope(q, k, rope=SPEC, positions=0, layout="bshd")
    oracle.assert_near(rotated_q, oracle.rotate(q, numpy.arange(7)))
    oracle.assert_near(rotated_k, oracle.rotate(k, numpy.arange(7)))


def test_rotates_keys_alone(client, q):
    rotated_q, rotated_k = client.apply_rope(None, q, rope=SPEC, positions=0, layout="bshd")
    assert rotated_q is None
    oracle.assert_near(rotated_k, oracle.rotate(q, numpy.arange(7)))


def test_takes_a_specification_with_other_pairs_base_and_width(client, q):
    spec = {"pairing": "interleaved", "rotary_dim": 8, "rope_theta": 500000}
    rotated, _ = client.apply_rope(q, rope=spec, positions=3, layout="bshd")
    expected = oracle.rotate(q, numpy.arange(3, 10), rotary_dim=8, theta=500000, interleaved=True)
    oracle.assert_near(rotated, expected)
    assert (rotated[..., 8:] == q[..., 8:]).all()


@pytest.mark.parametrize(
    "positions, ids",
    [
        (-4, numpy.arange(-4, 3)),
        (numpy.int64(9), numpy.arange(9, 16)),
        ([3, 1, 4, 1, 5, 9, 2], numpy.array([3, 1, 4, 1, 5, 9, 2])),
        (numpy.arange(7, dtype=numpy.int32), numpy.arange(7)),
        (numpy.arange(7, dtype=numpy.uint8), numpy.arange(7)),
        (numpy.arange(7) / 2, numpy.arange(7) / 2),
        (numpy.arange(14).reshape(2, 7), numpy.arange(14).reshape(2, 7)),
        ({"starts": [0, 100]}, numpy.array([[0], [100]]) + numpy.arange(7)),
        (posenc.Positions(start=6), numpy.arange(6, 13)),
    ],
)
def test_takes_positions_in_every_form(client, q, positions, ids):
    rotated, _ = client.apply_rope(q, rope=SPEC, positions=positions, layout="bshd")
    oracle.assert_near(rotated, oracle.rotate(q, ids))


def test_rotates_a_packed_batch(client, q):
    packed = posenc.packed([0, 3, 7], starts=[0, 50])
    rotated, _ = client.apply_rope(q[0], rope=SPEC, positions=packed, layout="thd")
    expected = oracle.rotate(q[:1], numpy.array([0, 1, 2, 50, 51, 52, 53]))
    oracle.assert_near(rotated[None], expected)


def test_writes_to_the_outputs_that_it_is_given(client, q):
    out, k_out = numpy.empty_like(q), numpy.empty_like(q)
    result = client.apply_rope(q, q, rope=SPEC, positions=0, layout="bshd", out=(out, k_out))
    assert result[0] is out and result[1] is k_out
    oracle.assert_near(out, oracle.rotate(q, numpy.arange(7)))
    assert (out == k_out).all()


def test_rotates_in_place(client, q):
    expected = oracle.rotate(q, numpy.arange(7))
    client.apply_rope(q, rope=SPEC, positions=0, layout="bshd", out=q)
    oracle.assert_near(q, expected)


def test_results_are_aligned_and_may_be_written(client, q):
    rotated, _ = client.apply_rope(q, rope=SPEC, positions=0, layout="bshd")
    assert rotated.flags.writeable and rotated.flags.aligned and rotated.flags.c_contiguous


def test_the_inverse_undoes_a_rotation(client, q):
    rotated, _ = client.apply_rope(q, rope=SPEC, positions=11, layout="bshd")
    back, _ = client.apply_rope(rotated, rope=SPEC, positions=11, layout="bshd", direction="inverse")
    oracle.assert_near(back, q.astype(numpy.float64))


@pytest.mark.parametrize(
    "movement, ids",
    [
        ({"shift": -3}, numpy.arange(7) - 3),
        ({"shift": [1, 2, 3, 4, 5, 6, 7]}, numpy.arange(7) + numpy.arange(1, 8)),
        ({"old_positions": 0, "new_positions": 40}, numpy.arange(40, 47)),
    ],
)
def test_repositions_as_if_rotated_there_at_once(client, q, movement, ids):
    k = oracle.rotate(q, numpy.arange(7))
    moved = client.reposition(k, rope=SPEC, layout="bshd", **movement)
    oracle.assert_near(moved.astype(numpy.float32), oracle.rotate(q, ids))


def test_a_resolved_rope_rotates_moves_and_tabulates(client, tmp_path, random):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 10000.0}')
    x = random.standard_normal((1, 5, 4, 64)).astype(numpy.float32)
    for source in (config, str(config), tmp_path, {"pairing": "half_split", "rotary_dim": 64}):
        rope = client.rope(source)
        assert rope.spec.rotary_dim == 64
        q, k = rope.apply(x, x, start=2, layout="bshd")
        oracle.assert_near(q, oracle.rotate(x, numpy.arange(2, 7)))
        moved = rope.reposition(k, shift=8, layout="bshd")
        oracle.assert_near(moved, oracle.rotate(x, numpy.arange(10, 15)))
        cos, sin = rope.table(rows=9)
        oracle.assert_near(cos, numpy.cos(oracle.angles(numpy.arange(9), 64)))
        oracle.assert_near(sin, numpy.sin(oracle.angles(numpy.arange(9), 64)))


def test_start_excludes_positions(client, q):
    rope = client.rope({"pairing": "half_split", "rotary_dim": 16})
    with pytest.raises(posenc.PosencError, match="start: is given beside positions; must be one of them"):
        rope.apply(q, layout="bshd", start=0, positions=0)
