#!/usr/bin/env bash
# tests the explorer's page and posenc-load's report in Chromium (names of tests: page,
# access, report)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 chromium chromium-driver python3-selenium
build release posenc posencd posenc-load
(($#)) || set -- page access report
for test in "$@"; do
  # Uses Debian's python3, because it has the package; PATH may find another python3.
  /usr/bin/python3 -B "tests/explorer/${test}_test.py" build/release/bin
done
