#!/usr/bin/env bash
# every client answers the vectors and fails as the table of errors says: one table,
# language x family (c++ python go java node rust; none named: all; --allow-skipped:
# without those that cannot be built)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

interop conformance "$@"
