#!/usr/bin/env bash
# Builds programs from the Go module proxy into build/tools, unless they exist
# in it: tools.sh NAME...   (grpcurl, ghz, helm)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
tools=$root/build/tools
mkdir -p "$tools"

# shellcheck source=examples/go_env.sh
. "$root/examples/go_env.sh"

for name in "$@"; do
  [[ ! -x $tools/$name ]] || continue
  go_env
  case $name in
    grpcurl) GOBIN=$tools go install github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.4 ;;
    ghz) GOBIN=$tools go install github.com/bojand/ghz/cmd/ghz@v0.121.0 ;;
    helm)
      # Uses a variable, because a failure within ln's arguments would not end
      # this script.
      bin=$("$root/tests/cluster/up.sh" tools)
      ln -sfn "$bin/helm" "$tools/helm"
      ;;
    *)
      echo "tools.sh: '$name' is unknown; there are: grpcurl, ghz, helm" >&2
      exit 2
      ;;
  esac
done
