#!/usr/bin/env bash
# Starts a server, and rotates, checks and moves tensors with it, as a user
# would.
#   demo.sh BIN_DIR [WORK_DIR]
# WORK_DIR keeps the files. The default is a new directory, which is removed at
# the end.
set -euo pipefail

bin=$(cd "$1" && pwd)
if [ $# -ge 2 ]; then
  mkdir -p "$2"
  work=$(cd "$2" && pwd)
  keep=1
else
  work=$(mktemp -d)
  keep=0
fi
cd "$(dirname "$0")/../../.."
configs=tests/data/configs

server=
finish() {
  if [ -n "$server" ]; then
    kill -TERM "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -f "$work/ready"
  if [ "$keep" = 0 ]; then rm -rf "$work"; fi
}
trap finish EXIT

if [ -t 1 ]; then
  bold=$(printf '\033[1;36m') plain=$(printf '\033[0m')
else
  bold='' plain=''
fi
heading() { printf '\n%s== %s%s\n' "$bold" "$1" "$plain"; }
posenc() { "$bin/posenc" --server "$address" "$@"; }

heading "A server on a free port"
rm -f "$work/ready"
"$bin/posencd" --listen 127.0.0.1:0 --ready-file "$work/ready" \
  --log-format text &
server=$!
# Waits until the server is ready, for 30 s at most.
for _ in $(seq 300); do
  [ -s "$work/ready" ] && break
  kill -0 "$server" 2>/dev/null || { echo "posencd ended" >&2; exit 1; }
  sleep 0.1
done
[ -s "$work/ready" ] || { echo "posencd is not ready" >&2; exit 1; }
address=$(head -n 1 "$work/ready")
posenc info

llama=$configs/llama-3.1-8b.json
heading "What Llama 3.1 8B's config.json means, and what forgetting its scaling does"
posenc resolve --config "$llama" --compare-spec \
  '{"rotaryDim": 128, "ropeTheta": 500000, "pairing": "PAIRING_HALF_SPLIT"}'

heading "A YaRN model (Qwen3 8B), and the same without YaRN's amplitude"
yarn=$configs/qwen3-8b-yarn.json
posenc resolve --config "$yarn" --compare-spec \
  '{"rotaryDim": 128, "ropeTheta": 1000000, "pairing": "PAIRING_HALF_SPLIT",
    "amplitude": 1, "yarn": {"factor": 4,
    "originalMaxPositionEmbeddings": 32768}}'

heading "Its reading by another project: gpt-oss does not round the ramp's ends"
posenc resolve --config "$yarn" --compare-profile gpt_oss |
  sed -n '1p;/compared/,$p'

heading "Seeded q and k of one layer"
posenc sample --out "$work/qk.safetensors" --seed 7 --dtype bfloat16 \
  --q 1,4096,32,128 --k 1,4096,8,128

heading "Rotated by the server, from position 0 and from position 1000"
posenc apply --config "$llama" --in "$work/qk.safetensors" --layout bshd \
  --start 0 --out "$work/rotated.safetensors" 2>&1
posenc apply --config "$llama" --in "$work/qk.safetensors" --layout bshd \
  --start 1000 --out "$work/moved.safetensors" 2>&1

heading "Checked: every element of both"
posenc check --config "$llama" --layout bshd --before "$work/qk.safetensors" \
  --after "$work/rotated.safetensors"
posenc check --config "$llama" --layout bshd --before "$work/qk.safetensors" \
  --after "$work/moved.safetensors" --start 1000

heading "Cached YaRN keys, moved by 1000 without their originals, and checked"
posenc sample --out "$work/k.safetensors" --seed 8 --dtype bfloat16 \
  --k 1,4096,8,128
posenc apply --config "$yarn" --in "$work/k.safetensors" --layout bshd \
  --start 0 --out "$work/cached.safetensors" 2>&1
posenc reposition --config "$yarn" --in "$work/cached.safetensors" \
  --layout bshd --shift 1000 --out "$work/shifted.safetensors" 2>&1
posenc check --config "$yarn" --layout bshd --before "$work/k.safetensors" \
  --after "$work/shifted.safetensors" --start 1000 --repositions 1

heading "A table of cosines and sines"
posenc table --config "$llama" --rows 8192 --out "$work/table.safetensors"

heading "Done"
ls -lh "$work" | awk 'NR > 1 && $NF != "ready" {printf "  %-22s %s\n", $NF, $5}'
