#!/usr/bin/env bash
# checks formatting, the contract's rules, libraries and each client's own linters; runs
# clang-tidy on each source that changed, or includes a change, since it last passed here
# (LINT_BASE=COMMIT: skips sources that equal those of COMMIT; all: checks every source;
# TIDY_SECONDS=N: begins no check after N seconds, and names the sources left out)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

sources() { git ls-files '*.cc' '*.h' '*.inl'; }

format() { sources | xargs clang-format --dry-run -Werror; }

contract() {
  local set
  set=$(mktemp)
  protoc -I proto --include_source_info --include_imports \
    --descriptor_set_out="$set" proto/posenc/{v1,rpc}/*.proto
  build/release/bin/posenc-proto-lint "$set" proto/testdata/contract-0.1.0.binpb
  rm -f "$set"
}

# Compares the copies of the version with VERSION. Each line below is a file and a
# pattern whose group is the version. The pattern must match at least once in the file.
versions() {
  local version file pattern copies
  version=$(<VERSION)
  grep -q "^## \[$version\]" CHANGELOG.md ||
    forbid "CHANGELOG.md lacks the version" "$version"
  while read -r file pattern; do
    [[ -e $file ]] || continue
    copies=$(sed -nE "s|$pattern|\1|p" "$file" | sort -u)
    [[ $copies == "$version" ]] || forbid "VERSION is $version" "$file: ${copies:-none}"
  done <<'EOT'
README.md ^.* posenc:([0-9.]+) REGISTRY.*
deploy/README.md ^.*REGISTRY/posenc:([0-9.]+)$
deploy/compose.yaml ^ +image: posenc:([0-9.]+)$
deploy/kserve/servingruntime.yaml ^ +image: posenc:([0-9.]+)$
deploy/helm/Chart.yaml ^[a-zV]*ersion: ([0-9.]+)$
deploy/kustomize/base/kustomization.yaml ^ +newTag: ([0-9.]+)$
deploy/kustomize/overlays/sidecar/kustomization.yaml ^ +newTag: ([0-9.]+)$
client/go/client.go ^const Version = "([^"]*)"$
client/go/README.md ^.*client/go@v([0-9.]+)`.*$
client/java/pom.xml ^  <version>([^<]*)</version>$
client/node/package.json ^  "version": "([^"]*)",$
client/python/pyproject.toml ^version = "([^"]*)"$
client/python/pyproject.toml ^.*posenc-server==([0-9.]+);.*$
client/rust/Cargo.toml ^version = "([^"]*)"$
client/rust/README.md ^posenc = . path = "posenc-([0-9.]+)".*$
EOT
}

# CMake limits which of our own folders a source can include (cmake/components.cmake). It
# cannot limit external libraries: their headers are all in one folder, in which a
# compiler finds them.
libraries() {
  forbid "core knows no protobuf and no gRPC" \
    "$(grep -rnE '#include [<"](grpc|google/protobuf|posenc/)' core)"
  forbid "xsimd stays in core/simd" \
    "$(grep -rn '#include .xsimd' core server client | grep -v '^core/simd/')"
  forbid "libmicrohttpd, prometheus-cpp and opentelemetry-cpp stay in their own folders" \
    "$(grep -rnE '#include [<"](microhttpd|prometheus/|opentelemetry/)' core client server |
      grep -vE '^(client/tools/explorer/explorer.cc:[0-9]+:#include <microhttpd|server/admin/[^:]*:[0-9]+:#include <microhttpd|server/metrics/[^:]*:[0-9]+:#include "prometheus|server/trace/[^:]*:[0-9]+:#include "opentelemetry)')"
  forbid "TOML is read by one file" \
    "$(grep -rn '#include [<"]toml++' core client server | grep -v '^server/config/config_file.cc:')"
  forbid "in core, JSON stays in core/interpretation and core/doctor" \
    "$(grep -rnE '#include [<"]nlohmann/' core | grep -vE '^core/(interpretation|doctor)/')"
}

need "${lint_packages[@]}" git
timed clang-format format
# Builds everything: clang-tidy reads generated sources of every part.
timed build build release
timed contract contract
timed versions versions
timed libraries libraries
timed docs scripts/docs.sh check
timed gallery scripts/gallery.sh check
timed clients interop lint
.ci/tidy "$@"
echo "lint: clean"
