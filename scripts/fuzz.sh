#!/usr/bin/env bash
# fuzzes every parser of outside input under address and undefined sanitizers (SECONDS
# for each parser, by default 600; then names of targets: request split ...)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need clang-19 libclang-rt-19-dev
seconds=${1:-600} failed=()
targets=("${@:2}")
cmake --preset asan >/dev/null
((${#targets[@]})) || mapfile -t targets < <(
  cmake --build build/asan --target help |
    sed -nE 's/^posenc-(.+)-fuzz: phony$/\1/p' | sort
)
# shellcheck disable=SC2046  # each word is the name of a target
build asan posenc-fuzz-seeds $(printf 'posenc-%s-fuzz ' "${targets[@]}")
build/asan/bin/posenc-fuzz-seeds proto/testdata/conformance tests/data/configs \
  tests/data/doctor build/fuzz/seeds
for target in "${targets[@]}"; do
  seeds=build/fuzz/seeds/$target dictionary=tests/fuzz/$target.dict
  mkdir -p "build/fuzz/corpus/$target" "build/fuzz/findings/$target" "$seeds"
  # The limit of 60 s is for busy machines: on an idle machine an input takes
  # milliseconds.
  options=(-max_total_time="$seconds" -max_len=8192 -timeout=60
    -rss_limit_mb=2048 -print_final_stats=1
    -artifact_prefix="build/fuzz/findings/$target/")
  [[ ! -f $dictionary ]] || options+=(-dict="$dictionary")
  if "build/asan/bin/posenc-$target-fuzz" "${options[@]}" \
    "build/fuzz/corpus/$target" "$seeds" &>"build/fuzz/$target.log"; then
    grep -E 'number_of_executed_units|peak_rss' "build/fuzz/$target.log" |
      sed "s/^stat::/$target: /"
  else
    tail -n 40 "build/fuzz/$target.log" >&2
    failed+=("$target")
  fi
done
((${#failed[@]} == 0)) || { echo "fuzz: found faults: ${failed[*]}" >&2; exit 1; }
