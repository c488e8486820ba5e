#!/usr/bin/env bash
# package.sh PACKAGE OUTDIR: packs the built package, and shows that programs
# build and load from the tarball alone, in an empty folder.
set -euo pipefail
cd "$1"
out=$2
empty=$(mktemp -d)
staged=$(mktemp -d)
trap 'rm -rf "$empty" "$staged"' EXIT
cp -r dist index.mjs index.d.mts LICENSE README.md package.json "$staged"
# deploy/npm makes the server's packages. While they are not published, `npm ci` would refuse a lock file without them.
# So only the packed package.json gets them.
version=$(npm pkg get version | tr -d '"')
for cpu in x64 arm64; do
  npm --prefix "$staged" pkg set "optionalDependencies.@posenc/server-linux-$cpu=$version"
done
tarball=$out/$(npm pack "$staged" --silent --ignore-scripts --pack-destination "$out")
cp -r tests/consumer/. "$empty"
cd "$empty"
npm install --silent --no-audit --no-fund --ignore-scripts "$tarball" typescript@~5.9.0 @types/node@^18.19.0 >&2
npx --no-install tsc -p .
# Without a server, the programs show only that they load. POSENC_SERVER names a server.
node esm.mjs
node cjs.cjs
echo "$tarball"
