#!/usr/bin/env bash
# Builds the image for amd64 and arm64 under one name, and shows that it works on each:
# read-only, without capabilities, as a user without a name.
#   image.sh [--keep FILE] [--archive FILE] [--native] [--roots FOLDER]
# --keep: writes this machine's image, as an archive (gzip) for `docker load`.
# --archive: writes both images, as an OCI archive for `skopeo copy --all`.
# --native: builds only for this machine's architecture.
# --roots: compiles nothing, and takes the files of the images from FOLDER/ARCH/image.
# Needs root, buildah, and docker to try the images; starts and stops a docker daemon if
# no daemon runs. Tries the image of another architecture under qemu.
#   GRPC    1.51 or 1.83: see SECURITY.md
#   MIRROR  for debootstrap, if the base cannot be pulled
#   CACHE   storage of buildah and of the started daemon
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

grpc=${GRPC:-1.51}
cache=${CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/posenc-image}
version=$(<VERSION)
image=posenc:$version
work=$(mktemp -d)
native=$(dpkg --print-architecture)
architectures=(amd64 arm64)
daemon=
container=
keep=
archive=
roots=
# Steps run in a chroot, because containers cannot always be nested.
export STORAGE_DRIVER=vfs BUILDAH_ISOLATION=chroot
buildah=(buildah --root "$cache/buildah" --runroot "$work/buildah")

say() { printf '[%4ds] %s\n' "$SECONDS" "$*"; }
die() {
  echo "image: $*" >&2
  exit 1
}

