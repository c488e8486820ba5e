#!/usr/bin/env bash
# keys pass through all languages; the README's lines run in each; a changed bit in a
# vector is noticed by each
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for part in changed-bit chain three-lines; do interop "$part" "$@"; done
