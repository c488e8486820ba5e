#!/usr/bin/env bash
# makes every package of a release, for amd64 and arm64, in build/release-VERSION, and runs
# the README's first screen with them in empty roots (SUITE...: bookworm; --key FILE:
# signs with minisign; needs root, and Debian 12 on amd64)
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"
. scripts/roots.sh

key="" suites=()
while (($#)); do
  case $1 in
    --key) key=$(realpath "${2:?a file of minisign}") && shift ;;
    -*) echo "release: '$1' is unknown; there is: --key FILE" >&2 && exit 2 ;;
    *) suites+=("$1") ;;
  esac
  shift
done
((${#suites[@]})) || suites=(bookworm)
need git lintian minisign python3
forbid "a release is made from a commit, without changes" "$(git status --porcelain)"

version=$(<VERSION)
out=$PWD/build/release-$version
work=$PWD/build/release-work
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
export SOURCE_DATE_EPOCH
umask 022
rm -rf --one-file-system "$out" "$work"
mkdir -p "$out" "$work"

# pack FILE FOLDER NAME...: archives names in the folder; the same files give the same bytes.
pack() {
  tar --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=go=rX -C "$2" -c "${@:3}" |
    gzip -9n >"$1"
}

wheel() { PYTHONPATH=deploy/wheel python3 -Bc "import wheel; $1"; }

servers() {
  local arch
  client/node/run need # npm packs the programs
  scripts/static.sh amd64 arm64
  for arch in amd64 arm64; do
    python3 -B deploy/wheel/wheel.py "build/programs/$arch/posenc-programs" "$out"
    python3 -B deploy/npm/package.py "build/programs/$arch/posenc-programs" "$out"
  done
}

clients() {
  local language
  for language in python go java node rust; do
    "client/$language/run" need
    timed "client/$language" "client/$language/run" package "$out"
  done
  # Packs the archive again, because setuptools writes the current time into it.
  mkdir "$work/sdist"
  tar -C "$work/sdist" -xf "$out/posenc-$version.tar.gz"
  pack "$out/posenc-$version.tar.gz" "$work/sdist" "posenc-$version"
  deploy/npm/try.sh "$out"
}

# programs ARCH MACHINE: archives the programs with manual and licences, and makes the
# Debian package and the root of the image from the same files.
programs() {
  local arch=$1 tree=$work/$1/posenc-$version-linux-$2 root=$work/$1/image name linked libraries=build/arm64-sysroot
  [[ $arch != amd64 ]] || libraries=/
  mkdir -p "$tree"/{bin,lib/posenc,share/doc/posenc}
  cp "build/programs/$arch/posenc-programs" "$tree/lib/posenc/"
  for name in posencd posenc posenc-load; do ln -s ../lib/posenc/posenc-programs "$tree/bin/$name"; done
  cp -r "$work/share" "$tree/"
  cp README.md CHANGELOG.md LICENSE "$tree/share/doc/posenc/"
  wheel "wheel.copy_licences('$tree/share/doc/posenc/licenses')"
  pack "$out/${tree##*/}.tar.gz" "$work/$arch" "${tree##*/}"
  deploy/debian/package.sh "$tree" "$arch" "$out"

  scripts/sysroot.sh "$arch" "$root" base-files bash coreutils dash
  find "$root/usr/share/doc" ! -type d ! -name copyright -delete
  rm -rf "$root/packages" "$root"/usr/share/{info,locale,man}
  mkdir -p "$root/usr/local" "$root/usr/share/doc/posenc"
  cp -r "$tree"/{bin,lib} "$root/usr/local/"
  cp -r "$tree/share/doc/posenc/licenses" "$root/usr/share/doc/posenc/"
  read -ra linked < <(wheel 'print(*wheel.LINKED)')
  deploy/sbom.sh "$version" "$SOURCE_DATE_EPOCH" "$root" "$libraries" "${linked[@]}" >"$out/${tree##*/}.spdx.json"
  cp "$out/${tree##*/}.spdx.json" "$root/usr/share/doc/posenc/sbom.spdx.json"
}

# Makes the manual page and the completions in a folder like /usr/share.
manual() {
  local share=$work/share files=$work/shell_files
  mkdir -p "$files" "$share"/{man/man1,bash-completion/completions,zsh/vendor-completions,fish/vendor_completions.d}
  ln -s "$PWD/build/programs/amd64/posenc-programs" "$files/posenc"
  client/tools/cli/shell_files.sh "$files/posenc" "$files"
  gzip -9nc "$files/posenc.1" >"$share/man/man1/posenc.1.gz"
  cp "$files/posenc.bash" "$share/bash-completion/completions/posenc"
  cp "$files/_posenc" "$share/zsh/vendor-completions/"
  cp "$files/posenc.fish" "$share/fish/vendor_completions.d/"
}

kind() {
  case $1 in
    *.whl | *-"$version".tar.gz) echo python ;;
    posenc-helm-*) echo chart ;;
    *.tgz) echo npm ;;
    *.jar | *.pom) echo maven ;;
    *.crate) echo crate ;;
    *.zip) echo go ;;
    *.deb) echo debian ;;
    *-linux-*.tar.gz) echo programs ;;
    *-image-*) echo image ;;
    *.spdx.json) echo sbom ;;
    *) forbid "a release has no such file" "$1" ;;
  esac
}

# Writes the names, kinds, sizes and digests of all files, and signs the digests.
describe() (
  cd "$out" || exit
  for file in *; do
    printf '%s\t%s\t%s\t%s\n' "$(kind "$file")" "$(stat -c %s "$file")" "$(sha256sum <"$file" | cut -d' ' -f1)" "$file"
  done | LC_ALL=C sort >"$work/MANIFEST"
  mv "$work/MANIFEST" .
  LC_ALL=C sha256sum -- * >"$work/SHA256SUMS"
  mv "$work/SHA256SUMS" .
  [[ -z $key ]] || minisign -Sqs "$key" -m SHA256SUMS -t "posenc $version"
)

timed servers servers
timed clients clients
timed manual manual
timed amd64 programs amd64 x86_64
timed arm64 programs arm64 aarch64
cp -r deploy/helm "$work/posenc"
rm "$work/posenc/.helmignore"
pack "$out/posenc-helm-$version.tgz" "$work" posenc
timed image scripts/image.sh --roots "$work" --archive "$out/posenc-image-$version.tar"
describe
for suite in "${suites[@]}"; do timed "$suite" scripts/try_release.sh "$suite" "$out"; done
cat "$out/MANIFEST"
echo "release: build/release-$version, $SECONDS s"
