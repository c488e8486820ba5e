"""Servers for the tests. They are started from the binary that POSENCD names."""

import os
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import numpy
import posenc
import pytest

ROOT = Path(__file__).resolve().parents[3]


def start(binary, folder, *flags):
    """Starts posencd; returns the process and its first address."""
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


@pytest.fixture(scope="session")
def client(target):
    with posenc.Client(target) as client:
        yield client


@pytest.fixture
def random():
    return numpy.random.default_rng(7)
