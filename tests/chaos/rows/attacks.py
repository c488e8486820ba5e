"""R17: wrong and hostile HTTP/2, while another client uses the server. R18: a
message that inflates.

A case passes if the process lives and the other client's calls all succeed. Debian's
RPC library cannot stop the heavy cases (resets, CONTINUATION, header strings). Only
client certificates, or an edge, can stop them before the library's parser. So the
memory of these cases has a goal only behind client certificates (this file) or the
edge (edge.py).
"""
import contextlib
import os
import ssl
import struct
import time
import zlib

import h2
from process import MIB, Server
from rows import certificates
from world import failures, mib, ms

PATH = h2.SERVICE + "ResolveRope"
ENDLESS = 8 * MIB  # bytes of headers


def opened(address):
    return h2.Connection(address)


def drain(connection, seconds=0.3):
    """Reads the server's bytes, until it closes or sends no more."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and connection.read(0.1) is not None:
        pass
    connection.close()


def raw(*parts):
    """A case that sends these bytes after a good preface."""
    def case(address):
        connection = opened(address)
        for part in parts:
            if not connection.send(part):
                break
        drain(connection)
    return case


def without_preface(*parts):
    def case(address):
        sock = h2.connect(address)
        with contextlib.suppress(OSError):
            for part in parts:
                sock.sendall(part)
            sock.settimeout(0.3)
            while sock.recv(65536):
                pass
        sock.close()
    return case


def call_with(more=(), without=(), body=b""):
    """A case that makes a call with odd headers."""
    def case(address):
        connection = opened(address)
        block = h2.block(PATH, None, more, without)
        connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, block)
                        + h2.frame(h2.DATA, h2.END_STREAM, 1, body or h2.message()))
        drain(connection)
    return case


GOOD = h2.block(PATH)


def good_call(stream):
    return (h2.frame(h2.HEADERS, h2.END_HEADERS, stream, GOOD)
            + h2.frame(h2.DATA, h2.END_STREAM, stream, h2.message()))


# Each name states the fault.
CASES = {
    "no preface, but HTTP/1": without_preface(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "no preface, but a TLS hello": without_preface(b"\x16\x03\x01\x02\x00" + os.urandom(512)),
    "a preface with a wrong byte": without_preface(h2.PREFACE[:-3] + b"X\r\n"),
    "the preface twice": raw(h2.PREFACE),
    "random bytes": raw(os.urandom(1 << 16)),
    "a frame of 16 MiB - 1": raw(h2.frame(h2.DATA, 0, 1, b"x" * 65536, length=0xffffff)),
    "a HEADERS frame over the limit": raw(h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\0" * 20000)),
    "SETTINGS of 5 bytes": raw(h2.frame(h2.SETTINGS, 0, 0, b"\0" * 5)),
    "SETTINGS on a stream": raw(h2.frame(h2.SETTINGS, 0, 1)),
    "SETTINGS with a window over 2^31": raw(h2.settings((4, 0xffffffff))),
    "SETTINGS with a frame size of 0": raw(h2.settings((5, 0))),
    "a SETTINGS ACK with payload": raw(h2.frame(h2.SETTINGS, h2.ACK, 0, b"\0" * 6)),
    "PING of 7 bytes": raw(h2.frame(h2.PING, 0, 0, b"\0" * 7)),
    "PING on a stream": raw(h2.frame(h2.PING, 0, 1, b"\0" * 8)),
    "WINDOW_UPDATE of 0": raw(good_call(1), h2.frame(h2.WINDOW, 0, 1, b"\0" * 4)),
    "a window over 2^31": raw(h2.frame(h2.WINDOW, 0, 0, struct.pack(">I", 0x7fffffff)) * 3),
    "WINDOW_UPDATE of 3 bytes": raw(h2.frame(h2.WINDOW, 0, 0, b"\0" * 3)),
    "RST_STREAM of 3 bytes": raw(h2.frame(h2.RST, 0, 1, b"\0" * 3)),
    "RST_STREAM of an idle stream": raw(h2.frame(h2.RST, 0, 99, b"\0" * 4)),
    "stream 0": raw(h2.frame(h2.HEADERS, h2.END_HEADERS, 0, GOOD)),
    "an even stream": raw(good_call(2)),
    "a stream twice": raw(good_call(1), good_call(1)),
    "streams that go backwards": raw(good_call(9), good_call(3)),
    "DATA on an idle stream": raw(h2.frame(h2.DATA, 0, 1, b"x" * 100)),
    "DATA after the end": raw(good_call(1), h2.frame(h2.DATA, 0, 1, b"x" * 100)),
    "DATA with padding longer than it": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, GOOD),
        h2.frame(h2.DATA, h2.PADDED | h2.END_STREAM, 1, b"\xff" + b"x" * 10)),
    "CONTINUATION without HEADERS": raw(h2.frame(h2.CONTINUATION, h2.END_HEADERS, 1, GOOD)),
    "another frame between HEADERS and CONTINUATION": raw(
        h2.frame(h2.HEADERS, 0, 1, GOOD[:10]), h2.frame(h2.PING, 0, 0, b"\0" * 8)),
    "PUSH_PROMISE from a client": raw(h2.frame(h2.PUSH, h2.END_HEADERS, 1, b"\0\0\0\2" + GOOD)),
    "a frame of an unknown kind": raw(h2.frame(0x77, 0xff, 1, b"x" * 100), good_call(1)),
    "GOAWAY, then a call": raw(h2.frame(h2.GOAWAY, 0, 0, b"\0" * 8), good_call(1)),
    "a header index beyond the table": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.integer(5000, 7, 0x80))),
    "a table size over the limit": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, h2.integer(1 << 20, 5, 0x20) + GOOD)),
    "an integer of many zero bytes": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\0\x7f" + b"\x80" * 12000 + b"\0")),
    "a Huffman code of ones": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, b"\0\x88" + b"\xff" * 8 + b"\x01x")),
    "no path": call_with(without=(":path",)),
    "no method": call_with(without=(":method",)),
    "two paths": call_with(more=[(":path", PATH)]),
    "an unknown scheme and 9 KiB of metadata": call_with(
        more=[("x", "y" * 9000)], without=(":scheme",)),
    "te that is no trailers, and metadata": call_with(
        more=[("te", "gzip"), ("x", "y" * 9000)], without=("te",)),
    "no content-type": call_with(without=("content-type",)),
    "a content-type of the web": call_with(more=[("content-type", "text/html")],
                                           without=("content-type",)),
    "-bin that is no base64": call_with(more=[("x-bin", "%%%%")]),
    "grpc-timeout that is no time": call_with(more=[("grpc-timeout", "soon")]),
    "a negative announcement": call_with(more=[("posenc-message-bytes", "-1")]),
    "an announcement of 2^63": call_with(more=[("posenc-message-bytes", str(1 << 63))]),
    "20 KiB of metadata": call_with(more=[(f"x-{i}", "y" * 1000) for i in range(14)]),
    "grpc-encoding that nobody has": call_with(more=[("grpc-encoding", "rot13")],
                                               body=h2.message(b"x", compressed=1)),
    "a message flag of 255": call_with(body=h2.message(b"x", compressed=255)),
    # rope { preset: "\a" }, which the error repeats.
    "a name that metadata cannot hold": call_with(body=h2.message(b"\x0a\x03\x12\x01\x07")),
    "a message of 4 GiB - 1": call_with(body=struct.pack(">BI", 0, 0xffffffff) + b"x" * 100),
    "headers after the end": raw(good_call(1), h2.frame(
        h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.header("x", "y"))),
    "trailers from the client, then DATA": raw(
        h2.frame(h2.HEADERS, h2.END_HEADERS, 1, GOOD),
        h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, 1, h2.header("x", "y")),
        h2.frame(h2.DATA, 0, 1, b"x")),
}


def flood(piece, times):
    """A case that sends `piece` again and again, until the connection
    ends."""
    def case(address):
        connection = opened(address)
        for _ in range(times):
            if not connection.send(piece):
                break
        drain(connection)
    return case


FLOODS = {
    "a flood of SETTINGS": flood(h2.settings((4, 65535)) * 1000, 100),
    "a flood of PING": flood(h2.frame(h2.PING, 0, 0, b"\0" * 8) * 1000, 100),
    "a flood of empty DATA": flood(h2.frame(h2.DATA, 0, 1) * 1000, 100),
    "a flood of PRIORITY": flood(h2.frame(h2.PRIORITY, 0, 1, b"\0" * 5) * 1000, 100),
    "a flood of WINDOW_UPDATE": flood(h2.frame(h2.WINDOW, 0, 0, b"\0\0\0\1") * 1000, 100),
    "a flood of RST_STREAM": flood(h2.frame(h2.RST, 0, 1, b"\0\0\0\x08") * 1000, 100),
    "a flood of unknown frames": flood(h2.frame(0x77, 0, 0, b"x" * 64) * 1000, 100),
}


def rapid_reset(address):
    """CVE-2023-44487: calls that are reset at once, as fast as they can be sent."""
    connection = opened(address)
    stream = 1
    for _ in range(600):
        piece = b""
        for _ in range(100):
            piece += (h2.frame(h2.HEADERS, h2.END_HEADERS, stream, GOOD)
                      + h2.frame(h2.DATA, 0, stream, h2.message(b"x" * 20)[:8])
                      + h2.frame(h2.RST, 0, stream, b"\0\0\0\x08"))
            stream += 2
        if not connection.send(piece):
            break
    drain(connection, 2)


def continuation_flood(address):
    """CVE-2023-33953: headers that never end, in many CONTINUATION frames."""
    connection = opened(address)
    connection.send(h2.frame(h2.HEADERS, 0, 1, GOOD))
    piece = h2.header("x", "y" * 900)
    piece = h2.frame(h2.CONTINUATION, 0, 1, piece * (16000 // len(piece)))
    for _ in range(ENDLESS // len(piece)):
        if not connection.send(piece):
            break
    drain(connection, 1)


def endless_string(address):
    """CVE-2023-33953: one header with an endless string, beside an open call, so that
    the connection is not idle."""
    connection = opened(address)
    connection.headers(h2.SERVICE + "ApplyRope")
    connection.send(h2.frame(h2.HEADERS, 0, 3, b"\0" + h2.text("x") + h2.integer(1 << 30)))
    piece = h2.frame(h2.CONTINUATION, 0, 3, b"y" * 16384)
    for _ in range(ENDLESS // 16384):
        if not connection.send(piece):
            break
    drain(connection, 1)


def many_streams(address):
    """Makes more calls than the server's settings allow, and never acknowledges these
    settings."""
    connection = opened(address)
    for i in range(2000):
        if not connection.send(h2.frame(h2.HEADERS, h2.END_HEADERS, 2 * i + 1, GOOD)):
            break
    drain(connection, 1)


def unread_answers(address):
    """Calls a method that does not exist, again and again, and reads no answer."""
    wrong, stream = h2.block(h2.SERVICE + "NoSuchMethod"), 1
    # Sends until the server stops reading.
    with contextlib.closing(opened(address)) as connection, contextlib.suppress(TimeoutError):
        connection.sock.settimeout(1)
        for _ in range(1000):
            calls = b""
            for _ in range(200):
                calls += h2.frame(h2.HEADERS, h2.END_HEADERS | h2.END_STREAM, stream, wrong)
                stream += 2
            connection.sock.sendall(calls)


HEAVY = {
    "rapid reset, 60 000 streams (CVE-2023-44487)": rapid_reset,
    "8 MiB of CONTINUATION (CVE-2023-33953)": continuation_flood,
    "8 MiB of one header string (CVE-2023-33953)": endless_string,
    "2000 streams at once": many_streams,
    "200 000 calls whose answers nobody reads": unread_answers,
}


def attack(case, address):
    """Runs a case. The server may close the connection."""
    with contextlib.suppress(OSError, ssl.SSLError):
        case(address)


def light(world):
    with Server(world, tcp=True) as server:
        base = server.rss()
        other = world.offer(server, path=PATH.replace("ResolveRope", "GetServerInfo"), rate=50,
                            connections=4, seconds=3600, deadline_ms=5000)
        died, count = [], 0
        for name, case in {**CASES, **FLOODS}.items():
            count += 1
            attack(case, server.address)
            if not server.alive():
                died.append(name)
                break
        other.popen.kill()
        other.popen.communicate()
        world.add("R17", f"{count} kinds of wrong HTTP/2: the process lives", "yes",
                  "yes" if not died else f"ended by {died[0]}", not died)
        world.add("R17", "peak memory meanwhile", "-", f"+{mib(server.peak() - base)}", None)


def beside(world):
    """Runs the cases again, and counts the calls of another client that fail meanwhile."""
    with Server(world, tcp=True) as server:
        seconds = 15
        other = world.offer(server, path=h2.SERVICE + "GetServerInfo", rate=50, connections=4,
                            seconds=seconds, deadline_ms=5000, warm_up=0)
        for case in CASES.values():
            attack(case, server.address)
            if other.popen.poll() is not None:
                break
        report = other.wait()
        world.add("R17", "another client's calls beside them", "0 fail",
                  f"{failures(report)} of {report['due']} fail, p99 {ms(report['good_p99_ms'])}",
                  failures(report) == 0)


def heavy(world, profile, start, address_of, goal):
    """`goal`: bytes that memory may grow by, or None for a figure without a
    goal."""
    for name, case in HEAVY.items():
        with start() as server:
            base, cpu = server.rss(), server.cpu()
            other = None
            if goal is None:
                other = world.offer(server, path=h2.SERVICE + "GetServerInfo", rate=50,
                                    connections=4, seconds=6, warm_up=0, deadline_ms=6000)
            attack(case, address_of(server))
            grown = server.peak() - base
            world.add("R17", f"{profile}: {name}",
                      "lives" if goal is None else f"lives, +{mib(goal)}",
                      f"{'lives' if server.alive() else 'ended'}, +{mib(grown)}, "
                      f"{server.cpu() - cpu:.1f} s of CPU" if server.alive() else "ended",
                      server.alive() and (goal is None or grown <= goal))
            if other:
                report = other.wait()
                world.add("R17", f"{profile}: another client beside it", "-",
                          f"{failures(report)} of {report['due']} fail, "
                          f"p99 {ms(report['good_p99_ms'])}", None)


def bomb(world):
    """R18: a mebibyte that inflates to a gibibyte."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    zeros = bytes(16 * MIB)
    body = b"".join(packer.compress(zeros) for _ in range(64)) + packer.flush()
    with Server(world) as server:
        base = server.peak()
        with h2.Connection(server.address) as connection:
            stream = connection.headers(h2.SERVICE + "ApplyRope", more=[("grpc-encoding", "gzip")])
            if connection.patient_data(stream, h2.message(body, compressed=1)):
                status, _, reset = connection.finish(stream, 30)
            else:
                last = connection.last
                status, reset = last and h2.status_of(last.payload), None
        grown = server.peak() - base
        world.add("R18", f"{len(body) / MIB:.1f} MiB that inflate to 1 GiB",
                  "UNIMPLEMENTED (12), +10 MiB",
                  f"status {status}, reset {reset}, +{mib(grown)}",
                  status == 12 and grown <= 10 * MIB)


def run(world):
    light(world)
    beside(world)
    heavy(world, "bare", lambda: Server(world, tcp=True), lambda server: server.address, None)
    if world.knows("--tls-cert"):
        pair = certificates.Authority(os.path.join(world.work, "attack-certificates"))
        heavy(world, "mTLS", lambda: Server(world, *pair.server_flags(), tcp=True),
              lambda server: server.address, 64 * MIB)
    else:
        world.add("R17", "mTLS: the heavy ones", "+64 MiB", "no --tls-cert", False)
    bomb(world)
