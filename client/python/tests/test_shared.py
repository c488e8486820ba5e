"""Tensors in shared memory. The results equal the formula, and the results of the same calls with bytes."""

import os
import subprocess
import sys
from pathlib import Path

import fake
import grpc
import numpy
import oracle
import posenc
import pytest
from posenc import messages, wire

SPEC = {"pairing": "half_split"}
SHAPE = (2, 7, 3, 16)
BYTES = 2 * 7 * 3 * 16 * 4
PREFIX = f"posenc-test-python-{os.getpid()}-"  # as in conftest.py


def files():
    return [path.name for path in Path("/dev/shm").iterdir() if path.name.startswith(PREFIX)]


@pytest.fixture
def client(shared_server):
    with posenc.Client(shared_server.socket) as client:
        yield client


@pytest.fixture
def q(random):
    return random.standard_normal(SHAPE).astype(numpy.float32)


class Sent:
    """Records the messages that a client sends."""

    def __init__(self, client, monkeypatch):
        self.calls = []  # (message, whether it is sent once)
        run = posenc.Client._unary

        def noted(this, method, pieces, call, once=False):
            self.calls.append((b"".join(pieces), once))
            return run(this, method, pieces, call, once)

        monkeypatch.setattr(posenc.Client, "_unary", noted)

    def last(self, cls):
        """Returns the last message, its size, and whether it was sent once."""
        message, once = self.calls[-1]
        return wire.decode(cls, message), len(message), once


def test_rotates_in_place_without_sending_the_tensor(client, q, monkeypatch):
    with client.shared_region(2 * BYTES) as region:
        view, keys = region.array(SHAPE), region.array(SHAPE, offset=BYTES)
        view[:], keys[:] = q, q
        sent = Sent(client, monkeypatch)
        rotated = client.apply_rope(view, keys, rope=SPEC, positions=5, layout="bshd", out=(view, keys))
        message, size, once = sent.last(messages.ApplyRopeRequest)
        assert rotated[0] is view and rotated[1] is keys
        assert message.q.shared == message.q_output == messages.SharedMemory(region.name, 0)
        assert message.k.shared == message.k_output == messages.SharedMemory(region.name, BYTES)
        assert size < 300 and once
        oracle.assert_near(view, oracle.rotate(q, numpy.arange(5, 12)))
        assert (view == client.apply_rope(q, rope=SPEC, positions=5, layout="bshd")[0]).all() and (view == keys).all()


def test_inputs_and_results_may_lie_in_different_memory(client, q, monkeypatch):
    expected, _ = client.apply_rope(q, rope=SPEC, positions=5, layout="bshd")
    sent = Sent(client, monkeypatch)
    with client.shared_region(2 * BYTES) as region:
        view, other, own = region.array(SHAPE), region.array(SHAPE, offset=BYTES), numpy.empty_like(q)
        view[:] = q
        for x, out in ((view, other), (view, own), (q, other), (view, None)):
            other[:] = 0
            result, _ = client.apply_rope(x, rope=SPEC, positions=5, layout="bshd", out=out)
            message, _, once = sent.last(messages.ApplyRopeRequest)
            assert (result == expected).all() and (view == q).all() and (out is None or result is out)
            assert (message.q.shared is not None) == (x is view) and not once
            assert (message.q_output is not None) == (out is other)


def test_parts_of_a_view_are_named_by_their_place(client, q, monkeypatch):
    sent = Sent(client, monkeypatch)
    with client.shared_region(BYTES) as region:
        view = region.array(SHAPE)
        view[:] = q
        client.reposition(view[1:], rope=SPEC, shift=3, layout="bshd", out=view[1:])
        assert sent.last(messages.RepositionRequest)[0].k_output.offset == BYTES // 2
        # A view that is not contiguous is copied, and sent as bytes.
        client.apply_rope(view[:, ::2], rope=SPEC, positions=0, layout="bshd")
        assert sent.last(messages.ApplyRopeRequest)[0].q.shared is None
    assert (view[0] == q[0]).all()
    oracle.assert_near(view[1:], oracle.rotate(q[1:], numpy.full(7, 3)))


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16", "float8_e4m3fn"])
def test_views_have_every_dtype_of_numpy_and_torch(client, dtype, random):
    torch = sys.modules.get("torch") or pytest.importorskip("torch", reason="torch is not installed")
    with client.shared_region(BYTES * 2) as region:
        for kind in (dtype, getattr(torch, dtype)):
            view = region.array(SHAPE, kind)
            if dtype != kind:
                view.copy_(torch.from_numpy(random.standard_normal(SHAPE)))
            else:
                view[:] = random.standard_normal(SHAPE).astype(view.dtype)
            expected, _ = client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", saturation="finite")
            result, _ = client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", saturation="finite", out=view)
            assert result is view and type(expected) is type(view)
            assert bytes_of(expected) == bytes_of(view)


