#!/usr/bin/env bash
# missing.sh CMAKE SOURCE COMPILER: a missing dependency ends the configuration with
# one line that names Debian's package. The test hides dependencies from CMake, one
# at a time.
set -euo pipefail

cmake=$1 source=$2 compiler=$3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0

# refuses LINE ARGUMENT...: a configuration with the arguments must end with LINE.
refuses() {
  local line=$1 said
  shift
  rm -rf "$work/build"
  # CMake wraps long lines, and adds the place of the call.
  if said=$("$cmake" -G Ninja -S "$source" -B "$work/build" -DCMAKE_CXX_COMPILER="$compiler" "$@" 2>&1); then
    echo "configured without: $line" >&2
    failed=1
  elif ! tr -s ' \n' ' ' <<<"$said" | grep -qF "posenc needs $line"; then
    printf 'wanted: posenc needs %s\nbut it said:\n%s\n' "$line" "$said" >&2
    failed=1
  fi
}

while IFS='|' read -r package line; do
  refuses "$line" "-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"
done <<'EOT'
PkgConfig|PkgConfig; on Debian: apt-get install pkg-config
absl|absl; on Debian: apt-get install libabsl-dev
nlohmann_json|nlohmann_json; on Debian: apt-get install nlohmann-json3-dev
xsimd|xsimd; on Debian: apt-get install libxsimd-dev
Protobuf|Protobuf; on Debian: apt-get install libprotobuf-dev protobuf-compiler
gRPC|gRPC; on Debian: apt-get install libgrpc++-dev protobuf-compiler-grpc
CLI11|CLI11; on Debian: apt-get install libcli11-dev
OpenSSL|OpenSSL; on Debian: apt-get install libssl-dev
ZLIB|ZLIB; on Debian: apt-get install zlib1g-dev
GTest|GTest; on Debian: apt-get install libgtest-dev libgmock-dev
EOT
refuses 'protoc; on Debian: apt-get install protobuf-compiler' -DPOSENC_PROTOC=
refuses 'grpc_cpp_plugin; on Debian: apt-get install protobuf-compiler-grpc' -DPOSENC_GRPC_CPP_PLUGIN=
refuses "gRPC's C++ headers; on Debian: apt-get install libgrpc++-dev" -DPOSENC_GRPCPP=
refuses 'toml++; on Debian: apt-get install libtomlplusplus-dev' -DPOSENC_TOML_INCLUDE=

# A library that is too old, as a CMake package with its name.
mkdir "$work/old"
echo 'set(PACKAGE_VERSION 1.50.1)' >"$work/old/gRPCConfigVersion.cmake"
echo >"$work/old/gRPCConfig.cmake"
refuses "gRPC 1.51 or later (this is '1.50.1'); on Debian: apt-get install libgrpc++-dev" \
  "-DgRPC_DIR=$work/old"

# A compiler without C++20.
cat >"$work/c++" <<EOT
#!/bin/sh
for argument; do
  case \$argument in -std=c++20 | -std=gnu++20) echo "unknown option" >&2; exit 1 ;; esac
done
exec $compiler "\$@"
EOT
chmod +x "$work/c++"
compiler=$work/c++
refuses 'a compiler with C++20, such as g++ 12'
exit $failed
