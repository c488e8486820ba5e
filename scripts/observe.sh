#!/usr/bin/env bash
# runs the dashboard's and the alerts' queries in Debian's prometheus, on servers
# under load
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-yaml openssl
build release posencd posenc-load
/usr/bin/python3 tests/observe/observe.py build/release/bin "$(scripts/prometheus.sh)"
