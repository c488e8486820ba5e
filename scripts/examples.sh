#!/usr/bin/env bash
# runs what examples/ shows without a client: grpcurl, ghz, plain stubs
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 ca-certificates
build release posencd
examples/test.sh build/release/bin/posencd "$@"
