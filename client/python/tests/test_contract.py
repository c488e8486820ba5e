"""Compares the client's wire format with protobuf's, and generated files with the generators' present output."""

import json
import subprocess
import sys
from pathlib import Path

import numpy
import pytest
from conftest import ROOT
from posenc import coerce, messages, wire

HERE = Path(__file__).resolve().parents[1]
PROTO = ROOT / "proto"
NAMES = ["tensor", "rope", "absolute", "relative", "diagnosis", "service"]


@pytest.fixture(scope="module")
def protobuf(tmp_path_factory):
    """Returns a function from the name of a message to protobuf's class of the message."""
    protoc = pytest.importorskip("grpc_tools.protoc", reason="grpcio-tools is not installed")
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    path = tmp_path_factory.mktemp("proto") / "descriptors"
    files = [f"posenc/v1/{name}.proto" for name in NAMES]
    assert protoc.main(["protoc", f"-I{PROTO}", f"--descriptor_set_out={path}", *files]) == 0
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(path.read_bytes()).file:
        pool.Add(file)
    return lambda name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"posenc.v1.{name}"))


def vectors():
    for path in sorted((PROTO / "testdata/conformance").glob("*.json")):
        for case in json.loads(path.read_text("utf-8")):
            yield case


def test_every_request_of_the_vectors_is_written_as_protobuf_writes_it(protobuf):
    from google.protobuf import json_format

    count = 0
    for case in vectors():
        name = case["rpc"] + "Request"
        expected = json_format.ParseDict(case["request"], protobuf(name)())
        ours = coerce.message_of(getattr(messages, name), case["request"], "request")
        actual = protobuf(name).FromString(b"".join(wire.encode(ours)))
        assert actual == expected, case["name"]
        again = wire.decode(type(ours), expected.SerializeToString())
        for given in getattr(again, "inputs", []):
            given.gguf = bytes(given.gguf)  # decode() made it a view of the serialized message
        # Compares repr(), because NaN is not equal to itself.
        assert repr(again) == repr(ours), case["name"]
        count += 1
    assert count > 500


def test_negative_and_large_numbers_are_read_as_written():
    for value in (-(2**63), -1, 0, 1, 2**63 - 1):
        written = b"".join(wire.encode(messages.Positions(start=value)))
        assert wire.decode(messages.Positions, written).start == value


def test_fields_and_enum_values_of_a_newer_server_are_kept_apart():
    newer = b"\x20\x63" + b"\xf8\x3f\x01" + b"\xfa\x3f\x02hi" + b"\xfd\x3f1234" + b"\xf9\x3f12345678"
    spec = wire.decode(messages.RopeSpec, newer)
    assert spec.pairing == 99 and spec == messages.RopeSpec(pairing=99)


@pytest.mark.parametrize("broken", [b"\x0a\x05ab", b"\x0a", b"\x80" * 11, b"\x0f", b"\x09123"])
def test_what_is_no_message_is_an_error(broken):
    with pytest.raises(Exception, match="the answer is no RopeSource"):
        wire.decode(messages.RopeSource, broken)


def test_large_bytes_are_borrowed_both_ways():
    data = numpy.arange(1000, dtype=numpy.float32)
    tensor = messages.Tensor(1, [1000], data=data.view(numpy.uint8).data)
    pieces = wire.encode(messages.ApplyRopeResponse(q=tensor))
    assert any(isinstance(p, memoryview) and numpy.shares_memory(numpy.asarray(p), data) for p in pieces)
    received = b"".join(pieces)
    view = numpy.frombuffer(wire.decode(messages.ApplyRopeResponse, received).q.data, numpy.uint8)
    assert numpy.shares_memory(view, numpy.frombuffer(received, numpy.uint8))


def test_the_messages_are_those_of_the_contract(protobuf, tmp_path):
    out = tmp_path / "messages.py"
    subprocess.run([sys.executable, HERE / "tools/generate_messages.py", PROTO, out], check=True)
    assert out.read_text() == (HERE / "src/posenc/messages.py").read_text(), "client/python/run generate"


def test_the_blocking_client_is_made_from_the_one_for_asyncio(tmp_path):
    out = tmp_path / "client.py"
    subprocess.run([sys.executable, HERE / "tools/generate_client.py", HERE / "src/posenc/aio.py", out], check=True)
    assert out.read_text() == (HERE / "src/posenc/client.py").read_text(), "client/python/run generate"


def test_the_package_imports_neither_protobuf_nor_torch():
    code = "import posenc, sys; sys.exit(bool({'google.protobuf', 'torch', 'ml_dtypes'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_types_are_sound():
    pytest.importorskip("mypy", reason="mypy is not installed")
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", "--cache-dir", "/dev/null"]
    checked = subprocess.run([*command, "src", "tests/typed.py"], cwd=HERE, capture_output=True, text=True)
    assert checked.returncode == 0, checked.stdout
