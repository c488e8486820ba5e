"""Measures the time and the peak memory of one case, in a process of its own.

    python bench.py TARGET CASE

The cases unary64, unary1 and stream256 rotate 64, 1 and 256 MiB. The case token1 rotates
one token, and shows the peak memory of the program itself. The cases echo64 and echo1
measure grpcio alone. They send the same bytes to an echo server in another process.
"""

import json
import multiprocessing
import statistics
import sys
import time
from concurrent import futures

import grpc
import numpy
import posenc

MIB = 1 << 20
# The benchmarks of all clients make unmeasured calls first. Here these
# calls take WARM_UP seconds, and are at least CALLS calls.
WARM_UP, CALLS = 2, 4
HEADS, CHANNELS = 32, 128
UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


def peak_bytes():
    with open("/proc/self/status", encoding="ascii") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM"))


def rotation(target, mib):
    client = posenc.Client(target)
    tokens = int(mib * MIB) // (4 * HEADS * CHANNELS)
    q = numpy.full((1, tokens, HEADS, CHANNELS), 0.5, numpy.float32)
    out = numpy.ones_like(q)

    def call():
        client.apply_rope(q, rope={"pairing": "half_split"}, positions=0, layout="bshd", out=out)

    return call


def serve_echo(port):
    server = grpc.server(futures.ThreadPoolExecutor(2), options=UNLIMITED)
    echo = grpc.unary_unary_rpc_method_handler(lambda request, context: request)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("echo", {"Echo": echo}),))
    port.put(server.add_insecure_port("127.0.0.1:0"))
    server.start()
    server.wait_for_termination()


def echo(mib):
    fork = multiprocessing.get_context("spawn")
    port = fork.SimpleQueue()
    fork.Process(target=serve_echo, args=(port,), daemon=True).start()
    method = grpc.insecure_channel(f"127.0.0.1:{port.get()}", options=UNLIMITED).unary_unary("/echo/Echo")
    q = numpy.full(mib * MIB, 1, numpy.uint8)
    return lambda: method(q.tobytes())


def main(target, case):
    mib = 1 / 64 if case == "token1" else int(case.lstrip("abcdefghijklmnopqrstuvwxyz"))
    call = echo(mib) if case.startswith("echo") else rotation(target, mib)
    begin = time.perf_counter()
    took, seconds = [], []
    while len(seconds) < (2 if mib >= 256 else 5):
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
        if start - begin >= WARM_UP and len(took) > CALLS:
            seconds.append(took[-1])
    figures = {"seconds": statistics.median(seconds), "first_seconds": took[0],
               "peak_bytes": peak_bytes(), "tensor_bytes": int(mib * MIB)}
    print(json.dumps({"client": "python", "case": case, **figures}))


if __name__ == "__main__":
    main(*sys.argv[1:])
