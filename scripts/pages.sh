#!/usr/bin/env bash
# runs the commands in docs/tutorial.md and docs/how-to, and compares their output
# with the page (names of pages; --write: keeps the tutorial's pictures)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-yaml
build release posenc posencd posenc-load
# Blocks that need a missing tool are skipped and named.
for tool in grpcurl ghz helm; do
  examples/tools.sh "$tool" || echo "pages: $tool cannot be installed" >&2
done
/usr/bin/python3 -B tests/docs/main.py build/release/bin "$@"