# until_true TENTHS COMMAND...: waits until the command succeeds.
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
    umount "$work"/exec/netns/* 2>/dev/null || true # docker mounts them for the network "none"
  fi
  rm -rf "$work"
}
trap finish EXIT

# Starts a separate daemon, with a socket and a storage of its own, without a
# bridge, and without changes to the host's forwarding and firewall.
start_daemon() {
  docker version >/dev/null 2>&1 && return
  export DOCKER_HOST=unix://$work/docker.sock
  mkdir -p "$cache/docker"
  dockerd --host "$DOCKER_HOST" --data-root "$cache/docker" --exec-root "$work/exec" \
    --pidfile "$work/pid" --bridge=none --iptables=false --ip-forward=false \
    >"$work/log" 2>&1 &
  daemon=$!
  until_true 300 docker version || {
    tail -n 5 "$work/log" >&2
    die "dockerd does not start"
  }
}

# make_base SUITE NAME: makes the minimal system, like the official image.
make_base() {
  local suite=$1 name=$2 root=$work/base mirror container
  say "making $name by debootstrap"
  debootstrap --variant=minbase "$suite" "$root" ${MIRROR:+"$MIRROR"} >"$work/debootstrap.log" ||
    { tail -n 5 "$work/debootstrap.log" >&2; die "debootstrap failed"; }
  # Debian's mirror, or MIRROR: debootstrap has written its URL to this file.
  mirror=$(awk '$1 == "deb" { print $2; exit }' "$root/etc/apt/sources.list")
  # MIRROR may be a snapshot of an earlier day, whose lists have expired: apt must not check
  # their dates.
  [[ -z ${MIRROR:-} ]] ||
    echo 'Acquire::Check-Valid-Until "false";' >"$root/etc/apt/apt.conf.d/past-mirror"
  if [[ $suite == bookworm ]]; then
    printf 'deb %s %s main\n' "$mirror" bookworm-updates "${mirror%/debian}/debian-security" \
      bookworm-security >>"$root/etc/apt/sources.list"
  fi
  container=$("${buildah[@]}" from scratch)
  "${buildah[@]}" add -q "$container" "$root" / >/dev/null
  "${buildah[@]}" commit -q "$container" "$name" >/dev/null
  "${buildah[@]}" rm "$container" >/dev/null
  rm -rf "$root"
}

# Prints the Dockerfile's stage of the base: the suite that has this gRPC.
base() {
  case $grpc in
    1.51) base_suite=bookworm base_argument=STABLE ;;
    1.83) base_suite=sid base_argument=UNSTABLE ;;
    *) die "GRPC is 1.51 or 1.83, not $grpc" ;;
  esac
  base_name=docker.io/library/debian:$base_suite-slim
  "${buildah[@]}" inspect --type image "$base_name" >/dev/null 2>&1 ||
    timeout 60 "${buildah[@]}" pull -q "$base_name" >/dev/null 2>&1 || make_base "$base_suite" "$base_name"
}

# Builds an image for each architecture, and names them together.
build() {
  local revision architecture from
  stamp=$(git log -1 --format=%ct 2>/dev/null || echo 0)
  revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)
  "${buildah[@]}" manifest rm "$image" >/dev/null 2>&1 || true
  "${buildah[@]}" manifest create "$image" >/dev/null
  for architecture in "${architectures[@]}"; do
    say "building $image for $architecture with gRPC $grpc"
    if [[ -z $roots ]]; then
      # With layers, a second run builds only changes.
      from=(--layers --network host --build-arg BUILDPLATFORM="linux/$native" --build-arg "$base_argument=$base_name")
    else
      # The last stage copies the files from a context that has the name of the stage before.
      from=(--file "$work/Dockerfile" --build-context "build=$roots/$architecture")
    fi
    # OCI's format has no HEALTHCHECK.
    "${buildah[@]}" build --format docker --pull-never --timestamp "$stamp" -t "$image-$architecture" \
      --platform "linux/$architecture" --build-arg GRPC="$grpc" "${from[@]}" \
      --build-arg VERSION="$version" --build-arg REVISION="$revision" \
      --build-arg SOURCE_DATE_EPOCH="$stamp" . >"$work/build.log" 2>&1 || {
      tail -n 30 "$work/build.log" >&2
      die "building failed"
    }
    "${buildah[@]}" manifest add "$image" "localhost/$image-$architecture" >/dev/null
  done
}

# Lets this machine's kernel run arm64 programs with qemu.
register_qemu() {
  [[ -e /proc/sys/fs/binfmt_misc/register ]] ||
    mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
  [[ -e /proc/sys/fs/binfmt_misc/qemu-aarch64 ]] ||
    printf '%s' ':qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00:\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:/usr/bin/qemu-aarch64-static:F' \
      >/proc/sys/fs/binfmt_misc/register
}

locked=(--read-only --cap-drop ALL --security-opt no-new-privileges)

# client ARGUMENT...: runs posenc in a second container, which shares the server's network.
client() {
  docker run --rm "${locked[@]}" --network "container:$container" \
    -v "$work/tensors:/tensors" --entrypoint posenc "$image" "$@" \
    2> >(grep -v 'IPv4 forwarding' >&2) # the network is the server's: loopback
}

healthy() { [[ $(docker inspect -f '{{.State.Health.Status}}' "$container") == healthy ]]; }

# try ARCHITECTURE: runs the image in a container, checks the container's rights, and rotates a
# tensor.
try() {
  local architecture=$1 archive=$work/$1.tar
  export DOCKER_DEFAULT_PLATFORM=linux/$architecture
  "${buildah[@]}" push -q "localhost/$image-$architecture" "docker-archive:$archive:$image"
  docker load -q -i "$archive" >/dev/null
  [[ $architecture == "$native" ]] || register_qemu
  say "running it on $architecture: ${locked[*]}"
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

  mkdir -p -m 777 "$work/tensors"
  client sample --out /tensors/before.safetensors --seed 7 --q 1,512,8,128 --k 1,512,2,128
  client --server 127.0.0.1:50051 apply --preset llama-3.1-8b --in /tensors/before.safetensors \
    --layout bshd --start 0 --out /tensors/after.safetensors
  client check --preset llama-3.1-8b --layout bshd --before /tensors/before.safetensors \
    --after /tensors/after.safetensors
  say "rotated a tensor, every element checked"
  if [[ $architecture == "$native" ]]; then # under qemu, a probe exceeds its time limit
    until_true 200 healthy || die "Docker's HEALTHCHECK does not pass"
    say "healthy by Docker's HEALTHCHECK"
  fi
  docker stop -t 40 "$container" >/dev/null
  [[ $(docker inspect -f '{{.State.ExitCode}}' "$container") == 0 ]] || die "exit code after SIGTERM"
  say "exit code 0 after SIGTERM"
  docker logs "$container" | sed 's/^/  log: /'
  docker rm "$container" >/dev/null
  container=
}

# show ARCHITECTURE: prints the bill of materials and the size of the tried image.
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
  gzip -9 "$work/$1.tar"
  bytes=$(stat -c %s "$work/$1.tar.gz")
  say "bill of materials (SPDX 2.3): $packages packages"
  say "$(awk -v bytes="$bytes" 'BEGIN { printf "compressed size: %.1f MB (goal: 45)", bytes / 1e6 }')"
  ((bytes < 45000000)) || die "too large"
}

while (($#)); do
  case $1 in
    --keep | --archive | --roots)
      declare "${1#--}=${2:?a file or folder}"
      shift
      ;;
    --native) architectures=("$native") ;;
    *)
      echo "image: '$1' is unknown; there are: --keep FILE, --archive FILE, --native, --roots FOLDER" >&2
      exit 2
      ;;
  esac
  shift
done
mkdir -p "$cache"
if [[ -z $roots ]]; then
  base
else
  sed -n '/^FROM scratch/,$p' Dockerfile >"$work/Dockerfile"
fi
build
start_daemon
for architecture in "${architectures[@]}"; do
  try "$architecture"
  show "$architecture"
done
[[ -z $keep ]] || mv "$work/$native.tar.gz" "$keep"
if [[ -n $archive ]]; then
  # Does not use buildah's own archive: its files have the current time, so the archives
  # of two runs would differ.
  "${buildah[@]}" manifest push -q --all "$image" "oci:$work/layout:$image"
  tar --sort=name --mtime="@$stamp" --owner=0 --group=0 --numeric-owner --mode=go=rX \
    -C "$work/layout" -cf "$archive" blobs index.json oci-layout
fi
say "$image works on ${architectures[*]}"