def bytes_of(array):
    return (array if isinstance(array, numpy.ndarray) else array.view(sys.modules["torch"].uint8).numpy()).tobytes()


def test_other_tensors_go_by_their_place_too(client, random):
    x = random.standard_normal((2, 3, 8, 16)).astype(numpy.float32)
    encoding = {"sinusoidal": {"dim": 16, "order": "interleaved"}}
    score = {"shaw": {"left": 2, "key_table": numpy.ones((5, 16), numpy.float32)}}
    swap = {"old_pairing": "interleaved", "new_pairing": "half_split", "heads": 3}
    encoded = client.add_encoding(x[0], encoding=encoding, positions=2)
    scores = client.score_relative(x, x, score=score)
    converted = client.convert_pairing(x[0].reshape(48, 8), **swap)
    with client.shared_region(4 * x.nbytes) as region:
        view, out = region.array(x.shape), region.array(scores.shape, offset=x.nbytes)
        view[:] = x
        assert (client.score_relative(view, view, score=score, out=out) == scores).all()
        rows = region.array((48, 8), offset=3 * x.nbytes)
        assert (client.convert_pairing(view[0].reshape(48, 8), **swap, out=rows) == converted).all()
        assert client.add_encoding(view[0], encoding=encoding, positions=2, out=view[0]) is not None
        assert (view[0] == encoded).all() and (view[1] == x[1]).all()
        # The result is twice as large as x. The bytes after an output that is too small stay unchanged.
        region.array((x.nbytes,), "int32")[:] = 7
        add = {"encoding": encoding, "positions": 2, "combination": "concatenate"}
        wide = client.add_encoding(x[0], **add)
        assert (client.add_encoding(x[0], **add, out=region.array(wide.shape)) == wide).all()
        with pytest.raises(posenc.PosencError, match="^x_output: has"):
            client.add_encoding(x[0], **add, out=region.array(x[0].shape, offset=wide.nbytes))
        assert (region.array((16,), "int32", offset=wide.nbytes + x[0].nbytes) == 7).all()
        view[:] = x
        too_small = region.array((1, 3, 8, 8), offset=x.nbytes)
        with pytest.raises(posenc.PosencError, match="scores_output: has shape .1, 3, 8, 8.; must be .2, 3, 8, 8."):
            client.score_relative(view, view, score=score, out=too_small)
        with pytest.raises(posenc.PosencError, match="weight_output"):
            client.convert_pairing(view[0].reshape(48, 8), **swap, out=view[0].reshape(48, 8))


@pytest.mark.parametrize("dtype", [numpy.float32, "torch"])
def test_where_the_server_shares_nothing_the_same_code_sends_bytes(shared_server, client, q, dtype):
    expected, _ = client.apply_rope(q, rope=SPEC, positions=5, layout="bshd")
    torch = pytest.importorskip("torch", reason="torch is not installed") if dtype == "torch" else None
    with posenc.Client(shared_server.address) as remote, remote.shared_region(BYTES) as region:
        assert region.name == "" and files() == []
        view = region.array(SHAPE, torch.float32 if torch else dtype)
        view[:] = torch.from_numpy(q) if torch else q
        remote.apply_rope(view, rope=SPEC, positions=5, layout="bshd", out=view)
        assert (numpy.asarray(view) == expected).all()


def info_response(**shared):
    info = messages.SharedMemoryInfo(directory="/dev/shm", prefix=PREFIX, **shared)
    return lambda request, context: b"".join(wire.encode(messages.GetServerInfoResponse(shared_memory=info)))


