#!/usr/bin/env bash
# builds posencd with OpenTelemetry's traces in build/traces, and runs their tests
. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# Unpacks opentelemetry-cpp, which bookworm has only in its backports, and prints
# the folder. The system's own lists and packages do not change.
opentelemetry() {
  local dir=$PWD/build/opentelemetry mirror
  if [[ ! -d $dir/usr/include/opentelemetry ]]; then
    mkdir -p "$dir"/apt/{lists,cache/archives}/partial
    mirror=$(apt-get indextargets --format '$(REPO_URI)' 'Codename: bookworm' 'Created-By: Packages' | head -n 1)
    echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror bookworm-backports main" \
      >"$dir/apt/sources.list"
    (
      cd "$dir/apt"
      apt=(apt-get -qq -o Dir::Etc::sourcelist="$PWD/sources.list" -o Dir::Etc::sourceparts=/dev/null
        -o Dir::State::lists="$PWD/lists" -o Dir::Cache="$PWD/cache")
      "${apt[@]}" update
      "${apt[@]}" download opentelemetry-cpp opentelemetry-cpp-dev
      for package in *.deb; do dpkg -x "$package" "$dir"; done
    ) >&2
    rm -rf "$dir/apt"
  fi
  echo "$dir/usr"
}

need libcurl4-openssl-dev
root=$(opentelemetry)
cmake --preset release -B build/traces -DPOSENC_OTLP=ON -DPOSENC_BUILD_BENCH=OFF \
  -DCMAKE_PREFIX_PATH="$root" >/dev/null
cmake --build build/traces --target posencd server_trace_test >&2
LD_LIBRARY_PATH=$(echo "$root"/lib/*/) build/traces/bin/server_trace_test --gtest_brief=1
