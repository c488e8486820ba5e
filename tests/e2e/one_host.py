"""Runs the commands of the README's section "On one host":
one_host.py README.md FOLDER-OF-PROGRAMS. Loads are short here."""

import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

# A server is ready within this time, or fails.
START_SECONDS = 60


def commands(readme):
    text = Path(readme).read_text()
    section = re.search(r"(?ms)^## On one host\n(.*?)^## ", text)
    return re.search(r"(?s)```sh\n(.*?)```", section[1])[1].splitlines()


def main(readme, programs):
    env = os.environ | {"PATH": f"{programs}:{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready"
        lines = [line.replace("/tmp/", f"{folder}/").replace("posenc_", f"posenc_{os.getpid()}_")
                 for line in commands(readme)]
        serve, loads = lines[0], lines[1:]
        assert serve.endswith("&") and len(loads) == 3, lines
        server = subprocess.Popen([*serve[:-1].split(), "--ready-file", ready], env=env,
                                  stdout=subprocess.DEVNULL)
        try:
            end = time.monotonic() + START_SECONDS
            while not (ready.exists() and ready.read_text().strip()):
                assert server.poll() is None, "posencd ended"
                assert time.monotonic() < end, "posencd is not ready"
                time.sleep(0.05)  # polls until it exists; no fixed wait
            for line in loads:
                command = line.split("#")[0].split()
                done = subprocess.run([*command, "--calls", "20", "--warm-up", "100ms", "--quiet"],
                                      env=env, check=False, capture_output=True, text=True)
                assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        finally:
            server.terminate()
            assert server.wait(timeout=START_SECONDS) == 0
    left = list(Path("/dev/shm").glob(f"posenc_{os.getpid()}_*"))
    assert not left, left


main(sys.argv[1], sys.argv[2])
