#!/usr/bin/env bash
# tritonclient, kserve and perf_analyzer as they are published, in build/kserve, against a
# server; says what cannot be installed
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-venv
build release posencd
python3 -B tests/kserve/main.py "$@"
