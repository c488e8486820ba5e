#!/usr/bin/env bash
# measures the line coverage of core by its tests; fails under 95 %
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need gcovr
build coverage
find build/coverage -name '*.gcda' -delete
ctest --preset coverage -j "$(nproc)" >build/coverage/tests.log ||
  { tail -n 50 build/coverage/tests.log >&2; exit 1; }
unsupported=()
grep -qw avx512bw /proc/cpuinfo || unsupported=(--exclude 'core/simd/.*avx512.*')
gcovr --root . --object-directory build/coverage --filter 'core/' \
  "${unsupported[@]}" --exclude-directories '.*/CompilerIdCXX' \
  --exclude-throw-branches --print-summary --sort-percentage \
  --fail-under-line 95
