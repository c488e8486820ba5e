#!/usr/bin/env bash
# draws docs/gallery.md and its pictures (check: compares them)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3
build release posenc
python3 -B docs/gallery.py build/release/bin/posenc "$@"
