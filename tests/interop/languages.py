"""The clients, each of which has a script client/NAME/run with the same tasks."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# The order in tables, README and figures.
LANGUAGES = {
    "c++": "cpp",
    "python": "python",
    "go": "go",
    "java": "java",
    "node": "node",
    "rust": "rust",
}

# A limit for each task of a client, with toolchain and downloads.
LIMIT_SECONDS = 1800


class Failure(Exception):
    """A check failed; the text says which."""


class Client:
    def __init__(self, language):
        self.language = language
        self.folder = ROOT / "client" / LANGUAGES[language]
        self.script = self.folder / "run"

    def run(self, *arguments, cwd=None):
        """Returns the finished task, with its output as text."""
        try:
            return subprocess.run(
                [str(self.script), *map(str, arguments)], cwd=cwd or ROOT,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                timeout=LIMIT_SECONDS, check=False)
        except subprocess.TimeoutExpired as late:
            raise Failure(f"{self.language}: run {arguments[0]}: not done after "
                          f"{LIMIT_SECONDS} s") from late

    def task(self, *arguments, cwd=None):
        """Returns the output of a task that must succeed."""
        done = self.run(*arguments, cwd=cwd)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip())[-2000:]
            raise Failure(f"{self.language}: run {arguments[0]}: exit code "
                          f"{done.returncode}\n{said}")
        return done.stdout

    def missing_tool(self):
        """Returns why this language cannot be built here, or None."""
        if not os.access(self.script, os.X_OK):
            return f"client/{LANGUAGES[self.language]}/run does not exist"
        done = self.run("need")
        if done.returncode == 0:
            return None
        lines = done.stderr.strip().splitlines()
        return lines[-1] if lines else "run need failed without a word"


def choose(names):
    """Returns clients by name; all if none are named."""
    unknown = [name for name in names if name not in LANGUAGES]
    if unknown:
        raise Failure(f"{unknown[0]} is no language of a client; "
                      f"there are: {', '.join(LANGUAGES)}")
    return [Client(name) for name in LANGUAGES if not names or name in names]


def prepare(clients):
    """Builds clients. Returns the ready clients, and the reason for each
    skipped one."""
    ready, skipped = [], {}
    for client in clients:
        why = client.missing_tool()
        if why is None:
            client.task("build")
            ready.append(client)
        else:
            skipped[client.language] = why
    return ready, skipped


def test(clients):
    """Runs each client's own tests; its runner's last line has their
    number."""
    failed = []
    for client in clients:
        done = client.run("test", ROOT / "build/release/bin/posencd")
        lines = [line for line in done.stdout.splitlines() if line.strip()]
        print(f"{client.language}: {lines[-1].strip() if lines else 'said nothing'}", flush=True)
        if done.returncode != 0:
            failed.append(f"{client.language}: exit code {done.returncode}\n"
                          f"{done.stdout[-3000:]}{done.stderr[-2000:]}")
    if failed:
        raise Failure("\n".join(failed))


def lint(clients):
    """Runs each language's own linters. `./run lint` has C++'s."""
    failed = []
    for client in clients:
        if client.language == "c++":
            continue
        try:
            client.task("lint")
            print(f"{client.language}: clean", flush=True)
        except Failure as failure:
            failed.append(str(failure))
    if failed:
        raise Failure("\n".join(failed))


def package(clients):
    """Writes the published package of each language into build/package."""
    folder = ROOT / "build/package"
    folder.mkdir(parents=True, exist_ok=True)
    for client in clients:
        client.task("package", folder)
    for file in sorted(folder.iterdir()):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size} bytes")
