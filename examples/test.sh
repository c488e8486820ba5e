#!/usr/bin/env bash
# Starts a server and runs the examples: test.sh POSENCD [EXAMPLE...]
# Tools (grpcurl and ghz, from the Go module proxy) go to build/tools, the
# examples' output to build/examples.
set -euo pipefail
posencd=$(realpath "$1")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$(dirname "$here")
tools=$root/build/tools
out=$root/build/examples
mkdir -p "$tools" "$out"

# cos(1) - sin(1) is the result for pair 0 (frequency 1) of a q of ones at
# position 1.
says="16777216 bytes, rotated; at position 0 1, at position 1 -0.301169"

server=
work=$(mktemp -d)
finish() {
  [[ -z $server ]] || { kill "$server" 2>/dev/null && wait "$server"; } || true
  rm -rf "$work"
}
trap finish EXIT
"$posencd" --listen 127.0.0.1:0 --ready-file "$work/ready" >/dev/null 2>&1 &
server=$!
for ((i = 0; i < 600; ++i)); do
  [[ ! -s $work/ready ]] || break
  kill -0 "$server" # fails if the server has ended
  sleep 0.1
done
address=$(head -n 1 "$work/ready")

# shellcheck source=examples/go_env.sh
. "$here/go_env.sh"

# same TEXT: standard input must equal TEXT.
same() {
  local actual
  actual=$(cat)
  [[ $actual == "$1" ]] || { echo "expected: $1, got: $actual" >&2; return 1; }
}

grpcurl_example() {
  "$here/tools.sh" grpcurl
  PATH=$tools:$PATH "$here/grpcurl/calls.sh" "$address" >"$work/grpcurl"
  local part
  # A method, the rotated head (cos 1), the error with its reason, health.
  for part in ApplyRopeStream 0.54030 FIELD_REQUIRED 'near: llama-3.1-8b' '"status": "SERVING"'; do
    grep -qF -- "$part" "$work/grpcurl" || { echo "grpcurl does not print $part" >&2; return 1; }
  done
}

