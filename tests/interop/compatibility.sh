#!/usr/bin/env bash
# Runs clients of 0.1.0 against this server, and this client against the server of
# 0.1.0: all vectors that both know must pass.
# compatibility.sh BIN FOLDER: BIN has the programs of the release build; 0.1.0
# is built in FOLDER
#
# The vectors are those of 0.1.0. Answers that 0.2.0 changed on purpose (CHANGELOG,
# "Upgrading from 0.1.0") are listed here, and exactly these must differ. The first
# run takes minutes.
set -euo pipefail
bin=$(realpath "$1") folder=$2
# The last commit of 0.1.0.
release=c0eee3e

git cat-file -e "$release^{commit}" 2>/dev/null || {
  echo "compatibility: this clone lacks commit $release (0.1.0); git fetch --unshallow" >&2
  exit 1
}
mkdir -p "$folder"
folder=$(realpath "$folder")
old=$folder/build
if [[ ! -d $folder/source ]]; then
  mkdir -p "$folder/source.new"
  git archive "$release" | tar -x -C "$folder/source.new"
  mv "$folder/source.new" "$folder/source"
fi
[[ -f $old/build.ninja ]] ||
  cmake -S "$folder/source" -B "$old" -G Ninja -DCMAKE_BUILD_TYPE=Release -DPOSENC_BUILD_TESTS=OFF \
    ${CMAKE_CXX_COMPILER_LAUNCHER:+-DCMAKE_CXX_COMPILER_LAUNCHER="$CMAKE_CXX_COMPILER_LAUNCHER"} >/dev/null
# Builds its server, commands and library.
cmake --build "$old" --target posencd posenc posenc-load posenc_client >&2

# Builds today's replay with the client library and the contract of 0.1.0: it uses
# nothing that 0.1.0 lacks.
replay=$folder/replay
mkdir -p "$replay/tests"
cp -r tests/conformance "$replay/tests/"
cmake --install "$old" --prefix "$folder/prefix" >/dev/null
cat >"$replay/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(replay LANGUAGES CXX)
set(CMAKE_CXX_STANDARD 20)
find_package(posenc REQUIRED)
find_package(nlohmann_json REQUIRED)
add_executable(replay tests/conformance/replay.cc tests/conformance/sent.cc
                      tests/conformance/vectors.cc)
target_include_directories(replay PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(replay PRIVATE posenc::client nlohmann_json::nlohmann_json)
END
cmake -S "$replay" -B "$replay/build" -G Ninja -DCMAKE_PREFIX_PATH="$folder/prefix" \
  -DCMAKE_BUILD_TYPE=Release >/dev/null
cmake --build "$replay/build" >&2

vectors=$(cat "$folder"/source/proto/testdata/conformance/*.json | grep -c '"name":')

differs="AttnFactorMultipliesInLlamaCpp AttnFactorMultipliesInVllm DynamicIsConstantInVllm"
differs+=" RejectsAPositionPastTwoToTheThirtyOne RejectsIdsThatAreNotFinite TableOfNoRows"

# against NAME SERVER REPLAY FAILING: exactly the vectors in FAILING must fail.
against() {
  local server dir failing good all
  dir=$(mktemp -d)
  "$2" --listen 127.0.0.1:0 --ready-file "$dir/ready" >/dev/null 2>&1 &
  server=$!
  for _ in $(seq 300); do
    [[ ! -s $dir/ready ]] || break
    kill -0 "$server" # it still runs
    sleep 0.1
  done
  "$3" "$(cat "$dir/ready")" "$folder/source/proto/testdata/conformance" >"$dir/lines" || true
  kill "$server"
  wait "$server" || true
  failing=$(grep -vP '\tok$' "$dir/lines" | cut -f 2 | sort | xargs)
  good=$(grep -cP '\tok$' "$dir/lines" || true) all=$(wc -l <"$dir/lines")
  rm -rf "$dir"
  echo "$1: $good/$all as in 0.1.0${failing:+; otherwise: $failing}"
  ((all == vectors)) && [[ $failing == "$4" ]]
}

code=0
against "client of 0.1.0, this server" "$bin/posencd" "$replay/build/replay" "$differs" || code=1
against "this client, server of 0.1.0" "$old/bin/posencd" "$bin/posenc-replay" "" || code=1
exit "$code"
