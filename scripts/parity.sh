#!/usr/bin/env bash
# asks the newest transformers (in build/parity-venv, or in PARITY_VENV) about every
# model type; prints posenc's answers for the same files, and what changed since the
# kept record (write: keeps the new record; caches: moves caches of each type instead;
# caches write: keeps keys of twelve types)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

venv=${PARITY_VENV:-$PWD/build/parity-venv} record=build/parity.gz
kept=tests/data/parity/transformers.gz
make_venv() {
  [[ -z ${PARITY_VENV:-} ]] || return 0
  [[ -x $venv/bin/python ]] || python3 -m venv "$venv"
  "$venv/bin/pip" install -q --upgrade transformers torch diffusers grpcio >&2
}
# POSENCD names a server that is built already.
if [[ ${1:-} == caches ]]; then
  if [[ -z ${POSENCD:-} ]]; then
    need python3-venv
    build release posencd
  fi
  make_venv
  client/python/run build
  [[ ${2:-} != write ]] || set -- caches write tests/data/parity/caches.jsonl.gz
  POSENCD=${POSENCD:-$PWD/build/release/bin/posencd} PYTHONPATH=build/clients/python/source/src \
    exec "$venv/bin/python" -B tests/parity/caches.py "${@:2}"
fi
need python3-venv clang-format
build release posenc-parity posenc-parity-towers
make_venv
# After a failed check the other checks still run.
code=0
"$venv/bin/python" -B tests/parity/class_defaults.py --check || code=1
"$venv/bin/python" -B tests/parity/ask.py "$record"
build/release/bin/posenc-parity "$record" "$kept" || code=1
"$venv/bin/python" -B tests/parity/towers.py record build/towers.json.gz
build/release/bin/posenc-parity-towers build/towers.json.gz \
  tests/data/parity/towers.json.gz || code=1
if [[ ${1:-} == write ]]; then
  ((code == 0)) || { echo "parity: a check failed; the records stay" >&2; exit 1; }
  cp "$record" "$kept"
  cp build/towers.json.gz tests/data/parity/towers.json.gz
fi
exit $code