def failing(code, reason, text="no"):
    """Returns a method that refuses requests with places in shared memory, and echoes the tensor of other requests."""
    trailer = fake.details(reason, "")

    def apply(request, context):
        message = wire.decode(messages.ApplyRopeRequest, request)
        if message.q.shared is None:
            return b"".join(wire.encode(messages.ApplyRopeResponse(q=message.q)))
        context.set_trailing_metadata([("grpc-status-details-bin", trailer)])
        return context.abort(code, text)

    return apply


@pytest.mark.parametrize(
    "code, reason",
    [
        (grpc.StatusCode.UNIMPLEMENTED, "SHARED_MEMORY_UNAVAILABLE"),
        (grpc.StatusCode.PERMISSION_DENIED, "SHARED_MEMORY_UNAVAILABLE"),
        (grpc.StatusCode.UNIMPLEMENTED, "FIELD_UNKNOWN"),  # the error of an older server
    ],
)
def test_a_server_that_refuses_places_gets_bytes(q, code, reason):
    answers = {"GetServerInfo": info_response(), "ApplyRope": failing(code, f"ERROR_REASON_{reason}")}
    with fake.serving(answers) as (server, address), posenc.Client(address) as client:
        with client.shared_region(BYTES) as region:
            view = region.array(SHAPE)
            view[:] = q
            assert client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", out=view)[0] is view
            assert [name for name, _, _ in server.calls] == ["GetServerInfo", "ApplyRope", "ApplyRope"]


def test_a_call_in_place_is_sent_once_and_its_error_says_what_to_do(q):
    answers = {"GetServerInfo": info_response(), "ApplyRope": failing(grpc.StatusCode.UNAVAILABLE, "")}
    with fake.serving(answers) as (server, address), posenc.Client(address) as client:
        with client.shared_region(2 * BYTES) as region:
            view, other = region.array(SHAPE), region.array(SHAPE, offset=BYTES)
            with pytest.raises(posenc.PosencError, match="q may have been rotated by then, .*: write it anew") as error:
                client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", out=view)
            assert error.value.code == "UNAVAILABLE" and len(server.calls) == 2
            with pytest.raises(posenc.PosencError) as error:
                client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", out=other)
            assert "anew" not in str(error.value) and len(server.calls) == 6


def test_errors_of_requests_in_place_leave_the_tensor_as_it_was(client, q):
    with client.shared_region(BYTES) as region:
        view = region.array(SHAPE)
        view[:] = q
        with pytest.raises(posenc.PosencError, match="^layout: ") as error:
            client.apply_rope(view, rope=SPEC, positions=5, layout=None, out=view)
        assert "anew" not in str(error.value) and (view == q).all()


def test_a_file_that_is_gone_or_cut_is_an_error_that_names_the_tensor(client, q):
    with client.shared_region(BYTES) as region:
        view = region.array(SHAPE)
        view[:] = q
        path = Path("/dev/shm", region.name)
        os.truncate(path, 100)
        with pytest.raises(posenc.PosencError) as error:
            client.apply_rope(view, rope=SPEC, positions=5, layout="bshd")
        assert error.value.code == "INVALID_ARGUMENT" and error.value.field.startswith("q.shared")
        path.unlink()
        with pytest.raises(posenc.PosencError) as error:
            client.apply_rope(view, rope=SPEC, positions=5, layout="bshd")
        assert error.value.reason == "SHARED_MEMORY_UNAVAILABLE" and error.value.field.startswith("q.shared")


# Files with the directory's group let containers of different users share a Kubernetes volume with an fsGroup.
def test_a_directory_that_gives_its_group_gets_files_of_the_group(shared_server, tmp_path):
    tmp_path.chmod(0o2770)
    with posenc.Client(shared_server.socket) as client:
        region = client.shared_region(10000, directory=str(tmp_path))
        found = os.stat(tmp_path / region.name)
        assert found.st_mode & 0o777 == 0o660 and found.st_size == 10000


