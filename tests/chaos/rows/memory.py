"""The bound of memory (R5), its return (R6), and peers that read slowly (R14)."""
import contextlib
import struct
import threading
import time

import h2
from process import MIB, Server, until
from world import mib

BUDGET, MESSAGE = 256 * MIB, 64 * MIB
FLAGS = ("--in-flight-bytes", f"{BUDGET >> 20}MiB", "--max-request-bytes", f"{MESSAGE >> 20}MiB",
         "--max-response-bytes", f"{MESSAGE >> 20}MiB")


def largest_messages(world):
    with Server(world, *FLAGS) as server:
        # Warms up, because pools and tables that a first call makes must not count as growth.
        world.offer(server, rpc="ApplyRope", size="64KiB", rate=50, connections=4, seconds=1).wait()
        base = server.rss()
        seconds = world.size(6, 30)
        loads = [world.offer(server, rpc="ApplyRope", size="60MiB", rate=100, connections=128,
                             seconds=seconds, deadline_ms=4000, no_announce=silent)
                 for silent in (False, True)]
        good = sum(load.wait()["good"] for load in loads)
        world.add("R5", "peak memory, 256 connections with the largest message at 10x",
                  f"base + budget + 10 % = {mib(base + 1.1 * BUDGET)}", mib(server.peak()),
                  server.peak() <= base + 1.1 * BUDGET)
        world.add("R5", "calls answered meanwhile", "more than 0", str(good), good > 0)
        returned = until(lambda: server.rss() <= 1.5 * base, 60, 0.5)
        world.add("R6", "memory 60 s later", f"1.5x base = {mib(1.5 * base)}", mib(server.rss()),
                  returned)


def liars(world):
    """Peers that announce a KiB, and send 60 MiB except for the last byte."""
    peers, size = 40, 60 * MIB
    body = struct.pack(">BI", 0, size) + bytes(size - 1)
    with Server(world, *FLAGS) as server:
        base = server.rss()
        connected = []

        def lie():
            with contextlib.suppress(OSError), h2.Connection(server.address) as connection:
                connected.append(connection)
                stream = connection.headers(h2.SERVICE + "ApplyRope",
                                            more=[("posenc-message-bytes", "1024")])
                connection.patient_data(stream, body, 10, end=False)

        threads = [threading.Thread(target=lie) for _ in range(peers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        bound = base + 1.1 * BUDGET
        world.add("R5", f"peak memory, {peers} peers that announce 1 KiB and send 60 MiB",
                  f"base + budget + 10 % = {mib(bound)}",
                  f"{mib(server.peak())}, {len(connected)} connected",
                  server.peak() <= bound and len(connected) == peers)


def many_calls(world):
    """A thousand connections have a hundred stalled calls each. Then the connections close."""
    peers, calls = 1000, 100
    with Server(world, *FLAGS) as server:
        world.offer(server, rpc="ApplyRope", size="64KiB", rate=50, connections=4, seconds=1).wait()
        base = server.rss()
        connections = []
        for _ in range(peers):
            connections.append(h2.Connection(server.address))
            for _ in range(calls):
                connections[-1].headers(h2.SERVICE + "ApplyRope", more=[("x-long", "y" * 200)])
        grown = until(lambda: server.rss() > 2 * base, 10, 0.1)
        for connection in connections:
            connection.close()
        returned = until(lambda: server.rss() <= 1.5 * base, 60, 0.5)
        world.add("R6", f"memory after {peers} connections with {calls} stalled calls have gone",
                  f"1.5x base = {mib(1.5 * base)}", mib(server.rss()), grown and returned)


def slow_readers(world):
    """Peers that ask for 8 MiB and never open the window, but answer pings."""
    peers, deadline = 100, 4
    body = world.request("BuildTable", "8MiB")
    with Server(world, *FLAGS, "--default-deadline", f"{deadline}s") as server:
        base = server.rss()
        began = time.monotonic()
        connections = []
        for _ in range(peers):
            connection = h2.Connection(server.address, window=65535, grow=False)
            stream = connection.headers(h2.SERVICE + "BuildTable")
            connection.data(stream, h2.message(body))
            connections.append((connection, stream))
        cut, longest = 0, 0.0
        for connection, stream in connections:
            left = began + deadline + 4 - time.monotonic()
            status, _, reset = connection.finish(stream, max(left, 0.05))
            if status not in (None, 0) or reset is not None or connection.closed:
                cut += 1
                longest = time.monotonic() - began
        world.add("R14", f"{peers} peers that never open the window: cut at the server's deadline",
                  f"all within {deadline + 2} s", f"{cut}, the last after {longest:.1f} s",
                  cut == peers and longest <= deadline + 2)
        bound = base + 1.1 * BUDGET
        world.add("R14", "peak memory meanwhile", f"base + budget + 10 % = {mib(bound)}",
                  mib(server.peak()), server.peak() <= bound)
        for connection, _ in connections:
            connection.close()


def run(world):
    largest_messages(world)
    liars(world)
    many_calls(world)
    slow_readers(world)
