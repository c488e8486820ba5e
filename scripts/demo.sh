#!/usr/bin/env bash
# builds and starts a server, and does its main job through the client
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posencd posenc
client/tools/cli/demo.sh build/release/bin "${1:-build/demo}"
