#!/usr/bin/env bash
# build and start posencd (arguments go to it)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posencd
exec build/release/bin/posencd "$@"
