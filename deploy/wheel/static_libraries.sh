#!/usr/bin/env bash
# Builds static libraries that Debian does not have, for the programs of the wheel:
#   static_libraries.sh TRIPLE FOLDER
# Debian's static libmicrohttpd needs GnuTLS, which has no complete static library. Our
# libmicrohttpd has no TLS, because neither the admin server nor `posenc explore` uses
# it. Debian has prometheus-cpp only as a shared library. Sources come from Debian,
# checked by apt.
set -euo pipefail
triple=$1
mkdir -p "$2"
folder=$(realpath "$2")
lists=$folder/apt/lists
sources=$folder/apt/sources.list
[[ ! -e $folder/lib/libprometheus-cpp-core.a ]] || exit 0
mkdir -p "$lists/partial" "$folder/source"

apt-get indextargets --format 'deb-src $(REPO_URI) $(CODENAME) $(COMPONENT)' \
  'Created-By: Packages' 'Origin: Debian' >"$sources"
options=(-qq -o Dir::Etc::sourcelist="$sources" -o Dir::Etc::sourceparts=/dev/null
  -o Dir::State::lists="$lists" -o APT::Sandbox::User=root)
cd "$folder/source"
apt-get "${options[@]}" update
apt-get "${options[@]}" source libmicrohttpd prometheus-cpp >/dev/null

(cd libmicrohttpd-*/ && ./configure -q --host="$triple" --prefix="$folder" --disable-shared \
  --disable-https --disable-doc --disable-examples --disable-curl CFLAGS='-O2 -ffunction-sections' &&
  make -s -j"$(nproc)" install)
cmake -S prometheus-cpp-*/ -B prometheus -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_CXX_COMPILER="$triple-g++" -DCMAKE_INSTALL_PREFIX="$folder" -DCMAKE_INSTALL_LIBDIR=lib \
  -DBUILD_SHARED_LIBS=OFF -DENABLE_PULL=OFF -DENABLE_PUSH=OFF -DENABLE_TESTING=OFF \
  -DENABLE_COMPRESSION=OFF -DUSE_THIRDPARTY_LIBRARIES=OFF -DGENERATE_PKGCONFIG=ON
cmake --build prometheus --target install
