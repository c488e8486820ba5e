#!/usr/bin/env bash
# Makes a Debian package of the folder TREE, which has bin, lib and share, without
# debhelper, and checks it with lintian:
#   package.sh TREE ARCH FOLDER
# The installation does not start the server; `systemctl enable --now posencd` does.
set -euo pipefail
tree=$1 arch=$2 folder=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(<"$here/../../VERSION")-1
glibc=$(PYTHONPATH=$here/../wheel python3 -Bc 'import sys, wheel; print(wheel.tag_of(sys.argv[1]))' \
  "$tree/lib/posenc/posenc-programs" | sed -E 's/manylinux_([0-9]+)_([0-9]+)_.*/\1.\2/')
maintainer='posenc maintainers <posenc@users.noreply.github.com>'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/posenc
mkdir -p "$root"/{DEBIAN,usr/share/lintian/overrides,usr/lib/systemd/system}
cp -r "$tree"/* "$root/usr/"

gzip -9nc "$doc/CHANGELOG.md" >"$doc/changelog.gz"
rm "$doc/LICENSE" "$doc/CHANGELOG.md"
gzip -9nc >"$doc/changelog.Debian.gz" <<END
posenc ($version) unstable; urgency=medium

  * This is a package of posenc's own release. Its changes: changelog.gz.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
cp "$here/copyright" "$doc/"
cp "$here/posencd.service" "$root/usr/lib/systemd/system/"
cp "$here/lintian-overrides" "$root/usr/share/lintian/overrides/posenc"
cat >"$root/DEBIAN/control" <<END
Package: posenc
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(find "$root/usr" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
Depends: libc6 (>= $glibc)
Section: science
Priority: optional
Homepage: https://github.com/posenc/posenc
Description: exact positional encodings over gRPC
 posencd serves positional encodings of transformers with stated error bounds:
 it rotates q and k (RoPE), moves cached keys to new positions, and builds
 tables and attention biases. posenc is the command, which needs no server,
 and posenc-load is a load generator.
END
(cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum) >"$root/DEBIAN/md5sums"
# Uses one thread, because xz's output depends on the number of threads.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$folder/posenc_${version}_$arch.deb" >/dev/null
lintian --allow-root --fail-on error,warning --no-cfg "$folder/posenc_${version}_$arch.deb"
