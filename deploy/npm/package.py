"""Makes npm's package @posenc/server-PLATFORM from a program that needs only glibc.

    package.py PROGRAM OUTPUT

PROGRAM: posenc-programs (../wheel/programs.cc), stripped.
OUTPUT: the folder for the package.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.dont_write_bytecode = True
sys.path.insert(0, str(HERE.parent / "wheel"))
import wheel  # noqa: E402: the path is set above

CPUS = {"x86_64": "x64", "aarch64": "arm64"}


def about(version, cpu):
    program = "posenc-programs"
    return {
        "name": f"@posenc/server-linux-{cpu}",
        "version": version,
        "description": "Server of posenc, exact positional encodings over gRPC, for Linux",
        "license": wheel.LICENCES,
        "repository": {"type": "git", "url": "git+https://github.com/posenc/posenc.git", "directory": "deploy/npm"},
        "os": ["linux"],
        "cpu": [cpu],
        "libc": ["glibc"],
        "bin": dict.fromkeys(wheel.COMMANDS, program),
        "files": [program, "licenses"],
    }


def main(program, output):
    machine = next(machine for machine in CPUS if wheel.tag_of(program).endswith(machine))
    version = (wheel.ROOT / "VERSION").read_text().strip()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "package.json").write_text(json.dumps(about(version, CPUS[machine]), indent=2) + "\n")
        shutil.copy(HERE / "README.md", root)
        shutil.copy(program, root / "posenc-programs")
        wheel.copy_licences(root / "licenses")
        subprocess.run(["npm", "pack", "--silent", "--pack-destination", Path(output).resolve()], cwd=root, check=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except wheel.Refused as refused:
        sys.exit(f"package.py: {refused}")
