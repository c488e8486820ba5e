#!/usr/bin/env bash
# checks formatting, the contract's rules, layers and each client's own linters; runs
# clang-tidy on each source that changed, or includes a change, since it last passed
# here (LINT_BASE=COMMIT: or since COMMIT, which passed elsewhere; all: on every
# source; TIDY_SECONDS=N: begins no check later, and names the sources left out)
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

# Compares copies of the version with VERSION, by files and patterns. A pattern's
# group is the version, and each file must match at least once.
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
client/rust/Cargo.toml ^version = "([^"]*)"$
client/rust/README.md ^posenc = . path = "posenc-([0-9.]+)".*$
EOT
}

layers() {
  forbid "core knows no protobuf and no gRPC" \
    "$(grep -rnE '#include [<"](grpc|google/protobuf|posenc/)' core)"
  forbid "xsimd stays in core/simd" \
    "$(grep -rn '#include .xsimd' core server client | grep -v '^core/simd/')"
  forbid "the client library and the check's oracle never include core or server" \
    "$(grep -rnE '#include "(core|server)/' client/cpp client/check)"
  forbid "client/plot knows no other folder" \
    "$(grep -rnE '#include "(core|server|posenc|client/(cli|cpp|check))/' client/plot)"
  forbid "server/budget and server/memory know no calls" \
    "$(grep -rnE '#include "server/(rpc|methods|convert)/' server/budget server/memory)"
  forbid "server/{rpc,convert,budget,memory} know no methods" \
    "$(grep -rnE '#include "server/methods/' server/rpc server/convert server/budget server/memory)"
  forbid "calls do not know admin, metrics and traces" \
    "$(grep -rnE '#include "server/(admin|metrics|trace)/' server/{budget,convert,listen,memory,methods,rpc})"
  forbid "the server knows no extra service; its process gives it KServe's" \
    "$(grep -rnE '#include "(server/kserve|inference)/' core server |
      grep -vE '^server/(kserve/|no_kserve.cc:|(main|config/(check|config)).(cc|h):[0-9]+:#include "server/kserve/kserve_service.h")')"
  forbid "libmicrohttpd, prometheus-cpp and opentelemetry-cpp stay in their own folders" \
    "$(grep -rnE '#include [<"](microhttpd|prometheus/|opentelemetry/)' core client server |
      grep -vE '^(client/explorer/explorer.cc:[0-9]+:#include <microhttpd|server/admin/[^:]*:[0-9]+:#include <microhttpd|server/metrics/[^:]*:[0-9]+:#include "prometheus|server/trace/[^:]*:[0-9]+:#include "opentelemetry)')"
  forbid "TOML is read by one file" \
    "$(grep -rn '#include [<"]toml++' core client server | grep -v '^server/config/config_file.cc:')"
  forbid "core/interpretation and core/doctor know configurations; the rest of core gets encodings" \
    "$(grep -rn '#include "core/\(interpretation\|doctor\)/' core | grep -vE '^core/(interpretation|doctor)/')"
  forbid "core/interpretation does not know doctor" \
    "$(grep -rn '#include "core/doctor/' core/interpretation)"
  forbid "others include only the public headers of core/interpretation" \
    "$(grep -rn '#include "core/interpretation/' core/doctor server client |
      grep -vE '/(claimed_length|class_defaults|compare|composite|content_hash|families|gguf_file|gguf_keys|gguf_rope|json_object|json_text|preset_default|presets|profile|reading_rules|report|source|tower_grid)\.h"')"
  forbid "in core, JSON stays in core/interpretation and core/doctor" \
    "$(grep -rnE '#include [<"]nlohmann/' core | grep -vE '^core/(interpretation|doctor)/')"
}

need "${lint_packages[@]}" git
timed clang-format format
# Builds everything: clang-tidy reads generated sources of every part.
timed build build release
timed contract contract
timed versions versions
timed layers layers
timed docs scripts/docs.sh check
timed gallery scripts/gallery.sh check
timed clients interop lint
.ci/tidy "$@"
echo "lint: clean"
