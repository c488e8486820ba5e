#!/usr/bin/env bash
# Installs both npm packages in an empty folder, and starts a server there: try.sh FOLDER_OF_PACKAGES
set -euo pipefail
packages=$(realpath "$1")
version=$(<"$(dirname "${BASH_SOURCE[0]}")/../../VERSION")
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
unset POSENCD

npm init -y >/dev/null
npm install --silent --no-audit --no-fund "$packages"/posenc-"$version".tgz "$packages/posenc-server-linux-$(node -p process.arch)-$version.tgz"
for command in posencd posenc posenc-load; do
  said=$(npx --no-install "$command" --version)
  [[ $said == *"$version"* ]] || { echo "try.sh: $command --version says $said" >&2; exit 1; }
done
HOME=/nonexistent PATH=$(dirname "$(command -v node)") node --input-type=module -e '
  import posenc from "posenc";
  const found = await posenc.local(async (client) => (await client.getServerInfo()).version);
  if (found !== posenc.version) throw new Error(`a server of version ${found}`);'
echo "posenc and @posenc/server $version install and work in an empty folder"
