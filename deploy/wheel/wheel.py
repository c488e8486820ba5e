"""Makes the wheel posenc-server from a program that needs only glibc.

    wheel.py PROGRAM OUTPUT

PROGRAM: posenc-programs (programs.cc), stripped.
OUTPUT: the folder for the wheel.

The same input gives the same bytes; times are SOURCE_DATE_EPOCH, by default 0.
"""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
COMMANDS = ("posenc", "posenc-load", "posencd")

SHARE = Path("/usr/share")
# Debian's packages of the libraries that are linked in, or whose headers are compiled in.
# Each package has a file with its licences. These files refer to some licence
# texts (TEXTS) in another folder.
LINKED = ("gcc-12-base", "libabsl-dev", "libc-ares-dev", "libcli11-dev", "libgrpc-dev", "libmicrohttpd-dev",
          "libprotobuf-dev", "libre2-dev", "libssl-dev", "libtomlplusplus-dev", "libxsimd-dev",
          "nlohmann-json3-dev", "prometheus-cpp-dev", "zlib1g-dev")  # fmt: skip
TEXTS = ("GPL-3", "LGPL-2.1")
LICENCES = ("Apache-2.0 AND BSD-3-Clause AND MIT AND Zlib AND LGPL-2.1-or-later"
            " AND GPL-3.0-or-later WITH GCC-exception-3.1")  # fmt: skip

# The libraries of glibc, which every manylinux system has.
GLIBC = re.compile(r"(libc|libm|libdl|libpthread|librt|ld-linux-x86-64|ld-linux-aarch64)\.so\.\d+")
MACHINES = {"Advanced Micro Devices X86-64": "x86_64", "AArch64": "aarch64"}
MOST_BYTES = 12_000_000


class Refused(Exception):
    """Raised for a program that must not be in a wheel."""


def tag_of(program):
    """Returns the tag of the oldest system that runs a program, such as manylinux_2_34_x86_64."""
    told = subprocess.run(["readelf", "-hdVW", program], env={**os.environ, "LC_ALL": "C"}, capture_output=True,
                          text=True, check=True).stdout  # fmt: skip
    foreign = [name for name in re.findall(r"\(NEEDED\).*\[(.*)\]", told) if not GLIBC.fullmatch(name)]
    if foreign:
        raise Refused(f"{program} needs {', '.join(foreign)}; only glibc's libraries may be needed")
    if re.search(r"\((RPATH|RUNPATH)\)", told):
        raise Refused(f"{program} has a path of libraries")
    versions = re.findall(r"Name: (\w+?)_([\d.]+) ", told)
    others = {name for name, _ in versions} - {"GLIBC"}
    if others or not versions:
        raise Refused(f"{program} needs versions of {', '.join(sorted(others)) or 'nothing'}, and not of GLIBC alone")
    major, minor = max(tuple(map(int, version.split(".")[:2])) for _, version in versions)
    return f"manylinux_{major}_{minor}_{MACHINES[re.search(r'Machine: *(.*)', told)[1]]}"


def licences():
    """Returns the licence files of the program and of the libraries in it, by name."""
    return {
        "LICENSE": ROOT / "LICENSE",
        **{f"{name}/copyright": SHARE / "doc" / name / "copyright" for name in LINKED},
        **{name: SHARE / "common-licenses" / name for name in TEXTS},
    }


def copy_licences(folder):
    for name, file in licences().items():
        (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, Path(folder) / name)


def files_of(version, tag, program):
    """Returns the bytes of the wheel's files by name, without its RECORD."""
    about = f"posenc_server-{version}.dist-info"
    files = {f"posenc_server/{file.name}": file.read_bytes() for file in HERE.glob("posenc_server/*.py")}
    files["posenc_server/posenc-programs"] = program.read_bytes()
    files |= {f"{about}/licenses/{name}": file.read_bytes() for name, file in licences().items()}
    metadata = [
        "Metadata-Version: 2.4",
        "Name: posenc-server",
        f"Version: {version}",
        "Summary: Server of posenc, exact positional encodings over gRPC",
        "Requires-Python: >=3.9",
        f"License-Expression: {LICENCES}",
        *(f"License-File: {name}" for name in licences()),
        "Description-Content-Type: text/markdown",
        "",
        (HERE / "README.md").read_text("utf-8"),
    ]
    wheel = ["Wheel-Version: 1.0", "Generator: posenc", "Root-Is-Purelib: false", f"Tag: py3-none-{tag}", ""]
    entries = ["[console_scripts]", *(f"{name} = posenc_server:run" for name in COMMANDS), ""]
    for name, lines in (("METADATA", metadata), ("WHEEL", wheel), ("entry_points.txt", entries)):
        files[f"{about}/{name}"] = "\n".join(lines).encode()
    return files


def record_of(name, files):
    lines = []
    for each, content in sorted(files.items()):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
        lines.append(f"{each},sha256={digest},{len(content)}\n")
    return "".join([*lines, f"{name},,\n"]).encode()


def write(path, files, seconds):
    # A zip file cannot store a time before 1980.
    moment = time.gmtime(max(seconds, 315532800))[:6]
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, moment)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name.endswith("/posenc-programs") else 0o100644) << 16
            archive.writestr(entry, content, compresslevel=9)


def main(program, output):
    version = (ROOT / "VERSION").read_text().strip()
    tag = tag_of(program)
    files = files_of(version, tag, Path(program))
    record = f"posenc_server-{version}.dist-info/RECORD"
    files[record] = record_of(record, files)
    path = Path(output) / f"posenc_server-{version}-py3-none-{tag}.whl"
    write(path, files, int(os.environ.get("SOURCE_DATE_EPOCH", "0")))
    if path.stat().st_size > MOST_BYTES:
        raise Refused(f"{path} has {path.stat().st_size} bytes; at most {MOST_BYTES}")
    print(path)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Refused as refused:
        sys.exit(f"wheel.py: {refused}")
