import array

import ml_dtypes
import numpy
import oracle
import posenc
import pytest

SPEC = {"pairing": "half_split"}


def rotated(client, x, **arguments):
    return client.apply_rope(x, rope=SPEC, positions=0, layout="bshd", **arguments)[0]


@pytest.fixture
def x(random):
    return random.standard_normal((1, 6, 2, 8))


@pytest.mark.parametrize("dtype", [numpy.float32, numpy.float64, numpy.float16, ml_dtypes.bfloat16])
def test_every_dtype_comes_back_as_it_was_sent(client, x, dtype):
    x = x.astype(dtype)
    result = rotated(client, x)
    assert result.dtype == x.dtype and isinstance(result, numpy.ndarray)
    oracle.assert_near(result, oracle.rotate(x, numpy.arange(6)))


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_float8_comes_back_as_it_was_sent(client, x, dtype):
    x = x.astype(dtype)
    result = rotated(client, x, saturation="finite")
    assert result.dtype == x.dtype
    oracle.assert_near(result, oracle.rotate(x, numpy.arange(6)))
    moved = client.reposition(result, rope=SPEC, layout="bshd", shift=0, saturation="none")
    assert (moved.view(numpy.uint8) == result.view(numpy.uint8)).all()


def test_float8_overflows_as_it_was_told(client):
    # 0.785 rad are about an eighth of a turn, so x cos + x sin is 1.4 x.
    x = numpy.full((1, 1, 1, 2), 448, ml_dtypes.float8_e4m3fn)
    turned = {"rope": {"pairing": "half_split", "explicit_frequencies": {"values": [0.785]}}, "positions": 1}
    finite, _ = client.apply_rope(x, layout="bshd", saturation="finite", **turned)
    assert finite[0, 0, 0, 1] == 448
    none, _ = client.apply_rope(x, layout="bshd", saturation="none", **turned)
    assert none.view(numpy.uint8)[0, 0, 0, 1] == 0x7F


def test_float8_without_saturation_is_refused_by_its_field(client, x):
    with pytest.raises(posenc.PosencError) as refused:
        rotated(client, x.astype(ml_dtypes.float8_e5m2))
    assert (refused.value.reason, refused.value.field) == ("FIELD_REQUIRED", "saturation")


def test_int8_keys_come_back_as_int8(client, random):
    k = random.integers(-128, 128, (1, 6, 2, 8)).astype(numpy.int8)
    moved = client.reposition(k, rope=SPEC, layout="bshd", shift=-3, saturation="finite")
    wide = client.reposition(k.astype(numpy.float32), rope=SPEC, layout="bshd", shift=-3)
    assert moved.dtype == numpy.int8 and (moved == numpy.clip(numpy.rint(wide), -128, 127)).all()
    assert client.reposition(k, rope=SPEC, layout="bshd", shift=-3, saturation="finite", out=k) is k
    assert (k == moved).all()


def test_blocks_come_back_as_bytes_of_their_shape(client, random):
    # Each head is two blocks, with the scale 1 and the numbers -127, -126, ...
    block = numpy.concatenate([numpy.array([1], numpy.float16).view(numpy.int8), numpy.arange(-127, -95, dtype="i1")])
    k = numpy.tile(block, 2 * 3 * 2).reshape(1, 3, 2, 68)
    still = client.rope({**SPEC, "rotary_dim": 64}).reposition(k, layout="bshd", shift=0, block_format="q8_0")
    assert still.dtype == numpy.int8 and (still == k).all()
    with pytest.raises(posenc.PosencError) as refused:
        client.reposition(k[..., :67], rope=SPEC, layout="bshd", shift=0, block_format="q8_0")
    assert (refused.value.reason, refused.value.field) == ("FIELD_INVALID", "k.shape")


def test_strided_arrays_are_taken(client, x):
    strided = numpy.zeros((1, 6, 4, 8))
    strided[:, :, ::2] = x
    assert not strided[:, :, ::2].flags.c_contiguous
    assert (rotated(client, strided[:, :, ::2]) == rotated(client, x)).all()


def test_big_endian_arrays_are_taken_and_come_back_in_the_machines_order(client, x):
    result = rotated(client, x.astype(">f4"))
    assert (result == rotated(client, x.astype("<f4"))).all() and result.dtype == numpy.float32


@pytest.mark.parametrize("shape", [(1, 0, 2, 8), (0, 3, 2, 8), (1, 3, 0, 8)])
def test_empty_arrays_come_back_empty(client, shape):
    assert rotated(client, numpy.zeros(shape, numpy.float32)).shape == shape


def test_a_memoryview_comes_back_as_one(client, x):
    result = rotated(client, memoryview(x))
    assert isinstance(result, memoryview)
    assert (numpy.asarray(result) == rotated(client, x)).all()


def test_any_buffer_is_taken(client):
    weight = array.array("f", range(16))
    converted = client.convert_pairing(weight, old_pairing="interleaved", new_pairing="half_split", heads=1)
    assert converted.tolist() == [*range(0, 16, 2), *range(1, 16, 2)]


def test_an_array_with_dlpack_comes_back_through_its_library(client, x):
    class Library:
        """An array of a library that has DLPack and the array API, but no __array__."""

        def __init__(self, inner):
            self.inner = inner

        def __dlpack__(self, **arguments):
            return self.inner.__dlpack__(**arguments)

        def __dlpack_device__(self):
            return self.inner.__dlpack_device__()

        def __array_namespace__(self):
            class Namespace:
                asarray = Library

            return Namespace

    result = rotated(client, Library(x))
    assert isinstance(result, Library) and (result.inner == rotated(client, x)).all()


