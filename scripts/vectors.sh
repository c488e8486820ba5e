#!/usr/bin/env bash
# checks that tests/reference computes proto/testdata (write: writes it)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-mpmath
# Uses Debian's python3, because it has the package; PATH may find another
# python3.
if [[ ${1:-check} == write ]]; then
  /usr/bin/python3 tests/reference/make_vectors.py
else
  /usr/bin/python3 tests/reference/make_vectors.py --check
fi
