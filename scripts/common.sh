# The common functions of ./run's commands. A script sources this file first: it
# then runs in the project's root, and ends at the first failure.
# shellcheck shell=bash disable=SC2034  # lists that scripts use
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

library_packages=(libgrpc++-dev libprotobuf-dev libabsl-dev libxsimd-dev
  nlohmann-json3-dev libcli11-dev libssl-dev prometheus-cpp-dev libmicrohttpd-dev
  libtomlplusplus-dev libgtest-dev libgmock-dev zlib1g-dev)
build_packages=(g++ cmake ninja-build pkg-config binutils protobuf-compiler
  protobuf-compiler-grpc "${library_packages[@]}")
lint_packages=(clang-format clang-tidy-19 python3)

as_root() { if [[ $EUID -eq 0 ]]; then "$@"; else sudo "$@"; fi; }

# Installs missing Debian packages. dpkg-query prints two lines for a package that is
# installed for two architectures.
need() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f '${db:Status-Status}\n' "$package" 2>/dev/null | grep -x installed >/dev/null ||
      missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  echo "installing: ${missing[*]}" >&2
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq \
    --no-install-recommends "${missing[@]}" >/dev/null
}

# build PRESET [TARGET...]
build() {
  local preset=$1
  shift
  scripts/setup.sh
  [[ -f build/$preset/build.ninja ]] ||
    cmake --preset "$preset" -DPOSENC_WERROR="${POSENC_WERROR:-OFF}" >/dev/null
  cmake --build --preset "$preset" ${*:+--target "$@"} >&2
}

# timed NAME COMMAND...: runs COMMAND and prints its time.
timed() {
  local name=$1 start=$SECONDS
  shift
  "$@"
  echo "$name: $((SECONDS - start)) s"
}

# run_tests PRESET [ARGUMENT...]: runs all tests of a build, or those that ctest
# selects by the arguments. A label is the test's folder, and ctest matches any
# part of a label: `cli` would also select `client`. So a plain folder becomes a
# pattern for this folder and folders below it.
run_tests() {
  local preset=$1 argument previous= arguments=()
  shift
  for argument in "$@"; do
    if [[ $previous == -L || $previous == -LE ]] && [[ $argument =~ ^[a-z0-9_/]+$ ]]; then
      argument="^$argument(/|\$)"
    fi
    arguments+=("$argument")
    previous=$argument
  done
  ctest --preset "$preset" -j "$(nproc)" "${arguments[@]}"
}

# forbid RULE LINES: fails if there are LINES, which break the rule.
forbid() {
  [[ -z $2 ]] || { printf 'lint: %s:\n%s\n' "$1" "$2" >&2; return 1; }
}

# interop COMMAND [ARGUMENT...]: runs tests of the clients of all languages
# together.
interop() {
  need "${build_packages[@]}" python3 openssl ca-certificates
  build release posencd posenc-old-server posenc-false-server
  python3 -B tests/interop/main.py "$@"
}
