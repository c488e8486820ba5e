#!/usr/bin/env bash
# Installs both wheels in an empty environment, and runs the README's first example
# there:
#   try.sh PROGRAM FOLDER_OF_WHEELS
set -euo pipefail
program=$(realpath "$1")
wheels=$(realpath "$2")
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
root=$here/../..
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 "$here/wheel.py" "$program" . >/dev/null
cmp posenc_server-*.whl "$wheels"/posenc_server-*.whl # a second build gives the same bytes
# A program that needs more than glibc is refused.
if said=$(python3 "$here/wheel.py" "$(command -v readelf)" . 2>&1) || [[ $said != *"only glibc's libraries"* ]]; then
  echo "try.sh: wheel.py took a program that needs other libraries: $said" >&2
  exit 1
fi

python3 -m venv venv
PATH=$folder/venv/bin:$PATH
export PIP_DISABLE_PIP_VERSION_CHECK=1
unset POSENCD
pip install -q grpcio numpy
pip install -q --no-index --find-links "$wheels" 'posenc[server]'
awk '/<!-- first screen -->/ { found = 1 } /^```$/ { if (code) exit } code; found && /^```python$/ { code = 1 }' \
  "$root/README.md" >first.py
grep -q posenc.local first.py
HOME=/nonexistent python first.py
version=$(<"$root/VERSION")
for command in posencd posenc posenc-load 'python -m posenc_server'; do
  said=$($command --version)
  [[ $said == *"$version"* ]] || { echo "try.sh: $command --version says $said" >&2; exit 1; }
done
echo "posenc and posenc-server $version install and work in an empty environment"
