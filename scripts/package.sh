#!/usr/bin/env bash
# builds wheel, Go module zip, jar, npm tarball, crate and C++ archive in build/package
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

interop package "$@"
