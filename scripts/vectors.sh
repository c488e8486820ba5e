#!/usr/bin/env bash
# checks that tests/reference computes proto/testdata (write: writes it)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-mpmath
# Debian's own python3, which has the package: PATH may begin with another.
if [[ ${1:-check} == write ]]; then
  /usr/bin/python3 tests/reference/make_vectors.py
else
  /usr/bin/python3 tests/reference/make_vectors.py --check
fi
