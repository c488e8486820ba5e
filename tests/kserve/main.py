"""Unmodified clients of KServe's protocol against a posencd: `./run kserve`.

    main.py [PART...]    tritonclient, shared, kserve, perf_analyzer, readme; none: all

Each part has its own environment in build/kserve, from the package index. Parts
that cannot be installed are named and skipped.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT / "tests/interop"))
import servers  # noqa: E402

OUT = ROOT / "build/kserve"
# The last wheel whose perf_analyzer starts on Debian 12: newer ones need glibc 2.38.
PERF_ANALYZER = "tritonclient==2.48.0"
# The packages with perf_analyzer's libraries.
PERF_PACKAGE, PERF_WHEEL = "libb64-0d", "nvidia-cuda-runtime-cu12"

ROTATION = ["-m", "apply_rope", "--shape", "q:1,64,8,128", "--shape", "k:1,64,2,128",
            "--shape", "positions:64", "--input-data", "zero",
            "--request-parameter", "layout:bshd:string",
            "--request-parameter", "rope.preset:llama-3.1-8b:string"]


class Missing(Exception):
    """Raised if a package cannot be installed here."""


def run(*command, **options):
    return subprocess.run(list(map(str, command)), check=False, text=True, **options)


def install(command, what):
    done = run(*command, capture_output=True)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["no reason given"]
        raise Missing(f"{what}: {lines[-1]}")


def environment(name, *packages):
    """Makes a Python with these packages."""
    folder = OUT / name
    python = folder / "bin/python"
    stamp = folder / "installed"
    if not stamp.exists() or stamp.read_text() != " ".join(packages):
        install([sys.executable, "-m", "venv", folder], f"venv of {name}")
        install([python, "-m", "pip", "install", "-q", *packages], " ".join(packages))
        stamp.write_text(" ".join(packages))
    return python


def own_client():
    """Makes a folder with posenc's own client, to compare with."""
    source, folder, stamp = OUT / "client-source", OUT / "client", OUT / "client-installed"
    files = [path for path in sorted((ROOT / "client/python/src").rglob("*.py"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        # Builds from a copy, because setuptools writes beside the sources.
        shutil.rmtree(source, ignore_errors=True)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(ROOT / "client/python", source)
        shutil.copy(ROOT / "LICENSE", source)
        install([triton(), "-m", "pip", "install", "-q", "--no-deps", "--target", folder, source],
                "posenc's own client")
        stamp.write_text(digest)
    return folder


def triton():
    return environment("triton", "tritonclient[grpc]", "ml_dtypes", "numpy", "grpcio")


def kserve():
    return environment("kserve", "kserve", "numpy")


def perf_analyzer():
    """Returns the program, and its environment variables."""
    folder = OUT / "perf_analyzer"
    program = folder / "perf_analyzer"
    if not program.exists():
        wheels = folder / "wheels"
        wheels.mkdir(parents=True, exist_ok=True)
        install([triton(), "-m", "pip", "download", "-q", "--no-deps", "--dest", wheels,
                 PERF_ANALYZER, PERF_WHEEL], f"{PERF_ANALYZER}, {PERF_WHEEL}")
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                for name in archive.namelist():
                    if re.search(r"/perf_analyzer$|/libcudart\.so[.\d]*$", name):
                        (folder / Path(name).name).write_bytes(archive.read(name))
        done = run("apt-get", "download", "-qq", PERF_PACKAGE, cwd=folder, capture_output=True)
        for package in folder.glob("*.deb"):
            install(["dpkg", "-x", package, folder], PERF_PACKAGE)
        if not list(folder.glob("usr/lib/*/libb64*")):
            raise Missing(f"{PERF_PACKAGE}: {done.stderr.strip()}")
        program.chmod(0o755)
    libraries = [folder, *{path.parent for path in folder.glob("usr/lib/*/libb64*")}]
    env = os.environ | {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}
    started = run(program, "--version", env=env, capture_output=True)
    if started.returncode != 0:
        raise Missing(f"perf_analyzer does not start: {started.stderr.strip()}")
    return program, env


def python_part(python, script, address):
    env = os.environ | {"PYTHONPATH": str(own_client()), "PYTHONDONTWRITEBYTECODE": "1"}
    done = run(python, HERE / script, address, env=env)
    if done.returncode != 0:
        raise SystemExit(f"kserve: {script} failed")


def check_triton(address):
    python_part(triton(), "triton.py", address)


def check_shared(_address):
    """Runs over a unix socket, because only callers on a unix socket may share memory."""
    with tempfile.TemporaryDirectory() as folder:
        socket = f"unix:{folder}/posenc.sock"
        with servers.posencd(folder, "shared", "--listen", socket,
                             "--shared-memory-prefix", "/dev/shm/"):
            python_part(triton(), "shared.py", socket)
            python_part(kserve(), "kserve_shared.py", socket)
            analyze(socket, *ROTATION, "--shared-memory", "system",
                    "--output-shared-memory-size", "1048576")


def check_kserve(address):
    python_part(kserve(), "kserve_client.py", address)


def analyze(address, *arguments):
    program, env = perf_analyzer()
    command = [program, "-u", address, "-i", "grpc", "--request-count", "200", *arguments]
    done = run(*command, env=env, capture_output=True, timeout=120)
    if done.returncode != 0 or "Throughput" not in done.stdout:
        raise SystemExit(f"kserve: perf_analyzer failed: {done.stdout}{done.stderr}")
    print("perf_analyzer:", re.search(r"Throughput: .*", done.stdout)[0])


def check_perf_analyzer(address):
    analyze(address, *ROTATION)
    analyze(address, *ROTATION, "--async", "--concurrency-range", "4")
    analyze(address, *ROTATION, "--streaming")
    analyze(address, "-m", "build_table", "--shape", "positions:64", "--input-data", "zero",
            "--request-parameter", "rope.preset:llama-3.1-8b:string")


def readme_blocks():
    """Returns the commands of the README's section, by language."""
    text = (ROOT / "README.md").read_text()
    section = re.search(r"(?ms)^## With Triton's and KServe's clients\n(.*?)^## ", text)
    return re.findall(r"(?s)```(\w+)\n(.*?)```", section[1])


def check_readme(address):
    with tempfile.TemporaryDirectory() as folder:
        for language, text in readme_blocks():
            text = text.replace("localhost:50051", address)
            if language == "python":
                script = Path(folder) / "readme.py"
                script.write_text(text)
                done = run(kserve() if "kserve" in text else triton(), script)
            else:
                program, env = perf_analyzer()
                env = env | {"PATH": f"{program.parent}:{env['PATH']}"}
                # Installation and start are already done.
                lines = [line for line in text.replace("\\\n", " ").splitlines()
                         if line.startswith("perf_analyzer")]
                done = run("bash", "-ec", "\n".join(lines), env=env, capture_output=True)
            if done.returncode != 0:
                raise SystemExit(f"kserve: the README's lines fail:\n{text}\n"
                                 f"{done.stdout}{done.stderr}")
    print("README: its lines run")


PARTS = {"tritonclient": check_triton, "shared": check_shared, "kserve": check_kserve,
         "perf_analyzer": check_perf_analyzer, "readme": check_readme}


def main(names):
    OUT.mkdir(parents=True, exist_ok=True)
    missing = []
    with tempfile.TemporaryDirectory() as folder, \
            servers.posencd(folder, "kserve", "--in-flight-bytes", "1GiB") as address:
        for name in names or PARTS:
            try:
                PARTS[name](address)
            except Missing as why:
                missing.append(f"{name} (cannot be installed: {why})")
    for line in missing:
        print("skipped:", line)
    print("kserve: passed" + (", but for what was skipped" if missing else ""))


if __name__ == "__main__":
    main(sys.argv[1:])
