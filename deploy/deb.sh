#!/usr/bin/env bash
# Makes a Debian package of the folder TREE, which has bin, lib and share, without
# debhelper, and checks it with lintian:
#   deb.sh TREE ARCH FOLDER
# The server is not started by the installation: systemctl enable --now posencd
set -euo pipefail
tree=$1 arch=$2 folder=$3
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
version=$(<"$here/../VERSION")-1
glibc=$(python3 -Bc 'import sys; sys.path.insert(0, sys.argv[1]); import wheel; print(wheel.tag_of(sys.argv[2]))' \
  "$here/wheel" "$tree/lib/posenc/posenc-programs" | sed -E 's/manylinux_([0-9]+)_([0-9]+)_.*/\1.\2/')
maintainer='posenc maintainers <posenc@users.noreply.github.com>'
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root
doc=$root/usr/share/doc/posenc
mkdir -p "$root"/{DEBIAN,usr/share/lintian/overrides,usr/lib/systemd/system}
cp -r "$tree"/* "$root/usr/"

rm "$doc/LICENSE"
gzip -9nc "$doc/CHANGELOG.md" >"$doc/changelog.gz"
rm "$doc/CHANGELOG.md"
gzip -9nc >"$doc/changelog.Debian.gz" <<END
posenc ($version) unstable; urgency=medium

  * This is a package of posenc's own release. Its changes: changelog.gz.

 -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")
END
cat >"$doc/copyright" <<'END'
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: posenc
Source: https://github.com/posenc/posenc
Comment: The licences of the libraries that are linked into the programs are in
 /usr/share/doc/posenc/licenses.

Files: *
Copyright: 2026 The posenc authors
License: Apache-2.0
 On Debian systems, /usr/share/common-licenses/Apache-2.0 has the text of the
 Apache License, version 2.0.
END
cat >"$root/usr/lib/systemd/system/posencd.service" <<'END'
[Unit]
Description=posenc, positional encodings over gRPC
Documentation=https://github.com/posenc/posenc/blob/main/docs/server.md
After=network.target

[Service]
# Keys of the configuration: POSENC_LISTEN=0.0.0.0:50051
EnvironmentFile=-/etc/default/posencd
ExecStart=/usr/bin/posencd
ExecReload=kill -HUP $MAINPID
DynamicUser=yes
RuntimeDirectory=posenc
NoNewPrivileges=yes
ProtectSystem=strict
TimeoutStopSec=60

[Install]
WantedBy=multi-user.target
END
cat >"$root/usr/share/lintian/overrides/posenc" <<'END'
# The package is not for Debian's archive.
posenc: initial-upload-closes-no-bugs
# The programs need only the C library, like those of the archive and the wheel.
posenc: embedded-library
# posencd --help and posenc-load --help are the manuals.
posenc: no-manual-page
END
cat >"$root/DEBIAN/control" <<END
Package: posenc
Version: $version
Architecture: $arch
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$root/usr" | cut -f1)
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
# One thread: the number of threads changes xz's bytes.
dpkg-deb --root-owner-group -Zxz --threads-max=1 --build "$root" "$folder/posenc_${version}_$arch.deb" >/dev/null
lintian --allow-root --fail-on error,warning --no-cfg "$folder/posenc_${version}_$arch.deb"
