"""Servers for the tests. They are started from the binary that POSENCD names."""

import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import NamedTuple

import numpy
import posenc
import pytest

ROOT = Path(__file__).resolve().parents[3]


def start(binary, folder, *flags):
    """Starts posencd, and returns the process and its first address."""
    ready = folder / "ready"
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [binary, "--listen", "127.0.0.1:0", "--ready-file", str(ready), *flags], stdout=log, stderr=log
        )
    for _ in range(1200):  # a minute
        if ready.exists() and ready.read_text().strip():
            return process, ready.read_text().split()[0]
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    pytest.fail("posencd does not start: " + (folder / "log").read_text())


@pytest.fixture(scope="session")
def posencd():
    binary = os.environ.get("POSENCD")
    if not binary:
        pytest.fail("POSENCD must name the server's binary")
    return binary


@pytest.fixture(scope="session")
def target(posencd, tmp_path_factory):
    process, address = start(posencd, tmp_path_factory.mktemp("server"))
    yield address
    process.terminate()
    process.wait(60)


class SharedServer(NamedTuple):
    """A server that shares memory with callers on `socket`, but not with callers on `address`."""

    socket: str
    address: str
    prefix: str  # of the file names in /dev/shm


@pytest.fixture(scope="session")
def shared_server(posencd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shared")
    prefix = f"posenc-test-python-{os.getpid()}-"
    flags = ["--listen", f"unix:{folder}/socket", "--shared-memory-prefix", f"/dev/shm/{prefix}"]
    process, address = start(posencd, folder, *flags)
    yield SharedServer(f"unix:{folder}/socket", address, prefix)
    process.terminate()
    process.wait(60)


class WatchedServer(NamedTuple):
    """A server with an admin port."""

    address: str
    admin: str

    def metric(self, name):
        """Returns the value of a metric. `name` includes the labels, as in /metrics."""
        with urllib.request.urlopen(f"http://{self.admin}/metrics") as page:
            return float(re.search(f"^{re.escape(name)} (.*)$", page.read().decode(), re.M)[1])

    def claims_nothing(self):
        """Waits until the server's calls claim no memory."""
        for _ in range(200):
            if self.metric("posenc_claimed_bytes") == 0:
                return True
            time.sleep(0.05)
        return False


@pytest.fixture(scope="session")
def watched(posencd, tmp_path_factory):
    folder = tmp_path_factory.mktemp("watched")
    process, address = start(posencd, folder, "--admin", "127.0.0.1:0")
    # The log has a thread of its own, which may write the line after the server is ready.
    for _ in range(3000):
        if line := re.search(r'admin port on ([^"]*)"', (folder / "log").read_text()):
            break
        time.sleep(0.01)
    yield WatchedServer(address, line[1])
    process.terminate()
    process.wait(60)


@pytest.fixture(scope="session")
def client(target):
    with posenc.Client(target) as client:
        yield client


@pytest.fixture
def random():
    return numpy.random.default_rng(7)