ghz_example() {
  "$here/tools.sh" ghz
  python3 "$here/ghz/bulk.py" >"$work/bulk.json"
  local config
  for config in "$here"/ghz/*.json "$work/bulk.json"; do
    "$tools/ghz" --config "$config" --format json "$address" >"$work/ghz"
    python3 - "$work/ghz" "$config" <<'END'
import json, sys
seen, asked = (json.load(open(path)) for path in sys.argv[1:])
assert seen["count"] == asked["total"], seen["count"]
assert seen["statusCodeDistribution"] == {"OK": asked["total"]}, seen["statusCodeDistribution"]
END
  done
}

python_example() {
  local venv=$out/python
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -c 'import grpc_tools, numpy' 2>/dev/null ||
    "$venv/bin/pip" install -q --disable-pip-version-check grpcio grpcio-tools numpy
  mkdir -p "$out/gen"
  "$venv/bin/python" -m grpc_tools.protoc -I "$root/proto" --python_out="$out/gen" \
    --grpc_python_out="$out/gen" "$root"/proto/posenc/v1/*.proto
  PYTHONPATH=$out/gen "$venv/bin/python" -B "$here/stubs/python/rotate.py" "$address" | same "$says"
}

node_example() {
  "$root/client/node/run" need
  mkdir -p "$out/node"
  cp "$here"/stubs/node/* "$out/node"
  [[ -d $out/node/node_modules ]] ||
    (cd "$out/node" && npm install --no-audit --no-fund --no-package-lock --loglevel=error >&2)
  node "$out/node/rotate.mjs" "$address" "$root/proto" | same "$says"
}

go_example() {
  go_env
  mkdir -p "$out/go"
  cp "$here/stubs/go/main.go" "$out/go"
  (
    cd "$out/go"
    if [[ ! -f go.mod ]]; then
      go mod init example.com/rotate
      go mod edit -replace "github.com/posenc/posenc/client/go=$root/client/go"
      go mod tidy
    fi
  ) 2>/dev/null
  (cd "$out/go" && go run . "$address") | same "$says"
}

cpp_example() {
  cmake -S "$here/stubs/cpp" -B "$out/cpp" -G Ninja >/dev/null
  cmake --build "$out/cpp" >&2
  "$out/cpp/rotate" "$address" | same "$says"
}

java_example() {
  "$root/client/java/run" need
  # Maven resets the terminal's colours, even if there is no terminal.
  mvn -q -B -f "$here/stubs/java/pom.xml" -Dout="$out/java" compile exec:java \
    -Dexec.args="$address" | sed 's/\x1b\[[0-9;]*m//g' | same "$says"
}

rust_example() {
  "$root/client/rust/run" need
  mkdir -p "$out/rust"
  # Copies the example, because Cargo writes its lock file beside the manifest.
  cp -r "$here"/stubs/rust/* "$out/rust"
  (cd "$out/rust" && PROTO=$root/proto cargo run -q -- "$address") | same "$says"
}

paged_cache_example() {
  "$root/client/python/run" build
  "$root/build/clients/python/venv/bin/python" -B "$here/paged_cache/test.py" "$address"
}

# Ray is large: this example runs only if it is named.
ray_reposition_example() {
  "$root/client/python/run" build
  local venv=$out/ray
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -c 'import ray.data, ml_dtypes' 2>/dev/null ||
    "$venv/bin/pip" install -q --disable-pip-version-check 'ray[data]' ml_dtypes
  "$venv/bin/pip" install -q --disable-pip-version-check "$root/build/clients/python/source"
  "$venv/bin/python" -B "$here/ray_reposition/test.py" "$posencd"
}

# LMCache and torch are large (6 GB): this example runs only if it is named. LMCACHE_VENV names an environment that has
# lmcache already. Otherwise lmcache is installed without the packages that it needs only for GPUs and remote stores,
# because pip takes very long to resolve all packages that LMCache lists.
lmcache_packages=(torch 'transformers>=5.4' 'numpy<=2.2.6' 'opentelemetry-sdk<=1.40.0' 'protobuf>=6.31.1,<7'
  aiofile aiofiles aiohttp blake3 cachetools cryptography fastapi grpcio httpx msgspec numba nvtx 'prometheus_client<=0.24.1'
  psutil py-cpuinfo pytest pyyaml pyzmq redis requests safetensors sortedcontainers uvicorn)
lmcache_example() {
  "$root/client/python/run" build
  local venv=${LMCACHE_VENV:-$root/build/lmcache-venv}
  if [[ -z ${LMCACHE_VENV:-} ]]; then
    [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
    if ! "$venv/bin/python" -c 'import lmcache.v1.cache_engine' 2>/dev/null; then
      "$venv/bin/pip" install -q --disable-pip-version-check "${lmcache_packages[@]}"
      "$venv/bin/pip" install -q --disable-pip-version-check --no-deps lmcache
    fi
  fi
  "$venv/bin/python" -c 'import lmcache.v1.cache_engine' >/dev/null # fails without lmcache, for which the test would only be skipped
  POSENCD=$posencd PYTHONPATH=$root/build/clients/python/source/src "$venv/bin/python" -B -m pytest \
    -p no:cacheprovider -c "$root/client/python/pyproject.toml" --rootdir "$root/client/python" \
    "$root/client/python/tests/test_lmcache.py"
}

# torch and transformers are large: this example runs only if it is named. It uses the environment of ./run parity.
notebook_example() {
  "$root/client/python/run" build
  local venv=${PARITY_VENV:-$root/build/parity-venv}
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/python" -c 'import torch, transformers' 2>/dev/null ||
    "$venv/bin/pip" install -q --disable-pip-version-check transformers torch
  "$venv/bin/pip" install -q --disable-pip-version-check nbclient ipykernel "$root/build/clients/python/source[plots]"
  # The repository has the notebook without outputs, so that a diff shows only changes of its cells.
  POSENCD=$posencd "$venv/bin/python" -B - "$here/notebook.ipynb" <<'END'
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], 4)
assert not any(cell.get("outputs") for cell in notebook.cells), "clear the notebook's outputs"
NotebookClient(notebook, timeout=300).execute()
drawn = sum("image/png" in output.get("data", {}) for cell in notebook.cells for output in cell.get("outputs", []))
assert drawn == 2, f"{drawn} pictures"
END
}

shift
(($#)) || set -- grpcurl ghz cpp python go java node rust paged_cache
for example in "$@"; do
  "${example}_example"
  echo "$example: ok"
done
