#!/usr/bin/env bash
# builds Python's wheels in build/package: the client, and posenc-server with posencd,
# posenc and posenc-load; and npm packages of the programs; tries each in an empty
# environment
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need python3 python3-venv
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
architecture=$(dpkg --print-architecture)
program=build/programs/$architecture/posenc-programs
scripts/static.sh "$architecture"
mkdir -p build/package
rm -f build/package/posenc_server-*.whl
python3 deploy/wheel/wheel.py "$program" build/package
client/python/run package build/package
deploy/wheel/try.sh "$program" build/package
client/node/run package build/package
python3 deploy/npm/package.py "$program" build/package
deploy/npm/try.sh build/package
