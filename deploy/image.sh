#!/usr/bin/env bash
# Builds the image and shows that it works: read-only, without capabilities,
# as a user without a name.
#   image.sh [--keep FILE]
# FILE keeps the image as an archive (gzip). Needs docker; a daemon is started
# where none runs, and stopped again. Needs root where it must be started, or
# where the base image cannot be pulled and is made by debootstrap.
#   BASE    debian:bookworm-slim
#   MIRROR  of debootstrap and of apt in the base that it makes
#   CACHE   the started daemon's storage
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

base=${BASE:-debian:bookworm-slim}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/posenc-image}
version=$(<VERSION)
image=posenc:$version
work=$(mktemp -d)
daemon=
container=
keep=

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
die() {
  echo "image: $*" >&2
  exit 1
}

# until_true TENTHS COMMAND...: that the command comes true in time.
until_true() {
  local tries=$1 i
  shift
  for ((i = 0; i < tries; ++i)); do
    "$@" >/dev/null 2>&1 && return
    sleep 0.1
  done
  return 1
}

finish() {
  [[ -z $container ]] || docker rm -f "$container" >/dev/null 2>&1 || true
  if [[ -n $daemon ]]; then
    kill "$daemon" 2>/dev/null || true
    wait "$daemon" 2>/dev/null || true
    umount "$work"/exec/netns/* 2>/dev/null || true # of the network "none"
  fi
  rm -rf "$work"
}
trap finish EXIT

# Of its own, beside the system's: another socket and storage, no bridge, and
# the host's forwarding and firewall stay as they are.
start_daemon() {
  docker version >/dev/null 2>&1 && return
  export DOCKER_HOST=unix://$work/docker.sock
  mkdir -p "$cache"
  dockerd --host "$DOCKER_HOST" --data-root "$cache" --exec-root "$work/exec" \
    --pidfile "$work/pid" --bridge=none --iptables=false --ip-forward=false \
    >"$work/log" 2>&1 &
  daemon=$!
  until_true 300 docker version || {
    tail -n 5 "$work/log" >&2
    die "dockerd does not start"
  }
}

# What the official image is: the minimal system without documents.
make_base() {
  local root=$work/base
  say "making $base by debootstrap"
  debootstrap --variant=minbase --include=ca-certificates bookworm "$root" ${MIRROR:+"$MIRROR"} \
    >"$work/debootstrap.log" || { tail -n 5 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
  # Debian's own, or what MIRROR says: debootstrap wrote it down.
  local mirror
  mirror=$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")
  cat >"$root/etc/apt/sources.list" <<EOT
deb $mirror bookworm main
deb $mirror bookworm-updates main
deb ${mirror%/debian}/debian-security bookworm-security main
EOT
  cat >"$root/etc/dpkg/dpkg.cfg.d/slim" <<'EOT'
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
EOT
  rm -rf "$root"/usr/share/{man,info,locale}/* "$root"/var/lib/apt/lists/* \
    "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/log/*
  find "$root/usr/share/doc" ! -type d ! -name copyright -delete
  tar -C "$root" --numeric-owner -c . | docker import -c 'CMD ["bash"]' - "$base" >/dev/null
  rm -rf "$root"
}

have_base() {
  docker image inspect "$base" >/dev/null 2>&1 ||
    timeout 60 docker pull -q "$base" >/dev/null 2>&1 || make_base
}

build() {
  local stamp revision
  stamp=$(git log -1 --format=%ct 2>/dev/null || echo 0)
  revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
  say "building $image"
  # The builder of every docker, with or without its plugins.
  DOCKER_BUILDKIT=${DOCKER_BUILDKIT:-0} docker build -q --network host \
    --build-arg BASE="$base" --build-arg VERSION="$version" --build-arg REVISION="$revision" \
    --build-arg SOURCE_DATE_EPOCH="$stamp" -t "$image" . >"$work/build.log" 2>&1 || {
    tail -n 30 "$work/build.log" >&2
    die "docker build failed"
  }
}

locked=(--read-only --cap-drop ALL --security-opt no-new-privileges)

# client ARGUMENT...: posenc in a container beside the server's.
client() {
  docker run --rm "${locked[@]}" --network "container:$container" \
    -v "$work/tensors:/tensors" --entrypoint posenc "$image" "$@" \
    2> >(grep -v 'IPv4 forwarding' >&2) # the network is the server's: loopback
}

healthy() { [[ $(docker inspect -f '{{.State.Health.Status}}' "$container") == healthy ]]; }

try() {
  say "running it: ${locked[*]}"
  container=$(docker run -d "${locked[@]}" --network none --memory 384m --cpus 1 "$image" \
    --listen=127.0.0.1:50051 --max-request-bytes=64MiB --max-response-bytes=64MiB --in-flight-bytes=256MiB)
  until_true 100 docker exec "$container" posencd --probe 127.0.0.1:50051 || {
    docker logs "$container" >&2
    die "not ready"
  }
  say "ready by posencd --probe"
  local status
  status=$(docker exec "$container" cat /proc/1/status)
  [[ $status =~ Uid:[[:space:]]65532.*Gid:[[:space:]]65532 ]] || die "runs as another user: $status"
  [[ $status =~ CapEff:[[:space:]]0000000000000000.*CapBnd:[[:space:]]0000000000000000 ]] || die "has capabilities"
  [[ $status =~ NoNewPrivs:[[:space:]]1 ]] || die "may gain privileges"
  [[ $(docker exec "$container" touch /tmp/x 2>&1) == *"Read-only file system"* ]] || die "the root can be written"
  say "user and group 65532, no capabilities, no new privileges, root read-only"

  mkdir -m 777 "$work/tensors"
  client sample --out /tensors/before.safetensors --seed 7 --q 1,512,8,128 --k 1,512,2,128
  client --server 127.0.0.1:50051 apply --preset llama-3.1-8b --in /tensors/before.safetensors \
    --layout bshd --start 0 --out /tensors/after.safetensors
  client check --preset llama-3.1-8b --layout bshd --before /tensors/before.safetensors \
    --after /tensors/after.safetensors
  say "rotated a tensor, every element checked"
  until_true 200 healthy || die "Docker's HEALTHCHECK does not pass"
  say "healthy by Docker's HEALTHCHECK"
  docker stop -t 40 "$container" >/dev/null
  [[ $(docker inspect -f '{{.State.ExitCode}}' "$container") == 0 ]] || die "exit code after SIGTERM"
  say "exit code 0 after SIGTERM"
  docker logs "$container" | sed 's/^/  log: /'
}

show() {
  local id packages bytes
  id=$(docker create --network none "$image")
  docker cp -q "$id:/usr/share/doc/posenc/sbom.spdx.json" "$work/" 2>/dev/null ||
    docker cp "$id:/usr/share/doc/posenc/sbom.spdx.json" "$work/" >/dev/null
  docker rm "$id" >/dev/null
  packages=$(python3 -c 'import json, sys
bill = json.load(open(sys.argv[1]))
known = {each["SPDXID"] for part in ("packages", "files") for each in bill[part]} | {"SPDXRef-DOCUMENT"}
for edge in bill["relationships"]:
    assert edge["spdxElementId"] in known and edge["relatedSpdxElement"] in known, edge
print(len(bill["packages"]))' "$work/sbom.spdx.json")
  docker save "$image" | gzip -9 >"$work/image.tar.gz"
  bytes=$(stat -c %s "$work/image.tar.gz")
  say "bill of materials (SPDX 2.3): $packages packages"
  say "$(awk -v bytes="$bytes" 'BEGIN { printf "compressed size: %.1f MB (goal: 60)", bytes / 1e6 }')"
  ((bytes < 60000000)) || die "too large"
  [[ -z $keep ]] || mv "$work/image.tar.gz" "$keep"
}

if [[ ${1:-} == --keep ]]; then
  keep=${2:?a file}
elif (($#)); then
  echo "image: '$1' is unknown; there is: --keep FILE" >&2
  exit 2
fi
start_daemon
have_base
build
try
show
say "$image works"
