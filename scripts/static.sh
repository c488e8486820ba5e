#!/usr/bin/env bash
# Builds posenc-programs, which needs only glibc, and writes it without symbols to
# build/programs/ARCH/posenc-programs:
#   static.sh ARCH...     amd64 arm64
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need "${build_packages[@]}" dpkg-dev libc-ares-dev libre2-dev make
for arch in "$@"; do
  if [[ $arch == "$(dpkg --print-architecture)" ]]; then
    triple=$(gcc -dumpmachine) preset=static
    deploy/wheel/static_libraries.sh "$triple" build/static/libraries
    build static posenc-programs
  else
    triple=aarch64-linux-gnu preset=static-arm64
    scripts/build_arm64.sh --static posenc-programs
  fi
  install -Ds --strip-program="$triple-strip" "build/$preset/bin/posenc-programs" "build/programs/$arch/posenc-programs"
done
