"""Starts and stops (R28), work that is stuck at drain (R10), and work whose
client no longer waits (R24)."""
import os
import random
import signal
import socket
import statistics
import subprocess
import time

import h2
from process import MIB, Server, until
from world import failures, mib


def starts(world):
    times, codes = [], []
    for _ in range(world.size(20, 200)):
        began = time.monotonic()
        with Server(world) as server:
            times.append((time.monotonic() - began) * 1000)
            codes.append(server.terminate(10)[0])
    world.add("R28", f"ready after a start, median of {len(times)}", "250 ms",
              f"{statistics.median(times):.0f} ms, longest {max(times):.0f} ms",
              statistics.median(times) <= 250)
    world.add("R28", "exit codes after SIGTERM", "all 0", str(sorted(set(codes), key=str)),
              set(codes) == {0})


def refused_starts(world):
    taken = socket.socket()
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    port = taken.getsockname()[1]
    for what, flags in (("an unknown flag", ["--no-such-flag"]),
                        ("a bad size", ["--in-flight-bytes", "many"]),
                        ("a port in use", ["--listen", f"127.0.0.1:{port}"])):
        began = time.monotonic()
        done = subprocess.run([world.program("posencd"), *flags], check=False, timeout=10,
                              capture_output=True, text=True)
        took = (time.monotonic() - began) * 1000
        lines = (done.stdout + done.stderr).strip().splitlines()
        world.add("R28", f"start with {what}", "non-zero exit, one line, 100 ms",
                  f"exit {done.returncode}, {len(lines)} line(s), {took:.0f} ms",
                  done.returncode != 0 and len(lines) == 1 and took <= 100)
    taken.close()


def stuck_drain(world):
    """Calls whose client never reads, and calls that still wait, at SIGTERM."""
    body = world.request("BuildTable", "64MiB")
    with Server(world, "--drain-timeout", "2s", "--lame-duck", "0s") as server:
        connections = []
        for _ in range(24):
            connection = h2.Connection(server.address, window=65535, grow=False)
            stream = connection.headers(h2.SERVICE + "BuildTable")
            connection.data(stream, h2.message(body))
            connections.append((connection, stream))
        until(lambda: server.rss() > 100 * MIB, 5)
        code, took = server.terminate(10)
        told = 0
        for connection, stream in connections:
            status, _, reset = connection.finish(stream, 0.2)
            told += status in (1, 14) or reset is not None or connection.goaway or connection.closed
            connection.close()
        world.add("R10", "exit with stuck calls, drain of 2 s", "3 s, code 0",
                  f"{took:.1f} s, code {code}", code == 0 and took <= 3)
        world.add("R10", "their clients are told", f"all {len(connections)}", str(told),
                  told == len(connections))


def busy_drain(world):
    """SIGTERM while more calls keep arriving than can be answered."""
    with Server(world, "--drain-timeout", "1s", "--lame-duck", "0s") as server:
        load = world.offer(server, rpc="BuildTable", size="256KiB", rate=30000, seconds=8,
                           warm_up=0, connections=16)
        time.sleep(1)
        code, took = server.terminate(10)
        load.popen.kill()
        load.popen.communicate()
        world.add("R10", "exit at 30,000 calls/s, drain of 1 s", "2 s, code 0",
                  f"{took:.1f} s, code {code}", code == 0 and took <= 2)


def cancelled_work(world):
    """Measures the CPU time that the server still uses when no client waits. The calls
    compute for 100 ms or more; clients give them up after 30 ms, by a reset or by
    closing the connection."""
    body = world.request("BuildTable", "256MiB")
    with Server(world) as server:
        def begin():
            connection = h2.Connection(server.address)
            stream = connection.headers(h2.SERVICE + "BuildTable")
            before = server.cpu()
            connection.data(stream, h2.message(body))
            return connection, stream, before

        def settle():
            """Returns the CPU time once it no longer changes."""
            last = server.cpu()
            for _ in range(200):
                time.sleep(0.02)
                now = server.cpu()
                if now - last < 0.0005:
                    return now
                last = now
            return last

        settle()
        connection, stream, before = begin()
        connection.finish(stream, 10)
        whole = settle() - before
        connection.close()
        for how in ("reset", "connection"):
            spent = []
            for _ in range(world.size(5, 20)):
                settle()
                connection, stream, before = begin()
                until(lambda at=before: server.cpu() - at > 0.03, 2, 0.001)
                if how == "reset":
                    connection.send(h2.frame(h2.RST, 0, stream, (8).to_bytes(4, "big")))
                else:
                    connection.close()
                at = server.cpu()
                spent.append((settle() - at) * 1000)
                connection.close()
            world.add("R24", f"CPU after a call was given up ({how}), of {whole * 1000:.0f} ms",
                      "20 ms (median)", f"{statistics.median(spent):.0f} ms",
                      statistics.median(spent) <= 20)


def cancelled_half(world):
    """Clients give up half of the calls at random times. Afterwards no call may claim budget."""
    flags = ("--in-flight-bytes", "256MiB", "--max-request-bytes", "128MiB",
             "--max-response-bytes", "128MiB")
    with Server(world, *flags) as server:
        base = server.rss()
        seconds = world.size(3, 20)
        kept = world.offer(server, rpc="ApplyRope", size="256KiB", rate=500, seconds=seconds,
                           connections=8)
        while kept.popen.poll() is None:
            world.offer(server, rpc="BuildTable", size="4MiB", rate=200, seconds=0.5, warm_up=0,
                        connections=4, cancel_ms=random.choice((1, 3, 10))).wait()
        bad = failures(kept.wait())
        world.add("R24", "calls beside others that are given up", "0 fail", f"{bad} fail", bad == 0)
        # A call that needs nearly the whole budget shows that none of it leaked.
        report = world.offer(server, rpc="ApplyRope", size="120MiB", rate=2, seconds=2, warm_up=0,
                             connections=1, deadline_ms=10000).wait()
        world.add("R24", "the whole budget is free again", "0 fail",
                  f"{failures(report)} of {report['due']} fail", failures(report) == 0)
        bound = max(1.5 * base, base + 16 * MIB)
        returned = until(lambda: server.rss() <= bound, 60, 0.5)
        world.add("R6", "memory after it", mib(bound), mib(server.rss()), returned)


def killed_client(world):
    """A client process that is killed in the middle of its calls."""
    with Server(world) as server:
        base = server.descriptors()
        load = world.offer(server, rpc="BuildTable", size="4MiB", rate=500, seconds=30,
                           connections=32)
        until(lambda: server.descriptors() >= base + 32, 5)
        time.sleep(0.5)
        load.popen.send_signal(signal.SIGKILL)
        load.popen.wait()
        load.popen.stdout.close()
        freed = until(lambda: server.descriptors() <= base, 5)
        world.add("R24", "descriptors after a client was killed", str(base),
                  str(server.descriptors()), freed)


def run(world):
    if os.cpu_count() == 1:
        world.add("-", "cores", "2", "1: server and clients share it", None)
    starts(world)
    refused_starts(world)
    stuck_drain(world)
    busy_drain(world)
    cancelled_work(world)
    cancelled_half(world)
    killed_client(world)
