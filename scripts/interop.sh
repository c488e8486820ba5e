#!/usr/bin/env bash
# passes keys through all languages' clients, runs the README's lines in each, and
# checks that each notices a changed bit in a vector
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

for part in changed-bit chain three-lines; do interop "$part" "$@"; done
