#!/usr/bin/env bash
# writes docs/reference and the table of keys in docs/server.md (check: compares them)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

how=${1:-write}
need python3
build release posencd posenc posenc-load
if [[ $how == write ]]; then
  python3 -B docs/reference.py build/release/bin
else
  python3 -B docs/reference.py build/release/bin check
fi
python3 - "$how" docs/server.md <(build/release/bin/posencd --print-keys markdown) <<'EOT'
import re, sys
how, page, table = sys.argv[1], sys.argv[2], open(sys.argv[3]).read()
old = open(page).read()
new = re.sub(r"(?s)(<!-- keys: [^\n]*-->\n).*?(<!-- /keys -->)",
           lambda marks: marks[1] + table + marks[2], old)
if how == "write":
  open(page, "w").write(new)
elif new != old:
  sys.exit(f"{page}: its table of keys is old; write it with ./run docs")
EOT
