#!/usr/bin/env bash
# counts misrounded values among 100 million, and compares the bytes of every
# instruction set (MILLIONS: another number; ./run test takes one million)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posenc-exactness
millions=${1:-100}
program=build/release/bin/posenc-exactness first=
"$program" "$millions"
for isa in sse2 avx2 avx512 avx512_bf16; do
  line=$(POSENC_FORCE_ISA=$isa "$program" "$millions" digest)
  # An instruction set that the CPU lacks is replaced by the fastest instruction set.
  [[ $line == "$isa:"* ]] || { echo "$isa: not on this CPU"; continue; }
  echo "$line"
  digest=${line##* }
  [[ -z $first || $digest == "$first" ]] || { echo "exactness: digests differ" >&2; exit 1; }
  first=$digest
done
