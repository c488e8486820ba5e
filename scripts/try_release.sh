#!/usr/bin/env bash
# Installs a release's Debian package, wheels and archive of programs in a new root of a
# suite, and runs the README's first screen there with the server of each:
#   try_release.sh SUITE[-arm64] RELEASE
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. scripts/roots.sh

suite=$1 release=$(realpath "$2") arch=amd64 machine=x86_64
if [[ $suite == *-arm64 ]]; then
  need qemu-user-static
  arch=arm64 machine=aarch64
fi
root=$PWD/build/release-roots/$suite
trap 'unmount_root "$root"' EXIT
unmount_root "$root"
rm -rf --one-file-system "$root"
mkdir -p "${root%/*}"
make_root "$suite" "$root" >"$root.log" 2>&1 || { tail -n 5 "$root.log" >&2; exit 1; }

mkdir "$root/release"
cp "$release"/posenc*-py3-*.whl "$release"/*_"$arch.deb" "$release"/*-linux-"$machine.tar.gz" "$root/release/"
inside "$root" "apt-get install -y -qq --no-install-recommends python3-venv /release/*.deb >/dev/null"
# Downloads with this machine's pip, because the root's pip may not know this machine's
# index of packages.
build/clients/python/venv/bin/python -m pip download -q -d "$root/release" --only-binary=:all: \
  --python-version "$(inside "$root" "python3 -c 'import platform; print(platform.python_version())'")" \
  --platform "manylinux2014_$machine" --platform "manylinux_2_28_$machine" grpcio numpy
awk '/<!-- first screen -->/ { found = 1 } /^```$/ { if (code) exit } code; found && /^```python$/ { code = 1 }' \
  README.md >"$root/first.py"
inside "$root" "python3 -m venv /venv && tar -C /opt -xf /release/*.tar.gz &&
  /venv/bin/pip install -q --no-index --find-links /release posenc"
expected=$(sed -n "/<!-- first screen's output -->/{n;n;p}" README.md)

# try NAME POSENCD: runs the first screen with this server.
try() {
  local printed
  printed=$(inside "$root" "POSENCD=$2 HOME=/nonexistent /venv/bin/python /first.py")
  [[ -n $expected && $printed == "$expected" ]] || forbid "$suite: the first screen with $1 prints $expected" "$printed"
  echo "$suite: the first screen works with $1"
}

try "the package of Debian" /usr/bin/posencd
try "the archive" "/opt/posenc-$(<VERSION)-linux-$machine/bin/posencd"
inside "$root" "apt-get remove -y -qq posenc >/dev/null"
inside "$root" "/venv/bin/pip install -q --no-index --find-links /release 'posenc[server]'"
try "the wheels" ""
