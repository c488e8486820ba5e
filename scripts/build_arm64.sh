#!/usr/bin/env bash
# Builds the named targets, or all, for arm64 (--static: with the preset static-arm64).
# Unpacks Debian's arm64 packages into a folder, and uses this machine's code generators.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

root=$PWD/build/arm64-sysroot
need g++-aarch64-linux-gnu qemu-user
scripts/sysroot.sh arm64 "$root" libc6-dev \
  "libstdc++-$(aarch64-linux-gnu-g++ -dumpversion)-dev" "${library_packages[@]}" libc-ares-dev libre2-dev
ln -sf /usr/bin/protoc* /usr/bin/grpc_*_plugin "$root/usr/bin/"
if [[ ${1:-} == --static ]]; then
  # The static libraries go below the sysroot, because pkg-config finds only libraries there.
  deploy/wheel/static_libraries.sh aarch64-linux-gnu "$root/static"
  build static-arm64 "${@:2}"
else
  build arm64 "${@:-all}"
fi
