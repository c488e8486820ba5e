#!/usr/bin/env bash
# Core for AArch64, by cross-compilation and under qemu: its tests, and the bytes of
# its kernels and tables against those of this machine's instruction sets.
# neon.sh FOLDER BIN: where to build; programs of the release build of this machine
#
# Core needs few libraries of others. Debian's packages of them for arm64 are
# unpacked into a folder and installed nowhere: apt's own database is not touched.
set -euo pipefail
folder=$1 bin=$(realpath "$2")
mkdir -p "$folder"
folder=$(realpath "$folder")
sysroot=$folder/sysroot
packages=(libabsl-dev libabsl20220623 libssl-dev libssl3 libgtest-dev libgmock-dev zlib1g zlib1g-dev
  libxsimd-dev nlohmann-json3-dev)

unpack() {
  local apt=$folder/apt deb
  mkdir -p "$apt"/{state/lists/partial,cache/archives/partial}
  : >"$apt/state/status"
  local options=(-o APT::Architecture=arm64 -o APT::Architectures::=arm64
    -o Dir::State="$apt/state" -o Dir::State::status="$apt/state/status"
    -o Dir::Cache="$apt/cache" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" update -qq
  (cd "$apt/cache/archives" && apt-get "${options[@]}" download -qq "${packages[@]}")
  rm -rf "$sysroot.new"
  mkdir -p "$sysroot.new"
  for deb in "$apt"/cache/archives/*.deb; do dpkg-deb -x "$deb" "$sysroot.new"; done
  mv "$sysroot.new" "$sysroot"
}

[[ -d $sysroot ]] || unpack
[[ -f $folder/build/build.ninja ]] ||
  cmake -S . -B "$folder/build" -G Ninja -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CXX_FLAGS_RELEASE="-O2 -DNDEBUG" \
    -DCMAKE_TOOLCHAIN_FILE="$PWD/tests/neon/toolchain.cmake" -DPOSENC_SYSROOT="$sysroot" \
    -DPOSENC_CORE_ONLY=ON -DPOSENC_WERROR=ON \
    ${CMAKE_CXX_COMPILER_LAUNCHER:+-DCMAKE_CXX_COMPILER_LAUNCHER="$CMAKE_CXX_COMPILER_LAUNCHER"}
cmake --build "$folder/build"
ctest --test-dir "$folder/build" -j "$(nproc)" --output-on-failure

# same NAME COMMAND...: the program says the same here and there.
same() {
  local name=$1 here there
  shift
  here=$("$bin/$name" "$@" | sed 's/^[a-z0-9_]*: //')
  there=$(qemu-aarch64 -L /usr/aarch64-linux-gnu \
    -E LD_LIBRARY_PATH="$sysroot/usr/lib/aarch64-linux-gnu" "$folder/build/bin/$name" "$@" |
    sed 's/^[a-z0-9_]*: //')
  [[ $here == "$there" ]] || {
    printf 'neon: %s differs\nhere:  %s\nneon:  %s\n' "$name" "$here" "$there" >&2
    return 1
  }
  printf '%s: the same bytes as here\n%s\n' "$name" "$here"
}
same posenc-kernel-digest
same posenc-exactness 1 digest
