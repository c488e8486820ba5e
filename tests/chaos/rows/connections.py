"""Peers that hold connections: dead peers (R12), slow peers (R13), too many (R15),
and very many one after the other (R16)."""
import os
import select
import time

import h2
from process import MIB, Server, until
from rows import certificates
from world import mib, ms, within

RESOLVE = h2.SERVICE + "GetServerInfo"


def idle_peers(world):
    """R12: peers that made a call, and then answer nothing, not even pings. To
    the server, a stopped process looks the same."""
    peers = world.size(50, 200)
    flags = world.flags(keepalive_time="2s", keepalive_timeout="1s")
    with Server(world, *flags, tcp=True) as server:
        base = server.descriptors()
        connections = [h2.Connection(server.address) for _ in range(peers)]
        for connection in connections:
            connection.call(RESOLVE)
        began = time.monotonic()
        dropped = until(lambda: server.descriptors() <= base, 8 if flags else 6, 0.05)
        took = time.monotonic() - began
        world.add("R12", f"{peers} peers that answer nothing are dropped",
                  "keepalive time + timeout + 2 s = 5 s",
                  f"{took:.1f} s, {server.descriptors() - base} left"
                  + ("" if flags else " (no --keepalive-time)"), dropped and took <= 5)
        for connection in connections:
            connection.close()


def half_headers(address):
    connection = h2.Connection(address)
    connection.send(h2.frame(h2.HEADERS, 0, 1, h2.block(RESOLVE)[:20]))
    return connection.sock


def silent(address):
    return h2.connect(address)


def half_preface(address):
    sock = h2.connect(address)
    sock.sendall(h2.PREFACE[:10])
    return sock


def no_call(address):
    return h2.Connection(address).sock


def closed_after(sockets, began, patience):
    """Returns how many sockets the peer closed, and the time until the last close."""
    poll = select.poll()
    open_sockets = {sock.fileno(): sock for sock in sockets}
    for number in open_sockets:
        poll.register(number, select.POLLIN)
    closed, last = 0, 0.0
    while open_sockets and time.monotonic() - began < patience:
        for number, _ in poll.poll(100):
            try:
                more = open_sockets[number].recv(65536)
            except OSError:
                more = b""
            if not more:
                poll.unregister(number)
                open_sockets.pop(number).close()
                closed, last = closed + 1, time.monotonic() - began
    for sock in open_sockets.values():
        sock.close()
    return closed, last


def slowloris(world):
    limits = {"handshake_timeout": "2s", "max_connection_idle": "4s"}
    # gRPC varies ages by a tenth. The fresh client ends before its connections reach
    # their age, because it does not retry calls that a GOAWAY refuses.
    aged = {"max_connection_age": "2s", "max_connection_age_grace": "1s"}
    each = world.size(100, 1000)
    for name, limit, make, more in (("that say nothing", 2, silent, {}),
                                    ("with half a preface", 2, half_preface, {}),
                                    ("with half of their HEADERS", 4, half_headers, aged),
                                    ("without a call", 4, no_call, {})):
        flags = world.flags(**limits, **more)
        with Server(world, *flags, tcp=True, descriptors=4096) as server:
            began = time.monotonic()
            sockets = [make(server.address) for _ in range(each)]
            fresh = world.offer(server, path=RESOLVE, rate=50, connections=4,
                                seconds=1 if more else 2, warm_up=0)
            closed, last = closed_after(sockets, began, limit + 4)
            report = fresh.wait()
            world.add("R13", f"{each} connections {name} are closed", f"all within {limit + 2} s",
                      f"{closed}, the last after {last:.1f} s" + ("" if flags else " (no limits)"),
                      closed == each and last <= limit + 2)
            world.add("R13", "a fresh client meanwhile", "p99 50 ms, 0 fail",
                      f"p99 {ms(report['good_p99_ms'])}, {report['due'] - report['good']} fail",
                      report["due"] == report["good"] and within(report["good_p99_ms"], 50))


