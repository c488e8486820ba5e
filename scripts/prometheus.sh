#!/usr/bin/env bash
# Unpacks Debian's prometheus and promtool, and prints the folder. Installing the package
# would start a server.
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

dir=$PWD/build/prometheus
if [[ ! -x $dir/usr/bin/promtool ]]; then
  mkdir -p "$dir/package"
  (
    cd "$dir/package"
    # The lists of packages may be missing or old.
    apt-get download -qq prometheus 2>/dev/null ||
      { as_root apt-get update -qq && apt-get download -qq prometheus; }
    dpkg -x prometheus_*.deb "$dir"
  ) >&2
  rm -rf "$dir/package"
fi
echo "$dir/usr/bin"
