#!/usr/bin/env bash
# Builds and tests this commit in bare roots of Debian's suites, and prints a table.
#   scripts/suites.sh [NAME...]     bookworm trixie sid sid-grpc; none named: all
#
# sid-grpc is sid with the gRPC and protobuf of experimental. Roots are kept in
# build/suites; a second run takes them as they are. POSENC_SUITES_CCACHE=DIR: a
# compiler cache outside the roots. Root is needed, for chroot.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
roots=$PWD/build/suites
names=("$@")
((${#names[@]})) || names=(bookworm trixie sid sid-grpc)

# Of the machine's own configuration, so that no host is named here.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)

inside() {
  chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive ${ccache:+CCACHE_DIR=/ccache CMAKE_CXX_COMPILER_LAUNCHER=ccache} \
    bash -c "$2"
}

mount_root() {
  mountpoint -q "$1/proc" || mount -t proc proc "$1/proc"
  mountpoint -q "$1/dev" || mount --rbind --make-rslave /dev "$1/dev"
  if [[ -n $ccache ]]; then
    mkdir -p "$1/ccache" "$ccache"
    mountpoint -q "$1/ccache" || mount --bind "$ccache" "$1/ccache"
  fi
}

unmount_roots() {
  local name
  for name in "${names[@]}"; do
    umount -l "$roots/$name"/{proc,dev,ccache} 2>/dev/null || true
  done
}
ccache=${POSENC_SUITES_CCACHE:-}
trap unmount_roots EXIT

# make_root NAME ROOT: a failed step ends it, for its caller asks for its result.
make_root() {
  local name=$1 root=$2
  if [[ ! -e $root/ready ]]; then
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --include=ca-certificates,git "${name%-grpc}" "$root" "$mirror" &&
      cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" &&
      cp /etc/resolv.conf "$root/etc/" &&
      touch "$root/ready" || return 1
  fi
  mount_root "$root" && inside "$root" "apt-get update -qq" || return 1
  [[ -z $ccache ]] || inside "$root" "apt-get install -y -qq ccache" || return 1
  if [[ $name == *-grpc ]]; then
    echo "deb $mirror experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
    # Experimental's gRPC and protobuf were built with sid's abseil.
    inside "$root" "apt-get update -qq &&
      apt-get install -y -qq --no-install-recommends -t experimental libgrpc++-dev \
        libprotobuf-dev protobuf-compiler protobuf-compiler-grpc &&
      apt-get install -y -qq --allow-downgrades --no-install-recommends libabsl-dev/sid"
  fi
}

version() {
  inside "$1" "dpkg-query -W -f '\${Version}' $2 2>/dev/null" | sed 's/-.*//; s/.*://' || true
}

# suite NAME: prints its line of the table.
suite() {
  local name=$1 root=$roots/$1 log=$roots/$1.log start=$SECONDS built=no tests=-
  mkdir -p "$roots"
  if ! make_root "$name" "$root" >"$log" 2>&1; then
    echo "$name: no root; see $log" >&2
    return 1
  fi
  rm -rf "$root/src"
  git clone -q . "$root/src"
  # With another gRPC the command's and the servers' own tests; else everything but
  # what is slow.
  local run="./run demo && ./run test -LE slow"
  [[ $name != *-grpc ]] || run="./run demo && ./run test -L 'core|proto|server|client|load'"
  if inside "$root" "cd /src && $run" >>"$log" 2>&1; then tests=passed; else tests=failed; fi
  [[ ! -x $root/src/build/release/bin/posencd ]] || built=yes
  tests+=$(grep -oE '[0-9]+ tests? failed out of [0-9]+' "$log" | tail -n 1 | sed 's/^/: /' || true)
  printf '| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n' "$name" \
    "$(version "$root" libgrpc++-dev)" "$(version "$root" libprotobuf-dev)" \
    "$(version "$root" libabsl-dev)" "$(version "$root" libxsimd-dev)" \
    "$(version "$root" g++)" "$(version "$root" cmake)" "$built" "$tests" "$((SECONDS - start))"
  [[ $tests == passed* ]]
}

echo '| suite | gRPC | protobuf | abseil | xsimd | g++ | cmake | built | tests | seconds |'
echo '|---|---|---|---|---|---|---|---|---|---|'
code=0
for name in "${names[@]}"; do suite "$name" || code=1; done
exit $code
