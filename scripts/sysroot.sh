#!/usr/bin/env bash
# Unpacks Debian packages of an architecture, with all dependencies, into a folder.
#   scripts/sysroot.sh ARCH FOLDER PACKAGE...
#
# No package is installed and no script of a package runs, so every architecture is
# possible. The packages come from the suite of this machine's apt. A folder made from
# the same list is not changed.
set -euo pipefail
arch=$1 folder=$2
shift 2
[[ ! -e $folder/packages || $(<"$folder/packages") != "$arch $*" ]] || exit 0
rm -rf "$folder"
mkdir -p "$folder"/usr/{bin,sbin,lib,lib64} "$folder"/apt/{state/lists/partial,cache/archives/partial}
folder=$(realpath "$folder")
# Makes the links that the package base-files has. Without them, unpacking packages with
# files in /bin or /lib would make folders of these names.
for name in bin sbin lib lib64; do ln -s usr/$name "$folder/$name"; done

: >"$folder/apt/status"
options=(-qq -o APT::Architecture="$arch" -o APT::Architectures::="$arch"
  -o Dir::State="$folder/apt/state" -o Dir::State::status="$folder/apt/status"
  -o Dir::Cache="$folder/apt/cache" -o APT::Sandbox::User=root)
apt-get "${options[@]}" update
apt-get "${options[@]}" install -y --download-only --no-install-recommends "$@" >/dev/null
mkdir -p "$folder/var/lib/dpkg"
for package in "$folder"/apt/cache/archives/*.deb; do
  dpkg-deb --fsys-tarfile "$package" | tar -x --keep-directory-symlink -C "$folder"
  # Writes the status for dpkg-query and for scanners.
  dpkg-deb --field "$package"
  printf 'Status: install ok installed\n\n'
done >"$folder/var/lib/dpkg/status"
rm -rf "$folder/apt"
# Makes absolute links relative to the folder.
find "$folder" -type l -lname '/*' -printf '%P\0%l\0' |
  while IFS= read -r -d '' link && IFS= read -r -d '' target; do
    ln -snfr "$folder$target" "$folder/$link"
  done
echo "$arch $*" >"$folder/packages"
