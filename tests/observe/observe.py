#!/usr/bin/env python3
"""Checks Prometheus' view of servers under load.

usage: observe.py BIN_DIR PROMETHEUS_DIR

Debian's prometheus scrapes a server with and one without TLS. Every query of
the dashboard's panels and every alert's expression (without its comparison)
must return data. The value must change under load, while wrong files replace
certificates and tokens, except for the queries in STILL. Ends only processes
that it started.
"""
import contextlib
import json
import math
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FILES = os.path.join(ROOT, "deploy", "helm", "files")
PATIENCE = 60  # seconds, for anything that should happen
LOAD = 40  # seconds
CONNECTIONS = 16  # the load uses half

# Values that this load does not change: nothing fails, restarts or is renewed.
STILL = ("up{", "posenc_draining", "posenc_build_info", "posenc_log_lines_dropped", "changes(process_start_time",
         "Unknown|Internal|DataLoss", "DeadlineExceeded", "sum(posenc_budget_bytes")


def wait_for(what, found):
    """Waits until `found` returns a true value, and returns it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        value = found()
        if value:
            return value
        time.sleep(0.1)
    raise SystemExit(f"observe: {what}: not within {PATIENCE} s")


def ask(url):
    """Returns the body, or None without an answer."""
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return answer.read().decode()
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return None


class Processes:
    """The started processes; ends them at the end."""

    def __init__(self):
        self.all = []

    def start(self, log, *command):
        with open(log, "w", encoding="utf-8") as output:
            self.all.append(subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT))
        return self.all[-1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for each in self.all:
            if each.poll() is None:
                each.send_signal(signal.SIGKILL)
            each.wait()


class Server:
    """A posencd with an admin port."""

    def __init__(self, processes, program, work, name, *flags):
        self.log = os.path.join(work, name + ".log")
        ready = os.path.join(work, name + ".ready")
        self.process = processes.start(self.log, program, "--listen=127.0.0.1:0", "--admin=127.0.0.1:0",
                                       f"--ready-file={ready}", *flags)
        wait_for(f"{name} is ready", lambda: os.path.exists(ready) or self.ended())
        self.address = read(ready).split()[0]
        self.admin = wait_for("its admin address is logged", self.admin_address)

    def ended(self):
        if self.process.poll() is not None:
            raise SystemExit("observe: posencd ended: " + read(self.log))
        return False

    def admin_address(self):
        found = re.search(r"admin[^0-9\n]*(127\.0\.0\.1:\d+)", read(self.log))
        return found and found[1]


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text):
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def frame(kind, flags, stream, payload=b""):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def stalled(address):
    """A connection with a stalled call, which sends only headers and eight bytes of a message: it
    claims budget."""
    host, port = address.rsplit(":", 1)
    peer = socket.create_connection((host, int(port)), timeout=10)
    headers = b"".join(b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value for name, value in (
        (b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"localhost"),
        (b":path", b"/posenc.v1.PositionalEncodingService/ApplyRope"),
        (b"te", b"trailers"), (b"content-type", b"application/grpc")))
    message = b"\0" + (1000000).to_bytes(4, "big") + b"abc"
    peer.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + frame(1, 4, 1, headers)
                 + frame(0, 0, 1, message))
    return peer


def crowd(address):
    """Opens as many connections as the server accepts in total, so some are
    refused."""
    host, port = address.rsplit(":", 1)
    with contextlib.ExitStack() as peers:
        for _ in range(CONNECTIONS):
            peers.enter_context(socket.create_connection((host, int(port)), timeout=10))


def certificate(work):
    """Makes the files of a self-signed certificate."""
    cert, key = os.path.join(work, "cert.pem"), os.path.join(work, "key.pem")
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes",
                    "-days", "30", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1",
                    "-keyout", key, "-out", cert], check=True, capture_output=True)
    return cert, key


class Prometheus:
    def __init__(self, processes, programs, work, servers):
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
            "rule_files": [os.path.join(FILES, "alerts.yaml")],
            "scrape_configs": [{"job_name": "posenc", "static_configs": [
                {"targets": [each.admin for each in servers], "labels": {"namespace": "test"}}]}],
        }
        path = os.path.join(work, "prometheus.yml")
        with open(path, "w", encoding="utf-8") as file:
            yaml.safe_dump(config, file)
        # Prometheus cannot choose a free port itself. Another process may take this port first; then
        # prometheus ends at once.
        for attempt in range(10):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                address = "127.0.0.1:%d" % free.getsockname()[1]
            self.url = "http://" + address
            log = os.path.join(work, "prometheus.log")
            process = processes.start(log, os.path.join(programs, "prometheus"), f"--config.file={path}",
                                      f"--storage.tsdb.path={work}/tsdb{attempt}", f"--web.listen-address={address}",
                                      "--log.level=warn")
            wait_for("prometheus is ready",
                     lambda running=process: ask(self.url + "/-/ready") or running.poll() is not None)
            if process.poll() is None:
                return
        raise SystemExit("observe: prometheus does not start: " + read(log))

    def get(self, path, **values):
        query = urllib.parse.urlencode(values)
        body = ask(f"{self.url}/api/v1/{path}?{query}")
        if body is None:
            raise SystemExit(f"observe: prometheus refuses {values}")
        return json.loads(body)["data"]

    def query(self, expression):
        """Returns values by labels, without NaN."""
        found = {}
        for each in self.get("query", query=expression)["result"]:
            value = float(each["value"][1])
            if not math.isnan(value):
                found[tuple(sorted(each["metric"].items()))] = value
        return found


def panels():
    """Yields (title, expression) of the dashboard, as in Grafana. The interval is
    longer than all queries take on a busy machine: some events, such as misses of
    the cache, happen only when the load begins."""
    for panel in json.loads(read(os.path.join(FILES, "dashboard.json")))["panels"]:
        for target in panel.get("targets", []):
            expression = target["expr"]
            for name, value in (("$__rate_interval", "30s"), ("$job", "posenc"), ("$instance", ".*")):
                expression = expression.replace(name, value)
            yield panel["title"], expression


def alerts():
    """Yields (name, expression without its comparison)."""
    for group in yaml.safe_load(read(os.path.join(FILES, "alerts.yaml")))["groups"]:
        for rule in group["rules"]:
            yield rule["alert"], re.fullmatch(r"(.*\S)\s+(?:>|<|==)\s+[0-9.]+", rule["expr"], re.DOTALL)[1]


def show(values):
    if not values:
        return "-"
    numbers = sorted(values.values())
    return f"{numbers[0]:.4g}" if len(numbers) == 1 else f"{numbers[0]:.4g}..{numbers[-1]:.4g} ({len(numbers)})"


def slowest(times):
    return f"median {sorted(times)[len(times) // 2] * 1e3:.1f} ms, slowest {max(times) * 1e3:.1f} ms of {len(times)}"


def watch(prometheus, queries, before, server, load):
    """Runs every query during the load, until its value changes. Returns the
    last value of each, and the times of /healthz."""
    during, health, pending = {}, [], dict(queries)
    while pending and load.poll() is None:
        for key in list(pending):
            during[key] = prometheus.query(pending[key])
            still = any(each in pending[key] for each in STILL)
            if during[key] and (still or during[key] != before[key]):
                del pending[key]
        crowd(server.address)
        start = time.monotonic()
        if ask(f"http://{server.admin}/healthz") is None:
            raise SystemExit("observe: /healthz does not answer under load")
        health.append(time.monotonic() - start)
        time.sleep(0.2)
    return during, health


def main():
    programs, prometheus_programs = (os.path.abspath(each) for each in sys.argv[1:3])
    posencd = os.path.join(programs, "posencd")
    with tempfile.TemporaryDirectory() as work, Processes() as processes:
        # The budget is so small that the server refuses some calls of the load.
        small = ["--max-request-bytes=2MiB", "--max-response-bytes=2MiB", "--in-flight-bytes=8MiB", "--max-waiting=4",
                 f"--max-connections={CONNECTIONS}"]
        servers = [Server(processes, posencd, work, "plain", *small)]
        cert, key = certificate(work)
        tokens = os.path.join(work, "tokens")
        write(tokens, "somebody " + secrets.token_hex(16) + "\n")
        servers.append(Server(processes, posencd, work, "tls", f"--tls-cert={cert}", f"--tls-key={key}",
                              f"--token-file={tokens}"))
        documented = read(os.path.join(ROOT, "docs", "metrics.md"))
        for server in servers:
            for family in re.findall(r"^# TYPE (\w+) ", ask(f"http://{server.admin}/metrics"), re.MULTILINE):
                if f"`{family}`" not in documented:
                    raise SystemExit(f"observe: docs/metrics.md does not have {family}")
            subprocess.run([os.path.join(prometheus_programs, "promtool"), "check", "metrics"], check=True,
                           input=ask(f"http://{server.admin}/metrics"), text=True)
        prometheus = Prometheus(processes, prometheus_programs, work, servers)
        wait_for("all servers are up", lambda: list(prometheus.query('up{job="posenc"}').values()) == [1] * len(servers))
        wait_for("the first rates", lambda: prometheus.query('rate(process_cpu_seconds_total{job="posenc"}[5s])'))
        for group in prometheus.get("rules")["groups"]:
            for rule in group["rules"]:
                if rule.get("lastError"):
                    raise SystemExit(f"observe: {rule['name']}: {rule['lastError']}")

        queries = {("panel", *each): each[1] for each in panels()} | {("alert", *each): each[1] for each in alerts()}
        before = {key: prometheus.query(expression) for key, expression in queries.items()}
        # The peer connects before the load, because under load the server might refuse it.
        peer = stalled(servers[0].address)
        wait_for("the stalled call", lambda: "posenc_calls_in_progress 1" in ask(f"http://{servers[0].admin}/metrics"))
        load = processes.start(os.path.join(work, "load.log"), os.path.join(programs, "posenc-load"),
                               f"--server={servers[0].address}", "--in-flight=64", "--connections=8", "--no-retry",
                               "--mix=ApplyRope:8,BuildTable:2,Reposition:1,ResolveRope:1", "--size=512KiB,16KiB",
                               "--variants=8", "--max-error-rate=1", f"--duration={LOAD}s", "--quiet")
        for path in (key, tokens):
            write(path, "none of these\n")
        during, health = watch(prometheus, queries, before, servers[0], load)
        peer.close()

        faults = 0
        for key in queries:
            kind, title, expression = key
            fault = ""
            if not during.get(key):
                fault = "NO DATA"
            elif not any(each in expression for each in STILL) and during[key] == before[key]:
                fault = "NO CHANGE"
            faults += bool(fault)
            print(f"{fault or 'ok':9} {kind} {title}: {show(before[key])} -> {show(during.get(key))}"
                  + (f"\n          {expression}" if fault else ""))
        print(f"/healthz under load: {slowest(health)}")
        print(f"{len(queries) - faults} passed, {faults} failed")
        sys.exit(1 if faults else 0)


main()
