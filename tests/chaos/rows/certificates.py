"""R25: TLS, and certificates that change under load."""
import os
import shutil
import ssl
import subprocess
import time

import h2
from process import CLIENT_CORES, Process, Server, until
from world import load_report

INFO = h2.SERVICE + "GetServerInfo"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


class Authority:
    """A CA, a server's certificate and a client's, in a folder."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self._make_ca()
        self.issue("server")
        self.issue("client")

    def path(self, name):
        return os.path.join(self.folder, name)

    def _make_ca(self):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", self.path("ca.key"), "-out", self.path("ca.pem"), "-days", "30",
                "-subj", "/CN=posenc test CA")

    def issue(self, name, days="30"):
        """Writes a new key NAME.key and certificate NAME.pem, and replaces each file as a whole."""
        key, request, pem = (self.path(f"new.{end}") for end in ("key", "csr", "pem"))
        names = self.path("names")
        with open(names, "w", encoding="ascii") as file:
            file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        openssl("x509", "-req", "-in", request, "-CA", self.path("ca.pem"), "-CAkey",
                self.path("ca.key"), "-CAcreateserial", "-out", pem, "-days", days, "-extfile",
                names)
        os.replace(key, self.path(f"{name}.key"))
        os.replace(pem, self.path(f"{name}.pem"))

    def server_flags(self):
        return ("--tls-cert", self.path("server.pem"), "--tls-key", self.path("server.key"),
                "--tls-client-ca", self.path("ca.pem"))

    def context(self, certificate=True):
        context = ssl.create_default_context(cafile=self.path("ca.pem"))
        context.set_alpn_protocols(["h2"])
        if certificate:
            context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context

    def serial(self):
        done = subprocess.run(["openssl", "x509", "-noout", "-serial", "-in",
                               self.path("server.pem")], check=True, capture_output=True, text=True)
        return done.stdout.strip().split("=")[1].lstrip("0").lower()


def answered(address, context):
    """Returns whether a new connection can make a call."""
    try:
        with h2.Connection(address, context=context, timeout=3) as connection:
            return connection.call(INFO, timeout=3) == 0
    except (OSError, ssl.SSLError):
        return False


def presented(address, context):
    """Returns the serial number of the certificate that the server shows, or "" if there
    is no handshake."""
    try:
        with h2.connect(address, timeout=3, context=context) as sock:
            return sock.getpeercert()["serialNumber"].lstrip("0").lower()
    except (OSError, ssl.SSLError):
        return ""


def refused(world, authority, server):
    stranger = Authority(os.path.join(world.work, "stranger"))
    wrong = ssl.create_default_context(cafile=authority.path("ca.pem"))
    wrong.set_alpn_protocols(["h2"])
    wrong.load_cert_chain(stranger.path("client.pem"), stranger.path("client.key"))
    for name, context in (("no certificate", authority.context(certificate=False)),
                          ("a certificate of another CA", wrong), ("plaintext", None)):
        taken = sum(answered(server.address, context) for _ in range(5))
        world.add("R25", f"clients with {name}", "all refused", f"{5 - taken} of 5 refused",
                  taken == 0)


def broken_files(authority):
    """Returns the possible faults of the files: for each name a function that causes the fault. The
    last good pair stays in `good.*`."""
    def write(name, content):
        def spoil():
            with open(authority.path(name), "wb") as file:
                file.write(content)
        return spoil

    def missing():
        os.remove(authority.path("server.key"))

    def mismatched():
        shutil.copy(authority.path("client.key"), authority.path("server.key"))

    def expired():
        authority.issue("server", days="0")
        until(lambda: False, 1.1)  # its validity ends within the first second

    return {"an empty key": write("server.key", b""),
            "a garbage key": write("server.key", b"x" * 99),
            "a garbage certificate": write("server.pem", b"-----BEGIN CERTIFICATE-----\nx\n"),
            "a missing key": missing, "a key of another certificate": mismatched,
            "an expired certificate": expired}


def keep(authority):
    for end in ("pem", "key"):
        shutil.copy(authority.path(f"server.{end}"), authority.path(f"good.{end}"))


def restore(authority):
    for end in ("pem", "key"):
        shutil.copy(authority.path(f"good.{end}"), authority.path(f"server.{end}"))


def reload_broken(world, authority, server):
    keep(authority)
    for name, spoil in broken_files(authority).items():
        before = presented(server.address, authority.context())
        spoil()
        time.sleep(2.5)  # longer than any watcher's period
        after = presented(server.address, authority.context())
        world.add("R25", f"{name}: the last good one stays", "the same certificate",
                  "the same" if before and after == before else f"{after or 'no handshake'}",
                  bool(before) and after == before)
        restore(authority)


def start_broken(world):
    authority = Authority(os.path.join(world.work, "start"))
    keep(authority)
    for name, spoil in broken_files(authority).items():
        spoil()
        done = subprocess.run(
            [world.program("posencd"), "--listen", "127.0.0.1:0", *authority.server_flags()],
            check=False, capture_output=True, text=True, timeout=10)
        lines = (done.stdout + done.stderr).strip().splitlines()
        world.add("R25", f"start with {name}", "exit 2, one line",
                  f"exit {done.returncode}, {len(lines)} line(s)",
                  done.returncode == 2 and len(lines) == 1)
        restore(authority)


def rotate(world, authority, server):
    rotations = world.size(5, 100)
    report = os.path.join(world.work, "rotations.json")
    load = Process(
        [world.program("posenc-load"), "--server", server.address, "--rates", "200", "--size",
         "16KiB", "--no-retry", "--connections", "4", "--duration", "1h", "--max-error-rate", "1",
         "--tls-ca", authority.path("ca.pem"), "--tls-cert", authority.path("client.pem"),
         "--tls-key", authority.path("client.key"), "--tls-server-name", "localhost",
         "--quiet", "--json", report], CLIENT_CORES)
    taken, fresh_failed = 0, 0
    with load:
        for _ in range(rotations):
            authority.issue("server")
            wanted = authority.serial()
            taken += until(lambda serial=wanted: presented(server.address, authority.context())
                           == serial, 5, 0.1)
            fresh_failed += not answered(server.address, authority.context())
        load.signal(2)
        load.wait(30)
    calls, failed = load_report(report)
    world.add("R25", f"{rotations} rotations: taken within 5 s", str(rotations), str(taken),
              taken == rotations)
    world.add("R25", "calls under load meanwhile", "0 fail",
              f"{failed} of {calls} fail, {fresh_failed} of new connections",
              calls > 0 and failed == 0 and fresh_failed == 0)


def run(world):
    if not world.knows("--tls-cert"):
        world.add("R25", "certificate rotations", "0 fail", "no --tls-cert", False)
        return
    authority = Authority(os.path.join(world.work, "certificates"))
    with Server(world, *authority.server_flags(), tcp=True) as server:
        refused(world, authority, server)
        rotate(world, authority, server)
        reload_broken(world, authority, server)
        world.add("R25", "serves after all of them", "yes",
                  str(answered(server.address, authority.context())),
                  answered(server.address, authority.context()))
    start_broken(world)
