"""Servers for the clients' tests, on free loopback ports, with certificates
and tokens."""

import contextlib
import os
import socket
import subprocess
import time
from pathlib import Path

from languages import ROOT, Failure

# POSENC_SERVERS is the folder of another build's programs.
PROGRAMS = Path(os.environ.get("POSENC_SERVERS", ROOT / "build/release/bin"))

# A server is ready within this time, or fails.
START_SECONDS = 60


def wait_for(path, process, what):
    """Returns the text of a file that a process writes when it is ready."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        if path.exists() and path.read_text().strip():
            return path.read_text().split()
        if process.poll() is not None:
            raise Failure(f"{what} ended with exit code {process.returncode}")
        time.sleep(0.05)  # polls until it exists; no fixed wait
    raise Failure(f"{what} was not ready within {START_SECONDS} s")


@contextlib.contextmanager
def running(command, ready, what):
    """Runs a server; gives the first address that it wrote into `ready`."""
    process = subprocess.Popen(
        list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield wait_for(ready, process, what)[0]
    finally:
        process.terminate()
        try:
            process.wait(timeout=START_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def posencd(folder, name, *flags):
    ready = Path(folder) / f"{name}.ready"
    return running(
        [PROGRAMS / "posencd", "--listen", "127.0.0.1:0", "--ready-file", ready, *flags],
        ready, f"posencd ({name})")


def stand_in(folder, name):
    """A test server: tests/conformance/NAME_server.cc."""
    ready = Path(folder) / f"{name}.ready"
    return running([PROGRAMS / f"posenc-{name}-server", ready], ready, f"the {name} server")


def openssl(*arguments):
    done = subprocess.run(["openssl", *map(str, arguments)], capture_output=True,
                          text=True, check=False)
    if done.returncode != 0:
        raise Failure(f"openssl {arguments[0]}: {done.stderr}")


def make_authority(folder, name):
    """Makes a certificate authority; returns the paths of its certificate and its
    key."""
    cert, key = folder / f"{name}.pem", folder / f"{name}-key.pem"
    openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
            "-nodes", "-days", "2", "-subj", f"/CN={name}", "-keyout", key, "-out", cert,
            "-addext", "basicConstraints=critical,CA:TRUE",
            "-addext", "keyUsage=critical,keyCertSign,cRLSign")
    return cert, key


def make_certificate(folder, authority):
    """Makes a server's certificate for localhost and 127.0.0.1, and its key."""
    cert, key, request = (folder / name for name in ("server.pem", "server-key.pem", "server.csr"))
    extensions = folder / "server.ext"
    extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n"
                          "extendedKeyUsage=serverAuth\nbasicConstraints=CA:FALSE\n")
    openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
            "-subj", "/CN=localhost", "-keyout", key, "-out", request)
    openssl("x509", "-req", "-in", request, "-CA", authority[0], "-CAkey", authority[1],
            "-CAcreateserial", "-days", "2", "-extfile", extensions, "-out", cert)
    return cert, key


TOKENS = {"GOOD": "interop-good-8b1f5c2e", "EXPIRED": "interop-expired-77aa03d9",
          "UNKNOWN": "interop-unknown-51c0e6f4"}


@contextlib.contextmanager
def nobody(silent=False):
    """A bound address that refuses connections; if silent, the kernel accepts
    connections, and no process reads them."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        if silent:
            bound.listen(64)
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextlib.contextmanager
def error_servers(folder):
    """Starts every kind of server in the table of errors, and gives the file
    with their addresses."""
    folder = Path(folder)
    authority = make_authority(folder, "right")
    wrong, _ = make_authority(folder, "wrong")
    cert, key = make_certificate(folder, authority)
    tokens = folder / "tokens"
    tokens.write_text(f"good {TOKENS['GOOD']}\n"
                      f"old {TOKENS['EXPIRED']} expires=2020-01-01T00:00:00Z\n")
    tokens.chmod(0o600)
    tls = ["--tls-cert", cert, "--tls-key", key]
    with contextlib.ExitStack() as stack:
        addresses = {
            "PLAIN": stack.enter_context(posencd(folder, "plain")),
            "TLS": stack.enter_context(posencd(folder, "tls", *tls)),
            "TOKENS": stack.enter_context(
                posencd(folder, "tokens-server", *tls, "--token-file", tokens)),
            "OLD": stack.enter_context(stand_in(folder, "old")),
            "FALSE": stack.enter_context(stand_in(folder, "false")),
            "AWAY": stack.enter_context(nobody()),
            "SILENT": stack.enter_context(nobody(silent=True)),
        }
        for name in ("TLS", "TOKENS"):  # the certificate has this name
            addresses[name] = addresses[name].replace("127.0.0.1", "localhost")
        lines = {**addresses, "CA": authority[0], "WRONG_CA": wrong,
                 **{f"TOKEN_{name}": token for name, token in TOKENS.items()}}
        env_file = folder / "servers.env"
        env_file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        yield env_file