def test_files_are_private_of_their_full_size_and_removed_at_the_end(shared_server):
    client = posenc.Client(shared_server.socket)
    region, other = client.shared_region(10000), client.shared_region(1, name=PREFIX + "named")
    assert sorted(files()) == sorted([region.name, other.name]) and other.name == PREFIX + "named"
    found = os.stat(f"/dev/shm/{region.name}")
    assert found.st_mode & 0o777 == 0o600 and found.st_size == 10000 and found.st_blocks * 512 >= 10000
    view = region.array(100)
    region.close()
    region.close()
    view[:] = 1  # the view stays valid after close()
    assert (client.apply_rope(view.reshape(1, 5, 2, 10), rope=SPEC, positions=0, layout="bshd")[0] != 1).any()
    assert files() == [other.name]
    client.close()
    assert files() == []


def test_files_are_removed_when_python_ends_but_not_by_its_children(shared_server):
    code = f"""if True:
        import os, posenc, sys
        region = posenc.Client({shared_server.socket!r}).shared_region(4096)
        child = os.fork()
        if child == 0:
            sys.exit(0)
        os.waitpid(child, 0)
        assert os.path.exists("/dev/shm/" + region.name)
    """
    subprocess.run([sys.executable, "-c", code], check=True)
    assert files() == []


@pytest.mark.parametrize(
    "arguments, text",
    [
        ({"size": 0}, "size: is 0; must be above 0"),
        ({"size": -1}, "size: is -1"),
        ({"size": "many"}, "size: is 'many'; must be int64"),
        ({"size": 2**62}, "size: .* the server maps at most"),
        ({"size": 8, "name": "x"}, "name: is 'x'; must begin with"),
        ({"size": 8, "name": ""}, "name: is ''; must begin with .*, and have up to 255 letters"),
        ({"size": 8, "name": PREFIX + "/../x"}, "name: is .*; must begin with .*, and have up to 255 letters"),
        ({"size": 8, "name": PREFIX + "x" * 255}, "name: is .*; must begin with .*, and have up to 255 letters"),
        ({"size": 8, "name": 3}, "name: is 3; must begin"),
        ({"size": 8, "directory": "/nowhere"}, "directory: /nowhere/.*: No such file"),
    ],
)
def test_regions_that_cannot_be_are_one_clear_error(client, arguments, text):
    with pytest.raises(posenc.PosencError, match="^" + text) as error:
        client.shared_region(**arguments)
    assert error.value.code == "INVALID_ARGUMENT" and error.value.field == text.partition(":")[0] and files() == []


def test_a_name_that_is_taken_is_an_error_and_stays(client):
    with client.shared_region(8, name=PREFIX + "twice"):
        with pytest.raises(posenc.PosencError, match="^name: .* is there already"):
            client.shared_region(8, name=PREFIX + "twice")
        assert files() == [PREFIX + "twice"]


@pytest.mark.parametrize(
    "arguments, text",
    [
        (((1, 2, 3, 16),), "shape: .* needs 384 bytes; there are 64"),
        (((16,), "float32", 4), "shape: .* at offset 4 needs 68 bytes; there are 64"),
        (((-1, 4),), "shape: is .*; must not be negative"),
        (((4,), "float32", 2), "offset: is 2; must be a multiple of 4"),
        (((4,), "float32", -4), "offset: is -4; must be a multiple of 4, 0 or more"),
        (((4,), "complex64"), "dtype: complex64 is not supported"),
        (((1.5,),), "shape: is 1.5; must be int64"),
    ],
)
def test_views_that_cannot_be_are_one_clear_error(client, arguments, text):
    with client.shared_region(64) as region:
        with pytest.raises(posenc.PosencError, match="^" + text) as error:
            region.array(*arguments)
        assert error.value.field == text.partition(":")[0]
        assert region.array((0, 4)).shape == (0, 4)
    with pytest.raises(posenc.PosencError, match="^region: is closed"):
        region.array((4,))


async def in_place(target, x):
    async with posenc.AsyncClient(target) as client:
        with await client.shared_region(x.nbytes) as region:
            view = region.array(x.shape)
            view[:] = x
            await client.apply_rope(view, rope=SPEC, positions=5, layout="bshd", out=view)
            return view.copy()


def test_the_asyncio_client_rotates_in_place(shared_server, q):
    import asyncio

    oracle.assert_near(asyncio.run(in_place(shared_server.socket, q)), oracle.rotate(q, numpy.arange(5, 12)))
