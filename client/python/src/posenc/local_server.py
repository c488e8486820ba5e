"""posenc.local(): a server for a block of code, on this machine."""

from __future__ import annotations

import contextlib
import glob
import os
import shutil
import socket
import stat
import subprocess
import tempfile
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, Optional

from .channels import VERSION
from .client import Client
from .errors import UnavailableError

_SHARED_MEMORY = "/dev/shm"
_PREFIX = "posenc-local-"
# Time limits in seconds. posencd starts within 20 ms, but a machine may be busy.
_LONGEST_START = 30.0
_LONGEST_END = 10.0
_INSTALL = f"pip install 'posenc[server]=={VERSION}'"
_WHEELS = "the wheel is for Linux on x86_64 or aarch64 with glibc 2.36 or newer; elsewhere pip ignores or refuses it"


@contextlib.contextmanager
def local(*, threads: Optional[int] = None, flags: Sequence[str] = ()) -> Iterator[Client]:
    """Starts posencd for a block, and yields a client of this server.

        with posenc.local() as client:
            q, k = client.rope("llama-3.1-8b").apply(q, k, start=0, layout="bshd")

    threads: number of threads for computations; by default one for each core.
    flags: further flags of posencd, such as ["--log-calls=1"].

    posencd is the file that the environment variable POSENCD names.
    Without POSENCD, it is the program of the package posenc-server, or else the first posencd on PATH.
    The server does not get the caller's variables POSENC_..., which are meant for other servers and clients.
    The server listens on a unix socket in a folder of /dev/shm that only this user may enter.
    It shares memory in the same folder (client.shared_region()).

    Each call starts a server of its own, which ends with the block. The server also ends when this process is killed.
    The server reads a pipe that only this process holds, and the kernel closes the pipe when the process ends.
    (PR_SET_PDEATHSIG would end the server when the thread that called local() ends.)

    A child of os.fork() does not own the server: the child neither ends the server nor keeps it alive.
    The child makes its own Client(client.target), or calls local(). grpcio allows forks only before the first call.

    Raises UnavailableError, whose text has the remedy, if the server cannot be started.
    """
    owner = os.getpid()
    posencd = _find()
    _remove_leftovers()
    with contextlib.ExitStack() as stack:
        folder = _private_folder()
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        process = _start(posencd, folder, [*([] if threads is None else [f"--threads={threads}"]), *flags])
        stack.callback(_stop, process)
        _await_ready(process, folder)
        client = stack.enter_context(Client(f"unix:{folder}/socket"))
        try:
            yield client
        except UnavailableError as error:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.5)
                error.text += f"; {_end_of(process, folder)}; call posenc.local() again"
            raise
        finally:
            if os.getpid() != owner:
                stack.pop_all()


def _failure(text: str) -> UnavailableError:
    return UnavailableError("UNAVAILABLE", f"posenc.local(): {text}")


def _find() -> str:
    named = os.environ.get("POSENCD")
    if named:
        return named
    try:
        import posenc_server
    except ImportError:
        found = shutil.which("posencd")
        if found is None:
            raise _failure(f"there is no posencd: {_INSTALL} ({_WHEELS}), or name one by POSENCD") from None
        return found
    if posenc_server.__version__ != VERSION:
        raise _failure(f"posenc is {VERSION}, but posenc-server is {posenc_server.__version__}: {_INSTALL}")
    return str(posenc_server.PROGRAM)


def _private_folder() -> str:
    try:
        return tempfile.mkdtemp(prefix=_PREFIX, dir=_SHARED_MEMORY)
    except OSError as error:
        raise _failure(
            f"{_SHARED_MEMORY}: {error.strerror}; client and server share memory there: mount a tmpfs "
            "that this user may write, or use posenc.Client with a server that was started by hand"
        ) from None


def _start(posencd: str, folder: str, flags: Sequence[str]) -> subprocess.Popen[bytes]:
    own = [
        "--exit-with-stdin",
        f"--listen=unix:{folder}/socket",
        f"--shared-memory-prefix={folder}/",
        f"--ready-file={folder}/ready",
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("POSENC_")}
    # The caller's flags override these variables.
    environment.update(POSENC_DRAIN_TIMEOUT="1s", POSENC_LOG_LEVEL="warning", POSENC_LOG_FORMAT="text")
    try:
        with open(f"{folder}/log", "wb") as log:
            # The server has a session of its own, so that Control-C at a terminal, or a notebook's
            # interrupt, reaches only this process.
            process = subprocess.Popen(
                ["posencd", *own, *flags], executable=posencd, stdin=subprocess.PIPE, stdout=log, stderr=log,
                env=environment, start_new_session=True,
            )  # fmt: skip
    except OSError as error:
        raise _failure(f"{posencd}: {error.strerror}; {_remedy(posencd, error)}") from None
    pipe: Any = weakref.ref(process.stdin)
    # A forked child closes its copy of the pipe, because this copy would keep the server alive.
    os.register_at_fork(after_in_child=lambda: pipe() and pipe().close())
    return process


def _remedy(posencd: str, error: OSError) -> str:
    if isinstance(error, PermissionError):
        return "it must be executable, on a file system that is not mounted noexec; or name another by POSENCD"
    if isinstance(error, FileNotFoundError) and os.path.exists(posencd):
        return "the file is there, but not its loader: it needs glibc, which musl systems such as Alpine lack"
    if isinstance(error, FileNotFoundError):
        return "POSENCD must name the server's program, or be unset"
    return "is it a program for this machine? Name another by POSENCD"


def _await_ready(process: subprocess.Popen[bytes], folder: str) -> None:
    deadline = time.monotonic() + _LONGEST_START
    while not os.path.exists(f"{folder}/ready"):
        if process.poll() is not None:
            raise _failure(_end_of(process, folder))
        if time.monotonic() > deadline:
            raise _failure(f"posencd is not ready after {_LONGEST_START:.0f} s: is the machine too busy?")
        time.sleep(0.001)


def _end_of(process: subprocess.Popen[bytes], folder: str) -> str:
    """Returns how the server ended, with its last output."""
    code = process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
    with open(f"{folder}/log", errors="replace") as log:
        said = log.read()[-2000:].strip()
    if "GLIBC" in said:
        said += "; this system's C library is too old for it: use a newer system, or name another posencd by POSENCD"
    return f"posencd {how}" + (f": {said}" if said else "")


def _stop(process: subprocess.Popen[bytes]) -> None:
    try:
        process.communicate(timeout=_LONGEST_END)  # closes its standard input
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _remove_leftovers() -> None:
    """Removes the folders of processes that were killed. This also frees the shared memory in these folders."""
    for folder in glob.glob(f"{_SHARED_MEMORY}/{_PREFIX}*"):
        with contextlib.suppress(OSError):
            about = os.lstat(folder)
            ours = stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid()
            # A new folder may belong to a server that is starting.
            if ours and time.time() - about.st_mtime > _LONGEST_START and not _answers(f"{folder}/socket"):
                shutil.rmtree(folder)


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True
