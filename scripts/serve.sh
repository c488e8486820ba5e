#!/usr/bin/env bash
# builds and starts posencd (arguments go to posencd)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posencd
exec build/release/bin/posencd "$@"
