#!/usr/bin/env bash
# builds Python's wheels in build/package: the client, and posenc-server with posencd,
# posenc and posenc-load; and npm packages of the programs; tries each in an empty
# environment
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

need "${build_packages[@]}" dpkg-dev libc-ares-dev libre2-dev make python3 python3-venv
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
deploy/wheel/static_libraries.sh "$(gcc -dumpmachine)" build/static/libraries
build static posenc-programs
mkdir -p build/package
rm -f build/package/posenc_server-*.whl
install -s build/static/bin/posenc-programs build/static/
python3 deploy/wheel/wheel.py build/static/posenc-programs build/package
client/python/run package build/package
deploy/wheel/try.sh build/static/posenc-programs build/package
client/node/run package build/package
python3 deploy/npm/package.py build/static/posenc-programs build/package
deploy/npm/try.sh build/package
