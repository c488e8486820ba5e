#!/usr/bin/env bash
# tests manifests, chart and every change under load in a real Kubernetes of one node
# (needs root; keep: leaves it up; sidecar: only containers that share memory; check:
# only the manifests)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-yaml
if [[ ${1:-} == check ]]; then
  PATH=$(tests/cluster/up.sh tools):$(scripts/prometheus.sh):$PATH
  deploy/check.sh
else
  build release posenc posenc-load
  scripts/image.sh --native --keep build/image.tar.gz
  PATH=$(scripts/prometheus.sh):$PATH tests/cluster/cluster.sh build/release/bin build/image.tar.gz "$@"
fi
