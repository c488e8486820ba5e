"""posenc.local() starts a server for a block. After the block no server, folder or memory is left."""

import glob
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import types

import numpy
import oracle
import posenc
import pytest
from posenc import local_server

pytestmark = pytest.mark.usefixtures("posencd")


def folders():
    return set(glob.glob("/dev/shm/posenc-local-*"))


def folder_of(client):
    return client.target[len("unix:") : -len("/socket")]


def servers_at(folder):
    """Returns the process ids of the servers that were started with this folder."""
    found = []
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                if f"--ready-file={folder}/ready".encode() in file.read().split(b"\0"):
                    found.append(int(path.split("/")[2]))
        except OSError:  # the process has ended
            pass
    return found


def await_end(folder):
    deadline = time.monotonic() + 60
    while servers_at(folder):
        assert time.monotonic() < deadline, "the server outlives its parent"
        time.sleep(0.01)


def rotates(client, random):
    q = random.standard_normal((1, 16, 4, 64)).astype(numpy.float32)
    config = '{"model_type": "llama", "hidden_size": 256, "num_attention_heads": 4, "rope_theta": 500000.0}'
    rotated, _ = client.rope(config).apply(q, start=0, layout="bshd")
    oracle.assert_near(rotated, oracle.rotate(q, numpy.arange(16), theta=500000))


def run(code, *arguments, **options):
    """Starts Python with a script. Returns the process and the first line of its output."""
    command = [sys.executable, "-c", code, *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **options)
    return process, process.stdout.readline().strip()


def test_a_block_has_a_private_server_and_leaves_nothing(random, monkeypatch):
    for name in ("HOME", "TMPDIR"):  # a file cannot be written in /proc
        monkeypatch.setenv(name, "/proc")
    monkeypatch.setenv("POSENC_TOKEN_FILE", "/nonexistent")  # meant for other servers
    with posenc.local(threads=1, flags=["--drain-timeout=2s"]) as client:
        folder = folder_of(client)
        [server] = servers_at(folder)
        with open(f"/proc/{server}/cmdline") as file:
            assert "--threads=1" in file.read()
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700
        rotates(client, random)
        with client.shared_region(1 << 20) as region:
            assert region.name
            q = region.array((1, 16, 4, 64))
            q[:] = 1
            client.apply_rope(q, rope="llama-3.2-1b", positions=0, layout="bshd", out=q)
    assert not servers_at(folder) and not os.path.exists(folder)


def test_each_block_has_a_server_of_its_own():
    with posenc.local() as one, posenc.local() as other:
        assert one.target != other.target
    assert not servers_at(folder_of(one)) and not servers_at(folder_of(other))


def test_the_server_stays_when_the_thread_that_started_it_ends(random):
    block = posenc.local()
    entered = []
    thread = threading.Thread(target=lambda: entered.append(block.__enter__()))
    thread.start()
    thread.join()
    rotates(entered[0], random)
    block.__exit__(None, None, None)
    assert not servers_at(folder_of(entered[0]))


HELD = """
import os, sys, time, posenc
with posenc.local() as client:
    client.rope("llama-3.1-8b")
    if sys.argv[1] == "a child lives on" and not os.fork():
        time.sleep(60)
        os._exit(0)
    print(client.target, flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("family", ["alone", "a child lives on"])
def test_the_server_ends_when_its_process_is_killed(family):
    process, target = run(HELD, family, start_new_session=True)
    folder = target[len("unix:") : -len("/socket")]
    try:
        assert servers_at(folder)
        process.kill()
        await_end(folder)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
    # The next local() removes the server's folder, which may contain regions.
    os.utime(folder, (0, 0))
    with posenc.local():
        assert not os.path.exists(folder)


FORKED = """
import os, sys, posenc
with posenc.local() as client:
    client.rope("llama-3.1-8b")
    child = os.fork()
    if not child:
        sys.exit(7)  # leaves the block
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    client.rope("llama-3.1-8b")
    print("serves")
