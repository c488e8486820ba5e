#!/usr/bin/env bash
# Builds the targets that it is given, or all, for arm64. Debian's arm64 packages are
# unpacked into a folder; the code generators are this machine's.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

root=$PWD/build/arm64-sysroot
need g++-aarch64-linux-gnu qemu-user
scripts/sysroot.sh arm64 "$root" libc6-dev \
  "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion)-dev" "${library_packages[@]}"
ln -sf /usr/bin/protoc /usr/bin/grpc_*_plugin "$root/usr/bin/"
build arm64 "${@:-all}"
