"""A server in the test's own process. It records the requests that it receives."""

import io
import math
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass

import grpc
import numpy
from posenc import PosencError, messages
from posenc.channels import Call
from posenc.tensor import ELEMENT_BYTES
from posenc.wire import REPEATED, Message, decode, encode, field, fields_of

SERVICE = "posenc.v1.PositionalEncodingService"


class Fake:
    """answers: for each method, a function of (request, context) that returns bytes, or yields bytes for a stream."""

    def __init__(self, answers):
        self.answers = answers
        self.calls = []  # (method, metadata, request)

    def service(self, details):
        name = details.method.rpartition("/")[2]
        if name not in self.answers:
            return None

        def unary(request, context):
            self.calls.append((name, dict(context.invocation_metadata()), request))
            return self.answers[name](request, context)

        def stream(requests, context):
            self.calls.append((name, dict(context.invocation_metadata()), b""))
            yield from self.answers[name](requests, context)

        if name.endswith("Stream") or name == "BuildBias":
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


@contextmanager
def serving(answers, credentials=None):
    """Yields the fake server and its address."""
    fake = Fake(answers)
    server = grpc.server(futures.ThreadPoolExecutor(4), handlers=(fake,))
    if credentials is None:
        port = server.add_insecure_port("127.0.0.1:0")
    else:
        port = server.add_secure_port("127.0.0.1:0", credentials)
    server.start()
    try:
        yield fake, f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait(10)


def info(version=b"9.9.9"):
    return lambda request, context: b"\x0a" + bytes([len(version)]) + version


def bytes_of(message):
    return b"".join(encode(message))


@dataclass
class Pair(Message):
    """Has the wire format of google.protobuf.Any, and of an entry of a map."""

    key: str = field(1, "string")
    value: bytes = field(2, "bytes")


@dataclass
class Pairs(Message):
    """Has the wire format of google.rpc.Status, and of google.rpc.ErrorInfo."""

    reason: str = field(1, "string")
    pairs: list[Pair] = field(3, Pair, REPEATED)


def details(reason, name):
    """Returns the trailer of an error with a reason and a field."""
    info = bytes_of(Pairs(reason, [Pair("field", name.encode())]))
    return bytes_of(Pairs("", [Pair("type.googleapis.com/google.rpc.ErrorInfo", info)]))


def rejoining(client, method, request_type):
    """Returns the answer function of a stream.
    This function joins the request messages, makes the unary call, and cuts the answer at random bytes."""
    random = numpy.random.default_rng(45)

    def answer(requests, context):
        first, *rest = [decode(request_type, request) for request in requests]
        call, data = first.call, b"".join(bytes(message.data) for message in (first, *rest))
        filled = io.BytesIO(data)
        for tensor in described(call):
            tensor.data = filled.read(math.prod(tensor.shape) * ELEMENT_BYTES[tensor.dtype])
        assert filled.tell() == len(data) and filled.read() == b""
        try:
            answer = client._ask(call, getattr(messages, method + "Response"), Call())
        except PosencError as error:
            trailer = details(f"ERROR_REASON_{error.reason}", error.field)
            context.set_trailing_metadata([("grpc-status-details-bin", trailer)])
            context.abort(getattr(grpc.StatusCode, error.code), str(error))
        rotated = b"".join(bytes(t.data) for t in (getattr(answer, "q", None), answer.k) if t is not None)
        cuts = sorted(random.integers(0, len(rotated) + 1, 9))
        for begin, end in zip([0, *cuts], [*cuts, len(rotated)]):
            yield bytes_of(messages.ApplyRopeStreamResponse(data=rotated[begin:end]))

    return answer


def described(message):
    """Yields the tensors that a description has without bytes. Their bytes follow in the stream in the same order."""
    for f in fields_of(type(message)).values():
        value = getattr(message, f.name)
        if isinstance(value, messages.Tensor):
            if not len(value.data) and not value.values:
                yield value
        elif isinstance(value, Message):
            yield from described(value)
