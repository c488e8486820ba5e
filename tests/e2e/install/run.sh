#!/usr/bin/env bash
# Installs a build into an empty prefix, builds the consumer only against it,
# and lets it call the installed server.
# run.sh CMAKE BUILD_DIR CXX CXX_FLAGS
set -euo pipefail
cmake=$1 build=$2 cxx=$3 flags=$4
here=$(dirname "${BASH_SOURCE[0]}")
client=$here/../../../client

dir=$(mktemp -d)
server=
finish() {
  [[ -z $server ]] || { kill "$server" 2>/dev/null && wait "$server"; } || true
  rm -rf "$dir"
}
trap finish EXIT

"$cmake" --install "$build" --prefix "$dir/prefix" >/dev/null
"$cmake" -S "$here" -B "$dir/consumer" -G Ninja \
  -DCMAKE_CXX_COMPILER="$cxx" -DCMAKE_CXX_FLAGS="$flags" \
  -DCMAKE_PREFIX_PATH="$dir/prefix" -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF
"$cmake" --build "$dir/consumer"

cmp "$client/service_config.json" "$dir/prefix/share/posenc/service_config.json"

# The README shows this program, without its first comment.
diff <(awk '/^```$/ && inside {exit} inside {print} /^```cpp$/ {inside = 1}' "$client/cpp/README.md") \
  <(sed 1,2d "$here/main.cc")

[[ $("$dir/consumer/core_consumer") == "64 frequencies, the first 1" ]]

# Without a server, the consumer must report an error.
if "$dir/consumer/consumer" "unix:$dir/socket" 2>"$dir/error"; then
  echo "the consumer got an answer from nobody" >&2
  exit 1
fi
grep UNAVAILABLE "$dir/error"

"$dir/prefix/bin/posencd" --listen "unix:$dir/socket" \
  --ready-file "$dir/ready" &
server=$!
for ((i = 0; i < 300; ++i)); do
  [[ ! -s $dir/ready ]] || break
  kill -0 "$server" # it still runs
  sleep 0.1
done
out=$("$dir/consumer/consumer" "unix:$dir/socket")
echo "$out"
[[ $out == "65536 bytes, rotated" ]]
