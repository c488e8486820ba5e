"""Senders that begin a message and never go on must not affect other clients."""
import struct

import h2
from process import MIB, Server
from world import failures, mib, ms, within

SENDERS = 100


def stall(address, announce):
    """Opens a connection with a call that sends only eight bytes of a message of 1 MiB, which
    is legal."""
    connection = h2.Connection(address)
    more = [("posenc-message-bytes", str(1 << 20))] if announce else []
    stream = connection.headers(h2.SERVICE + "ApplyRope", more=more)
    connection.send(h2.frame(h2.DATA, 0, stream, struct.pack(">BI", 0, 1 << 20) + b"\x0a\0\0"))
    return connection


def beside(world, name, announce, *flags):
    with Server(world, *flags) as server:
        senders = [stall(server.address, announce) for _ in range(SENDERS)]
        seconds = world.size(4, 20)
        loads = {
            "4 KiB ApplyRope": world.offer(server, rpc="ApplyRope", size="4KiB", rate=50,
                                           connections=4, seconds=seconds, deadline_ms=3000),
            "ResolveRope": world.offer(server, rpc="ResolveRope", rate=50, connections=4,
                                       seconds=seconds, deadline_ms=3000),
        }
        large = world.offer(server, rpc="ApplyRope", size="16MiB", rate=2, connections=2,
                            seconds=seconds, deadline_ms=6000)
        for what, load in loads.items():
            report = load.wait()
            bad = failures(report)
            world.add("F1", f"{what} beside {SENDERS} stalled senders, {name}", "p99 50 ms, 0 fail",
                      f"p99 {ms(report['good_p99_ms'])}, {bad} of {report['due']} fail",
                      bad == 0 and within(report["good_p99_ms"], 50))
        report = large.wait()
        bad = failures(report)
        world.add("F1", f"16 MiB ApplyRope beside them, {name}", "p99 2 s, 0 fail",
                  f"p99 {ms(report['good_p99_ms'])}, {bad} of {report['due']} fail",
                  bad == 0 and within(report["good_p99_ms"], 2000))
        # These calls announce no size, like those of generated clients.
        report = world.offer(server, rpc="ApplyRope", size="64KiB", rate=320, connections=32,
                             seconds=2, deadline_ms=3000, no_announce=True).wait()
        bad = failures(report)
        world.add("F1", f"32 generated clients beside them, {name}", "0 fail",
                  f"p99 {ms(report['good_p99_ms'])}, {bad} of {report['due']} fail", bad == 0)
        world.add("F1", f"peak memory meanwhile, {name}", "100 MiB", mib(server.peak()),
                  server.peak() <= 100 * MIB)
        for sender in senders:
            sender.close()


def run(world):
    small = ("--in-flight-bytes", "256MiB", "--max-request-bytes", "64MiB")
    beside(world, "default flags", False)
    beside(world, "256MiB/64MiB", False, *small)
    if world.full:
        beside(world, "256MiB/64MiB, announced", True, *small)