@pytest.mark.parametrize(
    "bad, said",
    [
        (numpy.zeros((1, 1, 1, 2), numpy.uint8), "q: dtype uint8 is not supported"),
        (numpy.zeros((1, 1, 1, 2), numpy.complex64), "q: dtype complex64 is not supported"),
        (numpy.zeros((1, 1, 1, 2), object), "q: is of type ndarray; must be an array of numbers"),
        ("text", "q: dtype"),
        (object(), "q: is of type object; must be an array"),
    ],
)
def test_what_is_no_array_of_floats_is_one_clear_error(client, bad, said):
    with pytest.raises(posenc.PosencError, match=said) as caught:
        rotated(client, bad)
    assert caught.value.code == "INVALID_ARGUMENT" and caught.value.field == "q"


def test_outputs_that_cannot_be_written_are_clear_errors(client, x):
    read_only = numpy.empty_like(x)
    read_only.flags.writeable = False
    cases = [
        (read_only, "is read-only"),
        (numpy.empty((6, 2, 8)), "has shape"),
        (numpy.empty(x.shape, numpy.float32), "has dtype float32; must be float64"),
        (numpy.empty((1, 6, 4, 8))[:, :, ::2], "must be contiguous"),
        (numpy.empty(x.shape, ">f8"), "must be contiguous .* byte order"),
        (bytearray(x.nbytes), "is of type bytearray; must be a numpy array"),
        ([1], "has 1 arrays; must be a pair"),
    ]
    for out, said in cases:
        with pytest.raises(posenc.PosencError, match=said) as caught:
            rotated(client, x, out=out)
        named = "out" if isinstance(out, list) else "q_output"
        assert (caught.value.code, caught.value.field) == ("INVALID_ARGUMENT", named)


def test_an_output_for_what_is_not_given_is_a_clear_error(client, x):
    for q, k, name in ((x, None, "k"), (None, x, "q")):
        with pytest.raises(posenc.PosencError, match=f"{name} is not; give both or neither") as caught:
            client.apply_rope(q, k, rope=SPEC, positions=0, layout="bshd", out=(x, x))
        assert caught.value.field == f"{name}_output"


def test_no_memory_for_a_tensor_is_an_error_that_names_it(client):
    # The array has strides of 0 and takes no memory, but no machine has the memory for its copy.
    huge = numpy.broadcast_to(numpy.float32(1), (1, 1 << 40, 1 << 10, 64))
    with pytest.raises(MemoryError, match="q: no memory for a contiguous copy, 288230376151711744 bytes"):
        rotated(client, huge)


def test_a_contiguous_array_is_sent_from_its_own_memory(x):
    from posenc.arrays import borrow

    sent = numpy.frombuffer(borrow(x, "q").tensor.data, numpy.float64)
    assert numpy.shares_memory(sent, x)


# ---- torch ------------------------------------------------------------------


@pytest.fixture
def torch():
    return pytest.importorskip("torch", reason="torch is not installed")


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_tensors_of_torch_come_back_as_such(client, x, torch, dtype):
    tensor = torch.tensor(x).to(getattr(torch, dtype))
    result = rotated(client, tensor)
    assert isinstance(result, torch.Tensor) and result.dtype == tensor.dtype
    expected = oracle.rotate(tensor.double().numpy(), numpy.arange(6))
    error = numpy.abs(result.double().numpy() - expected).max()
    assert error <= 4 * oracle.TOLERANCE[dtype]


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_float8_tensors_of_torch_come_back_as_such(client, x, torch, dtype):
    tensor = torch.tensor(x).to(getattr(torch, dtype))
    result = rotated(client, tensor, saturation="finite")
    assert isinstance(result, torch.Tensor) and result.dtype == tensor.dtype
    expected = oracle.rotate(tensor.double().numpy(), numpy.arange(6))
    assert numpy.abs(result.double().numpy() - expected).max() <= 4 * oracle.TOLERANCE[dtype]
    assert rotated(client, tensor, saturation="finite", out=tensor) is tensor
    assert torch.equal(tensor.view(torch.uint8), result.view(torch.uint8))


def test_int8_tensors_of_torch_come_back_as_such(client, torch):
    tensor = torch.arange(-64, 64, dtype=torch.int8).reshape(1, 4, 4, 8)
    moved = client.reposition(tensor, rope=SPEC, layout="bshd", shift=2, saturation="finite")
    assert isinstance(moved, torch.Tensor) and moved.dtype == torch.int8 and moved.shape == tensor.shape


def test_tensors_of_torch_are_written_in_place(client, x, torch):
    tensor = torch.tensor(x).to(torch.bfloat16)
    expected = rotated(client, tensor.clone())
    assert rotated(client, tensor, out=tensor) is tensor
    assert torch.equal(tensor, expected)


def test_a_tensor_that_requires_grad_is_refused(client, x, torch):
    tensor = torch.tensor(x, requires_grad=True)
    with pytest.raises(posenc.PosencError, match="detach"):
        rotated(client, tensor)
    with torch.no_grad():
        assert not rotated(client, tensor).requires_grad


def test_positions_may_be_tensors_of_torch_too(client, x, torch):
    ids = torch.arange(6)
    result, _ = client.apply_rope(x, rope=SPEC, positions=ids, layout="bshd")
    assert (result == rotated(client, x)).all()


def test_a_dtype_of_torch_asks_for_its_tensors(client, torch):
    cos, _ = client.build_table(rope={**SPEC, "rotary_dim": 8}, rows=4, dtype=torch.bfloat16)
    assert cos.dtype == torch.bfloat16 and cos.shape == (4, 4)
