# Functions that make bare roots of Debian's suites, and run commands in them. A script
# sources this file after common.sh. chroot needs the user root.
# shellcheck shell=bash

need debootstrap

# Takes the mirror from the machine's configuration, so that this script names
# no host.
mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' | head -n 1)

inside() {
  chroot "$1" env -i HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 \
    DEBIAN_FRONTEND=noninteractive \
    bash -c "$2"
}

mount_root() {
  mountpoint -q "$1/proc" || mount -t proc proc "$1/proc"
  mountpoint -q "$1/dev" || mount --rbind --make-rslave /dev "$1/dev"
  mountpoint -q "$1/sys" || mount --rbind --make-rslave /sys "$1/sys"
}

unmount_root() { umount -l "$1"/{proc,dev,sys,tmp} 2>/dev/null || true; }

# make_root NAME ROOT: NAME is a suite, or SUITE-grpc or SUITE-arm64. The function checks
# each step itself, because set -e does not apply to a function that is called in a
# condition.
make_root() {
  local name=$1 root=$2 arch=amd64
  [[ $name != *-arm64 ]] || arch=arm64
  if [[ ! -e $root/ready ]]; then
    rm -rf --one-file-system "$root"
    debootstrap --variant=minbase --arch="$arch" --include=ca-certificates,git "${name%-*}" "$root" "$mirror" &&
      cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" &&
      cp /etc/resolv.conf "$root/etc/" &&
      echo '127.0.0.1 localhost' >"$root/etc/hosts" &&
      touch "$root/ready" || return 1
  fi
  if [[ $name == *-grpc ]]; then
    # Takes only gRPC and protobuf from experimental, which were built with sid's abseil.
    echo "deb $mirror experimental main" >"$root/etc/apt/sources.list.d/experimental.list"
    printf 'Package: src:grpc src:protobuf\nPin: release a=experimental\nPin-Priority: 900\n' \
      >"$root/etc/apt/preferences.d/experimental"
  fi
  mount_root "$root" && inside "$root" "apt-get update -qq"
}
