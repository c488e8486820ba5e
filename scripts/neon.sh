#!/usr/bin/env bash
# runs the arm64 build's tests of core, proto and server under qemu, and compares the
# bytes of its kernels and tables with this machine's
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

build release posenc-kernel-digest posenc-exactness
scripts/build_arm64.sh
# Death tests start their own program again, without the flag -L of qemu.
export QEMU_LD_PREFIX=$PWD/build/arm64-sysroot
# These tests are left out under qemu: /proc describes qemu itself, and a probe over
# TLS takes longer than its limit of a second.
run_tests arm64 -L '^(core|proto|server)(/|$)' --timeout 3000 \
  -E 'ProcessStatus.ReadsWhatTheKernelCounts|ReturnedMemoryTest|ProbeSpeaksTls'
for program in posenc-kernel-digest "posenc-exactness 1 digest"; do
  read -ra arguments <<<"$program"
  here=$("build/release/bin/${arguments[0]}" "${arguments[@]:1}" | sed 's/^[a-z0-9_]*: //')
  there=$(qemu-aarch64 -L build/arm64-sysroot "build/arm64/bin/${arguments[0]}" \
    "${arguments[@]:1}" | sed 's/^[a-z0-9_]*: //')
  [[ $here == "$there" ]] || forbid "$program prints the same on arm64" "$here
$there"
  printf '%s: the same bytes as here\n%s\n' "$program" "$here"
done
