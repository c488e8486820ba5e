#!/usr/bin/env bash
# builds, and runs all tests, also the clients' in all languages (arguments go to ctest,
# which then runs alone; -L core and -L core/rope run one folder's tests: tests/README.md)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3
timed build build release
timed tests run_tests release "$@"
if (($# == 0)); then
  timed clients interop all
  timed examples scripts/examples.sh
  timed explorer scripts/explorer.sh
  timed pages scripts/pages.sh
fi