"""


def test_a_child_that_leaves_the_block_does_not_end_the_server():
    process, line = run(FORKED)
    assert process.wait(60) == 0 and line == "serves"
    process.stdout.close()


def test_another_start_keeps_what_is_in_use(random):
    with posenc.local() as client:
        os.utime(folder_of(client), (0, 0))
        with posenc.local():
            pass
        rotates(client, random)


def test_a_server_that_is_killed_is_named(random):
    with pytest.raises(posenc.UnavailableError, match=r"posencd was killed by signal 9; call posenc.local\(\) again"):
        with posenc.local() as client:
            rotates(client, random)
            [server] = servers_at(folder_of(client))
            os.kill(server, signal.SIGKILL)
            client.rope("llama-3.1-8b")
    assert not os.path.exists(folder_of(client))


# Kinds of broken programs: the program's text, and the error's text.
NOT_STARTED = {
    "not there": (None, "No such file or directory; POSENCD must name the server's program"),
    # A file system that is mounted noexec also denies the permission.
    "not executable": (b"", "Permission denied; it must be executable, .* noexec"),
    "without its loader": (b"#!/lib/ld-musl-x86_64.so.1\n", "No such file .* needs glibc, which musl"),
    "for another machine": (b"\x7fELF" + bytes(60), "Exec format error; is it a program for this machine"),
    "for a newer glibc": (
        b"#!/bin/sh\necho \"libc.so.6: version \\`GLIBC_2.99' not found\" >&2\nexit 1\n",
        "ended with code 1: .*GLIBC_2.99.* not found; this system's C library is too old",
    ),
    "killed at its start": (b"#!/bin/sh\nkill -9 $$\n", "was killed by signal 9"),
}


@pytest.mark.parametrize("what", NOT_STARTED)
def test_a_posencd_that_cannot_start_is_named(what, tmp_path, monkeypatch):
    program, text = NOT_STARTED[what]
    file = tmp_path / "posencd"
    if program is not None:
        file.write_bytes(program)
        file.chmod(0o755 if program else 0o644)
    monkeypatch.setenv("POSENCD", str(file))
    assert_refused(text)


def assert_refused(text, **arguments):
    before = folders()
    with pytest.raises(posenc.UnavailableError, match=f"^(?s:posenc.local\\(\\): .*{text})"):
        with posenc.local(**arguments):
            pass
    assert folders() == before
    assert not any(servers_at(folder) for folder in folders() - before)


def test_a_flag_that_posencd_refuses_is_named():
    assert_refused("ended with code 2: .*--threads", threads=-1)


def test_a_machine_without_posencd_is_told_what_to_install(monkeypatch):
    monkeypatch.delenv("POSENCD")
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "posenc_server", None)
    assert_refused(r"there is no posencd: pip install 'posenc\[server\]==")


def test_posenc_server_of_another_version_is_refused(monkeypatch):
    monkeypatch.delenv("POSENCD")
    monkeypatch.setitem(sys.modules, "posenc_server", types.SimpleNamespace(__version__="9.9.9"))
    assert_refused(rf"posenc is {posenc.__version__}, but posenc-server is 9.9.9: pip install")


def test_a_machine_without_shared_memory_is_told_so(monkeypatch):
    monkeypatch.setattr(local_server, "_SHARED_MEMORY", "/nonexistent")
    assert_refused("/nonexistent: No such file or directory; .*mount a tmpfs")


def test_a_server_that_is_never_ready_is_ended(tmp_path, monkeypatch):
    file = tmp_path / "posencd"
    file.write_text(f"#!/bin/sh\necho $$ >{tmp_path}/pid\nexec sleep 600\n")
    file.chmod(0o755)
    monkeypatch.setenv("POSENCD", str(file))
    monkeypatch.setattr(local_server, "_LONGEST_START", 1.0)
    monkeypatch.setattr(local_server, "_LONGEST_END", 0.1)
    assert_refused("is not ready after 1 s")
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")
