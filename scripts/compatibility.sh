#!/usr/bin/env bash
# tests the client of 0.1.0 against this server, and the reverse
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need git python3
build release posencd posenc-replay
tests/interop/compatibility.sh build/release/bin build/compatibility
