#!/usr/bin/env bash
# build and pass every test, of the clients in all languages too (arguments go to ctest,
# which then runs alone; -L core, or -L core/rope, is one layer: tests/README.md). Three
# failures at most are tried once more, alone, and named
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# run_tests_twice PRESET [ARGUMENT...]: run_tests, and the tests that failed once
# more alone, whose result counts. A machine that has much else to do may starve a
# test among others; what is broken fails alone too. More than three are not
# starved, and neither is what crashed.
run_tests_twice() {
  local log=build/$1/tests.log starved ended
  if run_tests "$@" | tee "$log"; then return 0; fi
  ended=$(sed -nE 's/^\t *[0-9]+ - .+ \((.+)\)$/\1/p' "$log" | sort -u)
  mapfile -t starved < <(sed -nE 's/^\t *[0-9]+ - (.+) \((Failed|Timeout)\)$/\1/p' "$log")
  ((${#starved[@]} >= 1 && ${#starved[@]} <= 3)) || return 1
  [[ -z $(grep -vxE 'Failed|Timeout' <<<"$ended") ]] || return 1
  ctest --preset "$1" -j 1 --rerun-failed || return 1
  printf 'failed beside others, passed alone: %s\n' "${starved[@]}"
}

need python3
timed build build release
timed tests run_tests_twice release "$@"
if (($# == 0)); then
  timed clients interop all
  timed examples scripts/examples.sh
  timed explorer scripts/explorer.sh
  timed pages scripts/pages.sh
fi
