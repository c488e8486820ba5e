#!/usr/bin/env bash
# tests a server with the published tritonclient, kserve and perf_analyzer, in
# build/kserve; names the tools that cannot be installed
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-venv
build release posencd
python3 -B tests/kserve/main.py "$@"