def dribble(world):
    """Calls whose DATA comes byte by byte, without a deadline of the client."""
    peers, deadline = world.size(50, 200), 3
    with Server(world, "--default-deadline", f"{deadline}s", tcp=True) as server:
        calls = []
        for _ in range(peers):
            connection = h2.Connection(server.address)
            stream = connection.headers(h2.SERVICE + "ApplyRope")
            connection.data(stream, b"\0\0\x10\0\0", end=False)
            calls.append((connection, stream))
        began, ended = time.monotonic(), set()
        while len(ended) < peers and time.monotonic() - began < deadline + 4:
            for index, (connection, stream) in enumerate(calls):
                if index in ended:
                    continue
                connection.send(h2.frame(h2.DATA, 0, stream, b"\0"))
                while (got := connection.read(0.001)) is not None:
                    if got.stream == stream and (got.kind == h2.RST or got.flags & h2.END_STREAM):
                        ended.add(index)
                if connection.closed:
                    ended.add(index)
            time.sleep(0.2)
        took = time.monotonic() - began
        world.add("R13", f"{peers} calls that dribble are ended at the server's deadline",
                  f"all within {deadline + 2} s", f"{len(ended)}, the last after {took:.1f} s",
                  len(ended) == peers and took <= deadline + 2)
        for connection, _ in calls:
            connection.close()


def serves(address, seconds=1.0):
    try:
        with h2.Connection(address, timeout=seconds) as connection:
            return connection.call(RESOLVE, timeout=seconds) == 0
    except OSError:
        return False


def exhaustion(world):
    """R15: 128 descriptors, and 500 connections that send nothing and then close. A new
    client's call waits until the server ends the first of these connections."""
    with Server(world, *world.flags(handshake_timeout="2s"), tcp=True,
                descriptors=128) as server:
        sockets = []
        for _ in range(500):
            try:
                sockets.append(h2.connect(server.address, timeout=1))
            except OSError:
                break
        newcomer = until(lambda: serves(server.address), 6, 0.1)
        for sock in sockets:
            sock.close()
        began = time.monotonic()
        again = until(lambda: serves(server.address), 8, 0.05)
        took = time.monotonic() - began
        world.add("R15", f"{len(sockets)} connections, 128 descriptors: a newcomer's call",
                  "answered after the handshake timeout",
                  "answered" if newcomer else "not answered in 6 s", newcomer)
        world.add("R15", "serves again once they are closed", "1 s",
                  f"{took:.1f} s" if again else f"not in {took:.0f} s", again and took <= 1)
        world.add("R15", "the server lives", "yes", str(server.alive()), server.alive())


def churn(world):
    """R16: connect, call, close, again and again."""
    churn_of(world, "", world.size(10_000, 100_000))
    if world.knows("--tls-cert"):
        authority = certificates.Authority(os.path.join(world.work, "churn-certificates"))
        churn_of(world, " over TLS", world.size(1_000, 100_000), authority.server_flags(),
                 authority.context())


def churn_of(world, name, count, flags=(), context=None):
    with Server(world, *flags, tcp=True) as server:
        def once(i):
            # Uses other addresses of loopback, so that ports in TIME_WAIT are no
            # limit.
            try:
                with h2.Connection(server.address, source=f"127.0.0.{2 + i % 250}",
                                   context=context) as connection:
                    return connection.call(RESOLVE) == 0
            except OSError:  # includes TLS's errors
                return False
        for i in range(500):
            once(i)
        base = (server.rss(), server.descriptors(), server.threads())
        failed = sum(not once(i) for i in range(count))
        until(lambda: server.descriptors() <= base[1], 5)
        world.add("R16", f"{count} connections with a call each{name}", "0 fail", f"{failed} fail",
                  failed == 0)
        grown = server.rss() - base[0]
        world.add("R16", f"memory, descriptors, threads after them{name}", "+5 MiB, +0, +4",
                  f"{grown / MIB:+.1f} MiB, {server.descriptors() - base[1]:+d}, "
                  f"{server.threads() - base[2]:+d} ({mib(server.rss())})",
                  grown <= 5 * MIB and server.descriptors() <= base[1]
                  # The RPC library's number of threads varies a little.
                  and server.threads() <= base[2] + 4)


def run(world):
    idle_peers(world)
    slowloris(world)
    dribble(world)
    exhaustion(world)
    churn(world)
