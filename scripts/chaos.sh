#!/usr/bin/env bash
# tests overload, stalled peers, attacks, faults and restarts; prints figures and
# their goals (--full: long forms; --json FILE; names of groups: tests/chaos; --soak
# HOURS; edge: behind Envoy)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need iproute2 openssl python3 python3-venv
build release posencd posenc posenc-load posenc-offer posenc-bench-empty
python3 -B tests/chaos/main.py "${CHAOS_BIN:-build/release/bin}" "$@"
