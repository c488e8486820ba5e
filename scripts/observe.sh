#!/usr/bin/env bash
# the dashboard's and the alerts' queries, by Debian's prometheus, of servers under load
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-yaml openssl
build release posencd posenc-load
/usr/bin/python3 tests/observe/observe.py build/release/bin "$(scripts/prometheus.sh)"
