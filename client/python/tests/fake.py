"""A server in the test's own process, which records what it is sent."""

from concurrent import futures
from contextlib import contextmanager

import grpc

SERVICE = "posenc.v1.PositionalEncodingService"


class Fake:
    """answers: by method, a function of (request, context) that gives bytes."""

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

        if name.endswith("Stream"):
            return grpc.stream_stream_rpc_method_handler(stream)
        return grpc.unary_unary_rpc_method_handler(unary)


@contextmanager
def serving(answers, credentials=None):
    """Yields the fake and the address it is served at."""
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
