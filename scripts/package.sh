#!/usr/bin/env bash
# builds wheels, Go module zip, jar, npm tarball, crate and C++ archive in build/package
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

interop package "$@"
(($#)) || scripts/wheel.sh
