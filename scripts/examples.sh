#!/usr/bin/env bash
# runs the examples: grpcurl, ghz, plain stubs, a paged cache (names of examples)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 ca-certificates
build release posencd
examples/test.sh build/release/bin/posencd "$@"
