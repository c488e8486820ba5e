#!/usr/bin/env bash
# builds the container image for amd64 and arm64, and tests it (needs docker and root;
# --keep FILE: writes this machine's image, for docker load; --archive FILE: writes both,
# for skopeo; --native: builds only this machine's; GRPC=1.83: with this version of gRPC)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

docker version >/dev/null 2>&1 || command -v dockerd >/dev/null || need docker.io
need buildah crun debootstrap git python3 qemu-user-static
deploy/image.sh "$@"
