#!/usr/bin/env bash
# builds release binaries in build/release/bin (posencd, posenc, posenc-load), and
# posenc's manual page and completions in build/release/share (--arm64: cross-compiles
# the binaries to build/arm64/bin)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [[ ${1:-} == --arm64 ]]; then
  scripts/build_arm64.sh posencd posenc posenc-load
else
  build release posencd posenc posenc-load
fi
