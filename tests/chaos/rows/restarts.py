"""Servers that restart under load (R8, R9), and the health status of a server
that drains (R29)."""
import os
import re
import signal
import subprocess
import time

import h2
from process import Server

HERE = os.path.dirname(os.path.abspath(__file__))
NOT_SERVING = 2


def rounds(world, kills, starts):
    """Runs restarts.sh, which prints a line for each phase."""
    done = subprocess.run(
        [os.path.join(HERE, "..", "restarts.sh"), world.programs, str(kills), str(starts)],
        check=False, capture_output=True, text=True)
    phases = 0
    for line in done.stdout.splitlines():
        cells = re.split(r"\s{2,}", line.strip())
        if len(cells) < 6 or not cells[1].isdigit():
            continue
        phases += 1
        name, ended, calls, failed, pause, longest = cells[:6]
        row = "R9" if "SIGTERM" in name else "R8"
        world.add(row, f"{name}, {ended} times", "0 failed calls",
                  f"{failed} of {calls} failed, longest pause {pause}", failed == "0")
        if row == "R9":
            world.add(row, "longest exit", "lame duck + drain + 1 s = 6500 ms", longest,
                      int(longest.split()[0]) <= 6500)
    world.add("R8", "all phases were measured, and held", "2, exit 0",
              f"{phases}, exit {done.returncode}" +
              (f": {done.stderr.strip().splitlines()[-1]}" if done.stderr.strip() else ""),
              phases == 2 and done.returncode == 0)


def leaving(world):
    """Checks that a watcher of readiness is told of a drain before its connection ends."""
    with Server(world, "--lame-duck", "500ms") as server, h2.Connection(server.address) as watch:
        name = b"posenc.readiness"
        stream = watch.headers("/grpc.health.v1.Health/Watch")
        watch.data(stream, h2.message(b"\x0a" + bytes((len(name),)) + name))
        order = []
        began = time.monotonic()
        while time.monotonic() - began < 5 and "GOAWAY" not in order and not watch.closed:
            got = watch.read(0.1)
            if got is None:
                continue
            if got.kind == h2.DATA and len(got.payload) >= 7:
                order.append("NOT_SERVING" if got.payload[6] == NOT_SERVING else "SERVING")
                if len(order) == 1:
                    server.signal(signal.SIGTERM)
            elif got.kind == h2.GOAWAY:
                order.append("GOAWAY")
        world.add("R29", "a watcher of a server that leaves sees",
                  "SERVING, NOT_SERVING, GOAWAY", ", ".join(order),
                  order == ["SERVING", "NOT_SERVING", "GOAWAY"])


def run(world):
    leaving(world)
    rounds(world, world.size(15, 100), world.size(10, 50))
