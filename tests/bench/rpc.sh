#!/usr/bin/env bash
# ApplyRope over sockets, against plain echo and against servers that people
# would write themselves, in Go, Rust and Python.
#   rpc.sh BIN_DIR WORK_DIR [ARGUMENT...]
# Arguments go to posenc-rpc-bench. WORK_DIR keeps the built programs. A
# server whose toolchain or packages are not available is left out.
set -euo pipefail

mkdir -p "$2"
bin=$(cd "$1" && pwd) work=$(cd "$2" && pwd)
shift 2
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
here=tests/bench
peers=()

build_go() {
  # Use the installed toolchain; fetch no other.
  export GOTOOLCHAIN=local
  local src=$work/go
  mkdir -p "$src/posencv1" &&
    cp "$here"/go/{go.mod,go.sum,main.go} "$src" &&
    go build -C "$src" -o "$src/plugins/" google.golang.org/protobuf/cmd/protoc-gen-go \
      google.golang.org/grpc/cmd/protoc-gen-go-grpc &&
    PATH="$src/plugins:$PATH" protoc -I proto \
      --go_out="$src" --go_opt=module=github.com/posenc/posenc/client/go \
      --go-grpc_out="$src" --go-grpc_opt=module=github.com/posenc/posenc/client/go \
      proto/posenc/v1/*.proto &&
    go build -C "$src" -o posenc-bench-go .
}

build_rust() {
  CARGO_TARGET_DIR=$work/rust cargo build --release --locked \
    --manifest-path "$here/rust/Cargo.toml"
}

build_python() {
  local venv=$work/venv
  if [[ ! -e $venv/ready || $here/python/requirements.txt -nt $venv/ready ]]; then
    python3 -m venv "$venv" &&
      "$venv/bin/pip" install -q -r "$here/python/requirements.txt" || return
  fi
  mkdir -p "$work/python" &&
    "$venv/bin/python" -m grpc_tools.protoc -I proto --python_out="$work/python" \
      --grpc_python_out="$work/python" proto/posenc/v1/*.proto &&
    touch "$venv/ready"
}

# peer NAME TOOL BUILD COMMAND...
peer() {
  local name=$1 tool=$2 build=$3
  shift 3
  if ! command -v "$tool" >/dev/null; then
    echo "left out: $name, as there is no $tool"
  elif ! "$build" >"$work/$build.log" 2>&1; then
    echo "left out: $name, as it cannot be built: $(tail -n 1 "$work/$build.log")"
  else
    peers+=("--peer=$name=$* UNIX_PATH READY_FILE")
  fi
}

peer tonic cargo build_rust "$work/rust/release/posenc-bench-tonic"
peer grpc-go go build_go "$work/go/posenc-bench-go"
peer grpc.aio python3 build_python env "PYTHONPATH=$work/python" \
  "$work/venv/bin/python" "$here/python/server.py"

exec "$bin/posenc-rpc-bench" "${peers[@]}" "$@"
