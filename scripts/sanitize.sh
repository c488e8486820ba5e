#!/usr/bin/env bash
# runs the tests under address+undefined and thread sanitizers
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# The asan build needs clang, because it also has the fuzz targets.
need clang-19 libclang-rt-19-dev
for preset in asan tsan; do
  timed "build of $preset" build "$preset"
  timed "tests of $preset" run_tests "$preset" "$@"
done
