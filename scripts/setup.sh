#!/usr/bin/env bash
# installs the Debian packages that posenc is built and tested with, if they are
# missing
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need "${build_packages[@]}"
