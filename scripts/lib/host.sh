# shellcheck shell=bash
# A stock llama.cpp to load the plugin into. Needs common.sh and packages.sh.
# Each function leaves the host's directory in HOST and its kind in HOST_KIND.

HOST_SUITE=${ROCKET_HOST_SUITE:-forky}
SOURCE_SDIST=llama-cpp-python
SOURCE_VERSION=0.3.36 # llama.cpp 0.5.0, ggml 0.25.3
HOST='' HOST_KIND=''

# host_prebuilt [ARCH]: Debian's prebuilt llama.cpp, unpacked into a root of its own.
# Uses apt lists and a package status of its own: the machine's are not touched, no root needed.
host_prebuilt() {
  local arch=${1:-$(dpkg --print-architecture)}
  local root=$CACHE/host/$HOST_SUITE-$arch
  if [ -n "${ROCKET_HOST_REFRESH:-}" ] && [ -e "$root/.stamp" ]; then
    say "fetching the host anew (ROCKET_HOST_REFRESH)"
    rm -rf "$root"
  fi
  if [ ! -e "$root/.stamp" ]; then
    say "fetching Debian $HOST_SUITE's prebuilt llama.cpp for $arch (about 150 MB, once)"
    with_lock "host-$HOST_SUITE-$arch" host_prebuilt_make "$arch" "$root" || return 1
  fi
  HOST=$root HOST_KIND=prebuilt
  note "host: $(tr '\n' ' ' <"$root/.stamp")"
}

host_prebuilt_make() {
  local arch=$1 root=$2 apt=$CACHE/tmp/apt-$HOST_SUITE-$1 new mirror deb link
  [ ! -e "$root/.stamp" ] || return 0
  mirror=$(debian_mirror)
  if [ -z "$mirror" ]; then
    note "no Debian mirror in this machine's apt sources"
    return 1
  fi
  # Downloads stay in $apt when a run is interrupted, and are taken up again.
  own_apt "$apt" "$arch" "$mirror $HOST_SUITE main" >/dev/null
  quietly "$apt/update.log" "package lists of $HOST_SUITE" apt-get -q -c "$apt/apt.conf" update || return 1
  quietly "$apt/download.log" "download" apt-get -q -c "$apt/apt.conf" install -y --download-only \
    --no-install-recommends llama.cpp-tools llama.cpp-tools-extra llama.cpp-examples llama.cpp-tests \
    whisper.cpp-tools libggml-dev dash coreutils || return 1
  note "unpacking"
  new=$(mktemp -d "$CACHE/tmp/host.XXXXXX")
  chmod 755 "$new"
  for deb in "$apt"/arch/*.deb; do
    dpkg -x "$deb" "$new" || { rm -rf "$new"; return 1; }
  done
  for link in bin sbin lib lib64; do
    [ -e "$new/$link" ] || ln -s "usr/$link" "$new/$link"
  done
  mkdir -p "$new/proc" "$new/sys" "$new/dev" "$new/tmp" "$new/etc"
  mkdir -p "$(dirname "$root")"
  for deb in libllama0 libggml0 libwhisper1; do
    find "$apt/arch" -name "${deb}_*.deb" -printf '%f\n'
  done | sed 's/%3a/:/; s/_[a-z0-9]*\.deb$//' >"$new/.versions"
  rm -rf "$root"
  mv "$new" "$root" && mv "$root/.versions" "$root/.stamp" && rm -rf "$apt"
}

# host_source: a host of a generation that is known for certain, built here (a quarter of an hour, once).
host_source() {
  local root
  root=$CACHE/host/source-$SOURCE_VERSION-$(uname -m)
  if [ ! -e "$root/.stamp" ]; then
    say "building llama.cpp from source ($SOURCE_SDIST $SOURCE_VERSION; about 17 minutes on two cores, once)"
    need_packages cmake ninja-build g++ python3
    local python
    python=$(python_venv)
    with_lock host-source host_source_make "$root" "$python" || return 1
  fi
  # shellcheck disable=SC2034  # read by the scripts
  HOST=$root HOST_KIND=source
  note "host: $(cat "$root/.stamp")"
}

host_source_make() {
  local root=$1 python=$2 tmp=$CACHE/tmp/source-$SOURCE_VERSION sdist=llama_cpp_python-$SOURCE_VERSION
  [ ! -e "$root/.stamp" ] || return 0
  mkdir -p "$tmp/down"
  if [ ! -e "$tmp/src/.complete" ]; then
    quietly "$tmp/pip.log" "download of 77 MB" "$python" -m pip download -q --no-deps \
      --no-binary "$SOURCE_SDIST" -d "$tmp/down" "$SOURCE_SDIST==$SOURCE_VERSION" || return 1
    rm -rf "$tmp/src"
    mkdir "$tmp/src"
    tar xf "$tmp/down/$sdist.tar.gz" -C "$tmp/src" --strip-components=1 || return 1
    : >"$tmp/src/.complete"
  fi
  # LLAMA_USE_PREBUILT_UI=OFF: its default fetches a web page while building.
  quietly "$tmp/cmake.log" "cmake" cmake -G Ninja -S "$tmp/src/vendor/llama.cpp" -B "$tmp/build" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON \
    -DGGML_NATIVE=OFF -DGGML_CPU_REPACK=OFF -DGGML_CCACHE=OFF -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF \
    -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF -DLLAMA_BUILD_TESTS=OFF \
    -DLLAMA_BUILD_EXAMPLES=ON || return 1
  # An interrupted build goes on where it stopped.
  quietly "$tmp/ninja.log" "llama.cpp" nice ninja -C "$tmp/build" llama-completion llama-bench llama-perplexity \
    llama-quantize llama-tokenize llama-eval-callback ggml-cpu || return 1
  mkdir -p "$root.new"
  cp -a "$tmp/build/bin" "$root.new/" && rm -rf "$root" && mv "$root.new" "$root" || return 1
  echo "llama.cpp from $SOURCE_SDIST $SOURCE_VERSION" >"$root/.stamp"
  rm -rf "$tmp"
}

# host_run [in-root's options] -- PROG ARGS: a program of HOST; the tree, the cache and the build are visible.
host_run() {
  local options=()
  while [ "$1" != -- ]; do
    options+=("$1")
    shift
  done
  shift
  "$REPO/scripts/lib/in-root" --ro-bind "$REPO" --bind "$CACHE" --ro-bind "$(target_dir)" "${options[@]}" \
    "$HOST" "$@"
}
