#!/usr/bin/env bash
# runs posenc-load against a server of its own (arguments go to posenc-load)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posencd posenc-load
code=0
dir=$(mktemp -d)
build/release/bin/posencd --listen "unix:$dir/posencd.sock" \
  --ready-file "$dir/ready" >/dev/null &
server=$!
for _ in $(seq 100); do [[ -s $dir/ready ]] && break; sleep 0.1; done
build/release/bin/posenc-load --server "unix:$dir/posencd.sock" "$@" || code=$?
kill "$server"
wait "$server" || true
rm -rf "$dir"
exit "$code"
