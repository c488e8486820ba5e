"""Hours of everything at once (R1, R8, R9, R23): a steady load of all kinds with
compared answers, connections that come and go, cancelled calls, stalled senders,
and restarts of other servers."""
import json
import os
import threading
import time

import h2
from pauses import Pauses
from process import CLIENT_CORES, MIB, Process, Server
from rows import restarts, stalled
from world import mib, ms

MIX = ("--mix", "ApplyRope:6,BuildTable:2,Reposition:1,AddEncoding:1,ResolveRope:1", "--size",
       "4KiB,64KiB,1MiB", "--dtype", "float32,bfloat16", "--connections", "8", "--threads", "1")


class Disturbance(threading.Thread):
    """Every second, makes calls on new connections, cancels a call, and starts a stalled
    sender."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address, self.ending, self.rounds, self.failed = address, threading.Event(), 0, 0

    def run(self):
        stuck = []
        while not self.ending.wait(1):
            self.rounds += 1
            try:
                for _ in range(5):
                    with h2.Connection(self.address) as connection:
                        self.failed += connection.call(h2.SERVICE + "GetServerInfo") != 0
                with h2.Connection(self.address) as connection:
                    stream = connection.headers(h2.SERVICE + "ApplyRope")
                    connection.send(h2.frame(h2.RST, 0, stream, b"\0\0\0\x08"))
                stuck.append(stalled.stall(self.address, self.rounds % 2 == 0))
            except OSError:
                self.failed += 1
            while len(stuck) > 20:
                stuck.pop(0).close()
        for connection in stuck:
            connection.close()


class Samples(threading.Thread):
    """Samples memory, descriptors and threads every ten seconds."""

    def __init__(self, server):
        super().__init__(daemon=True)
        self.server, self.ending, self.values = server, threading.Event(), []

    def run(self):
        began = time.monotonic()
        while not self.ending.wait(10):
            self.values.append((time.monotonic() - began, self.server.rss(),
                                self.server.descriptors(), self.server.threads()))


def slope(points):
    """Returns the slope of a line through (x, y) by least squares."""
    n = len(points)
    if n < 3:
        return 0.0
    mx, my = sum(x for x, _ in points) / n, sum(y for _, y in points) / n
    spread = sum((x - mx) ** 2 for x, _ in points)
    return sum((x - mx) * (y - my) for x, y in points) / spread if spread else 0.0


def steady(world, server, seconds):
    report = os.path.join(world.work, "soak.json")
    rate = 0.5 * closed(world, server)
    load = Process([world.program("posenc-load"), "--server", server.address, *MIX, "--rates",
                    f"{rate:.0f}", "--duration", f"{seconds:.0f}s", "--verify", "0.01",
                    "--timeout", "5s", "--no-retry", "--max-error-rate", "1", "--quiet", "--json",
                    report], CLIENT_CORES)
    with load:
        load.wait(seconds + 120)
    with open(report, encoding="utf-8") as file:
        return json.load(file)["steps"][0]


def closed(world, server):
    report = os.path.join(world.work, "closed.json")
    load = Process([world.program("posenc-load"), "--server", server.address, *MIX, "--in-flight",
                    "16", "--duration", "5s", "--max-error-rate", "1", "--quiet", "--json", report],
                   CLIENT_CORES)
    with load:
        load.wait(60)
    with open(report, encoding="utf-8") as file:
        return json.load(file)["steps"][0]["calls_per_second"]


def drift(step):
    """Returns the median p99 of the last tenth of the time, divided by that of the first
    tenth."""
    points = [point["p99_us"] for point in step["series"]]
    part = max(len(points) // 10, 1)
    first, last = sorted(points[:part])[part // 2], sorted(points[-part:])[part // 2]
    return last / first if first else 0.0


def failing(step):
    """Returns a text with the seconds at which calls failed, and how many failed there."""
    points = [(point["start_s"], point["errors"]) for point in step["series"] if point["errors"]]
    return ", ".join(f"{errors} at {at:.0f} s" for at, errors in points[:10]) or "never"


def run(world):
    seconds = getattr(world, "hours", 0.02) * 3600
    with Server(world, "--max-connection-age", "10m") as server:
        disturbance, samples = Disturbance(server.address), Samples(server)
        pauses = Pauses(0.2)
        restarting = threading.Thread(
            target=lambda: restarts.rounds(world, max(3, int(seconds / 60)), 3), daemon=True)
        disturbance.start()
        samples.start()
        restarting.start()
        step = steady(world, server, seconds)
        pauses.end()
        for thread in (disturbance, samples):
            thread.ending.set()
            thread.join()
        restarting.join()
        bad = step["failed"] + step["unsent"]
        why = "".join(f", {count} {code}" for code, count in step["errors"].items())
        hours = seconds / 3600
        world.add("R1", f"{hours:.2f} h at half of the capacity: {step['ok'] + bad} calls",
                  "0 fail, 0 wrong",
                  f"{bad} fail{why}; {step['wrong']} of {step['verified']} wrong",
                  bad == 0 and step["wrong"] == 0)
        longest = sorted(pauses.seen, key=lambda pause: -pause[1])[:5]
        world.add("R1", "when calls failed; the machine's longest pauses over 0.2 s", "-",
                  f"{failing(step)}; {len(pauses.seen)}: "
                  + ", ".join(f"{long:.1f} s at {at:.0f} s" for at, long in longest), None)
        world.add("R1", "p99; p99 at the end divided by p99 at the start", "-",
                  f"{ms(step['latency_us']['p99'] / 1000)}, {drift(step):.2f}", None)
        world.add("R23", f"{disturbance.rounds} rounds of churn, cancels, stalled senders",
                  "0 fail", f"{disturbance.failed} fail", disturbance.failed == 0)
        # The first half hour, or half of a shorter run, fills pools and caches.
        settled = [v for v in samples.values if v[0] >= min(1800, seconds / 2)]
        if len(settled) > 3:
            rise = slope([(at / 3600, rss) for at, rss, _, _ in settled])
            quarters = [sorted(rss for _, rss, _, _ in settled[i * len(settled) // 4:
                                                               (i + 1) * len(settled) // 4])
                        for i in range(4)]
            medians = ", ".join(mib(part[len(part) // 2]) for part in quarters if part)
            world.add("R23", "memory; medians of its quarters", "1 MiB/h, once settled",
                      f"{rise / MIB:+.2f} MiB/h; {medians}", rise <= MIB or hours < 0.5)
            # A fitted line does not show whether memory grows steadily or rose once.
            every = samples.values[::max(1, len(samples.values) // 24)]
            world.add("R23", "memory at equal distances, from the start on", "-",
                      " ".join(f"{rss / MIB:.2f}" for _, rss, _, _ in every) + " MiB", None)
            for what, index, room in (("descriptors", 2, 30), ("threads", 3, 3)):
                values = [v[index] for v in settled]
                world.add("R23", what, f"within {room}", f"{min(values)} to {max(values)}",
                          max(values) - min(values) <= room)
