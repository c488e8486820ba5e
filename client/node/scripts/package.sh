#!/usr/bin/env bash
# package.sh PACKAGE OUTDIR: packs the built package, and shows that programs
# build and load from the tarball alone, in an empty folder.
set -euo pipefail
cd "$1"
out=$2
tarball=$out/$(npm pack --silent --ignore-scripts --pack-destination "$out")
empty=$(mktemp -d)
trap 'rm -rf "$empty"' EXIT
cp -r tests/consumer/. "$empty"
cd "$empty"
npm install --silent --no-audit --no-fund --ignore-scripts "$tarball" typescript@~5.9.0 @types/node@^18.19.0 >&2
npx --no-install tsc -p .
# Without a server the programs show only that they load; POSENC_SERVER names one.
node esm.mjs
node cjs.cjs
echo "$tarball"
