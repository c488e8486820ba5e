#!/usr/bin/env bash
# builds and tests the last commit in bare roots of Debian's suites, and prints a
# table: bookworm, trixie, sid, and sid-grpc, which has experimental's gRPC (names;
# needs root)
#
# sid-grpc is sid with the gRPC and protobuf of experimental. Root folders and their
# builds are kept in build/suites, so that a second run builds only changes. Only root can
# run chroot.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. scripts/roots.sh

need git
roots=$PWD/build/suites
names=("$@")
((${#names[@]})) || names=(bookworm trixie sid sid-grpc)

unmount_roots() {
  local name
  for name in "${names[@]}"; do
    unmount_root "$roots/$name"
  done
}
trap unmount_roots EXIT

version() {
  inside "$1" "dpkg-query -W -f '\${Version}' $2 2>/dev/null" | sed 's/-.*//; s/.*://' || true
}

# conformance NAME: runs this machine's Python and Go clients, with the grpc libraries of
# their packages, against the servers built in the root.
conformance() {
  local root=$roots/$1 programs=$roots/$1.servers program
  mountpoint -q "$root/tmp" || mount --bind /tmp "$root/tmp"
  mkdir -p "$programs"
  for program in posencd posenc-old-server posenc-false-server; do
    printf '#!/bin/sh\nexec chroot %q /src/build/release/bin/%s "$@"\n' "$root" "$program" \
      >"$programs/$program"
    chmod +x "$programs/$program"
  done
  POSENC_SERVERS=$programs python3 -B tests/interop/main.py conformance python go
}

# suite NAME: prints the suite's line of the table.
suite() {
  local name=$1 root=$roots/$1 log=$roots/$1.log start=$SECONDS built=no tests clients
  mkdir -p "$roots"
  if ! make_root "$name" "$root" >"$log" 2>&1; then
    echo "$name: cannot make the root folder; see $log" >&2
    return 1
  fi
  [[ -e $root/src/.git ]] || git clone -q . "$root/src"
  git -C "$root/src" fetch -q "$PWD" HEAD
  git -C "$root/src" reset -q --hard FETCH_HEAD

  if inside "$root" "cd /src && ./run demo && ./run test -L ." >>"$log" 2>&1; then tests=passed; else tests=failed; fi
  if conformance "$name" >>"$log" 2>&1; then clients=passed; else clients=failed; fi
  [[ ! -x $root/src/build/release/bin/posencd ]] || built=yes
  tests+=$(grep -oE '[0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1 | sed 's/^/: /' || true)
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$name" \
    "$(version "$root" libgrpc++-dev)" "$(version "$root" libprotobuf-dev)" \
    "$(version "$root" libabsl-dev)" "$(version "$root" libxsimd-dev)" \
    "$(version "$root" g++)" "$(version "$root" cmake)" "$built" "$tests" "$clients" "$((SECONDS - start))"
  [[ $tests == passed* && $clients == passed ]]
}

echo '| suite | gRPC | protobuf | abseil | xsimd | g++ | cmake | built | tests | clients | seconds |'
echo '|---|---|---|---|---|---|---|---|---|---|---|'
code=0
for name in "${names[@]}"; do suite "$name" || code=1; done
exit $code
