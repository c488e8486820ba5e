"""Processes under test, and their figures from /proc."""
import contextlib
import os
import resource
import signal
import subprocess
import tempfile
import time

MIB = 1 << 20
# The server has its own core; clients and attackers have another core.
SERVER_CORES, CLIENT_CORES = {0}, {1}


def pin(cores):
    with contextlib.suppress(OSError):  # a machine with one core
        os.sched_setaffinity(0, cores)


def until(condition, seconds, pause=0.01):
    """Returns whether `condition()` becomes true within this number of seconds."""
    end = time.monotonic() + seconds
    while True:
        if condition():
            return True
        if time.monotonic() > end:
            return False
        time.sleep(pause)


class Process:
    """A started program. Use it in a `with` block, which ends it."""

    def __init__(self, command, cores, descriptors=None, stdout=None, env=None):
        def prepare():
            pin(cores)
            if descriptors:
                resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))
        self.popen = subprocess.Popen(  # noqa: S603
            command, preexec_fn=prepare, stdin=subprocess.DEVNULL,
            stdout=stdout or subprocess.DEVNULL, stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})})
        self.pid = self.popen.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def alive(self):
        return self.popen.poll() is None

    def signal(self, number):
        self.popen.send_signal(number)

    def kill(self):
        if self.alive():
            self.popen.kill()
        self.popen.wait()

    def wait(self, seconds):
        """Returns the exit code, or None if it still runs after this number of
        seconds."""
        try:
            return self.popen.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def _status(self, key):
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            for line in file:
                if line.startswith(key):
                    return int(line.split()[1])
        return 0

    def rss(self):
        return self._status("VmRSS:") * 1024

    def peak(self):
        return self._status("VmHWM:") * 1024

    def reset_peak(self):
        with open(f"/proc/{self.pid}/clear_refs", "w", encoding="ascii") as file:
            file.write("5")

    def threads(self):
        return self._status("Threads:")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def cpu(self):
        """Seconds of CPU that all threads have used, to the nanosecond."""
        total = 0
        tasks = f"/proc/{self.pid}/task"
        for task in os.listdir(tasks):
            with contextlib.suppress(OSError):
                with open(f"{tasks}/{task}/schedstat", encoding="ascii") as file:
                    total += int(file.read().split()[0])
        return total / 1e9


class Server(Process):
    """posencd on its own core with one thread, on a unix socket or (tcp) on a
    free port of loopback. The constructor returns once it serves."""

    def __init__(self, world, *flags, tcp=False, descriptors=None, threads=1, wait=True):
        self.folder = tempfile.mkdtemp(dir=world.work)
        self.ready = os.path.join(self.folder, "ready")
        self.log = os.path.join(self.folder, "log")
        listen = "127.0.0.1:0" if tcp else f"unix:{self.folder}/socket"
        with open(self.log, "wb") as log:
            super().__init__(
                [world.program("posencd"), "--listen", listen, "--ready-file", self.ready,
                 "--threads", str(threads), *flags],
                SERVER_CORES, descriptors, stdout=log)
        self.address = ""
        if wait:
            self.wait_ready()

    def wait_ready(self, seconds=10):
        def ready():
            return not self.alive() or (os.path.exists(self.ready) and os.path.getsize(self.ready))
        if not until(ready, seconds, 0.002) or not self.alive():
            raise RuntimeError(f"posencd does not serve: {self.last_line()}")
        with open(self.ready, encoding="utf-8") as file:
            self.address = file.readline().strip()

    def last_line(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return (file.read().strip().splitlines() or ["(no output)"])[-1]

    def terminate(self, seconds):
        """Sends SIGTERM; returns (exit code or None, seconds until the
        exit)."""
        began = time.monotonic()
        self.signal(signal.SIGTERM)
        code = self.wait(seconds)
        return code, time.monotonic() - began
