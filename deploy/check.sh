#!/usr/bin/env bash
# Manifests and chart, without a cluster.
#   check.sh      needs kustomize, helm and python3-yaml
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

check() { /usr/bin/python3 check.py "$@"; }

# refused MESSAGE ARGUMENT...: that values of the chart are.
refused() {
  local message=$1
  shift
  if helm template --kube-version 1.30.0 posenc helm "$@" >/dev/null 2>"$work/error" ||
    ! grep -q -- "$message" "$work/error"; then
    echo "helm does not refuse: $*" >&2
    return 1
  fi
}

kustomize build kustomize/base >"$work/base.yaml"
check "$work/base.yaml"
for overlay in dev prod; do
  kustomize build "kustomize/overlays/$overlay" >"$work/$overlay.yaml"
  check "$work/$overlay.yaml"
done
echo "kustomize: base, dev and prod keep the rules of check.py"

helm lint --quiet --strict helm
helm template --kube-version 1.30.0 posenc helm >"$work/chart.yaml"
check "$work/chart.yaml" "$work/base.yaml"
helm template --kube-version 1.30.0 cache helm --set autoscaling.enabled=false,replicas=2,port=9000 \
  --set 'server.extraArgs={--max-waiting=64}' --set podAnnotations.a=b >"$work/other.yaml"
grep -q -- '--max-waiting=64' "$work/other.yaml"
grep -q 'name: cache-posenc-headless' "$work/other.yaml"
refused lameDuckSeconds --set server.lameDuckSeconds=-1
refused inFlightBytes --set server.inFlightBytes=64MB
refused typo --set server.typo=1
echo "helm: lint passes, the chart renders what the base is, wrong values are refused"

# A check that cannot fail is none.
sed 's/in-flight-bytes=256MiB/in-flight-bytes=512MiB/' "$work/chart.yaml" >"$work/wrong.yaml"
if check "$work/wrong.yaml" "$work/base.yaml" 2>"$work/error"; then exit 1; fi
grep -q 'does not fit' "$work/error"
grep -q 'in the chart' "$work/error"
