#!/usr/bin/env bash
# checks every client against the test vectors and the table of errors; prints a
# table, language x family (names of languages: c++ python go java node rust;
# --allow-skipped: skips clients that cannot be built)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

interop conformance "$@"
