"""Code that all rows share: programs, sizes of the run, load programs, and the table
of figures."""
import functools
import json
import os
import subprocess

from process import CLIENT_CORES, pin


class Figure:
    """A line of the table. `passed` is None for a figure without a goal."""

    def __init__(self, row, what, goal, seen, passed):
        self.row, self.what, self.goal, self.seen, self.passed = row, what, goal, seen, passed

    def verdict(self):
        return {True: "pass", False: "FAIL", None: "-"}[self.passed]

    def json(self):
        return {"row": self.row, "figure": self.what, "goal": self.goal, "seen": self.seen,
                "pass": self.passed}


class World:
    def __init__(self, programs, work, full):
        self.programs, self.work, self.full = os.path.abspath(programs), work, full
        self.figures = []

    def program(self, name):
        return os.path.join(self.programs, name)

    def size(self, short, full):
        """Returns the number for the short run, or for the full run."""
        return full if self.full else short

    def add(self, row, what, goal, seen, passed):
        figure = Figure(row, what, goal, seen, passed)
        self.figures.append(figure)
        print(f"{figure.verdict():4}  {row:4} {what}: {seen}  (goal: {goal})", flush=True)

    @functools.cached_property
    def help(self):
        return subprocess.run([self.program("posencd"), "--help"], check=True,
                              capture_output=True, text=True).stdout

    def knows(self, flag):
        """Returns whether the server under test has this flag."""
        return flag + " " in self.help or flag + "\n" in self.help

    def flags(self, **values):
        """Returns the arguments for those flags (keepalive_time="2s") that the
        server knows."""
        out = []
        for name, value in values.items():
            flag = "--" + name.replace("_", "-")
            if self.knows(flag):
                out += [flag, value]
        return out

    def offer(self, server, **options):
        """Starts posenc-offer on the clients' core; wait() returns its report."""
        return Offer(self, server, options)

    @functools.lru_cache(maxsize=None)  # noqa: B019
    def request(self, rpc, size):
        """Returns the message of a call."""
        path = os.path.join(self.work, f"{rpc}-{size}")
        subprocess.run([self.program("posenc-offer"), "--rpc", rpc, "--size", size,
                        "--write", path], check=True)
        with open(path, "rb") as file:
            return file.read()

    def throughput(self, server, rpc, size, seconds=2):
        """Returns the calls per second of a closed loop."""
        report = os.path.join(self.work, "closed.json")
        subprocess.run(
            [self.program("posenc-load"), "--server", server.address, "--mix", rpc, "--size", size,
             "--in-flight", "4,16", "--connections", "4", "--threads", "1", "--duration",
             f"{seconds}s", "--quiet", "--max-error-rate", "1", "--json", report],
            check=True, stdout=subprocess.DEVNULL, preexec_fn=lambda: pin(CLIENT_CORES))
        with open(report, encoding="utf-8") as file:
            return max(step["calls_per_second"] for step in json.load(file)["steps"])


class Offer:
    def __init__(self, world, server, options):
        command = [world.program("posenc-offer"), "--server", getattr(server, "address", server)]
        for name, value in options.items():
            flag = "--" + name.replace("_", "-")
            if value is True:
                command.append(flag)
            elif value is not False:
                command += [flag, str(value)]
        self.popen = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                      preexec_fn=lambda: pin(CLIENT_CORES))

    def wait(self):
        out, _ = self.popen.communicate()
        if self.popen.returncode != 0:
            raise RuntimeError("posenc-offer failed")
        return json.loads(out)


def load_report(path):
    """Returns (calls, failed calls) of a report of posenc-load."""
    with open(path, encoding="utf-8") as file:
        step = json.load(file)["steps"][0]
    failed = step["failed"] + step["unsent"] + step["wrong"]
    return step["ok"] + failed, failed


def failures(report):
    """Returns the calls of a posenc-offer report that were not good."""
    return report["due"] - report["good"]


def ms(value):
    return "-" if value is None else f"{value:.3g} ms"


def mib(value):
    return f"{value / (1 << 20):.0f} MiB"


def within(value, bound):
    """Returns whether there is a value within the bound."""
    return value is not None and value <= bound
