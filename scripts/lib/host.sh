# shellcheck shell=bash
# Stock llama.cpp and whisper.cpp hosts to load the plugin into. Needs common.sh and packages.sh.
# Each function leaves the host's directory in HOST and its kind in HOST_KIND.

HOST_SUITE=${ROCKET_HOST_SUITE:-forky}
SOURCE_VERSION=0.3.36   # of llama-cpp-python: llama.cpp 0.5.0, ggml 0.25.3, API 2
SIMPLE_VERSION=0.3.16   # of llama-cpp-python: the last of API 1
WHISPER_PROGRAMS=1.5.1  # of pywhispercpp: whisper.cpp 1.8.5, ggml 0.13.1, API 2
# shellcheck disable=SC2034  # read by the scripts
WHISPER_VERSIONS="$WHISPER_PROGRAMS 1.5.0" # 1.5.0: whisper.cpp 1.8.4, ggml 0.9.8, API 2 with the older table
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

# sdist PACKAGE VERSION DIR PYTHON: the source tree of a Python package, unpacked into DIR.
sdist() {
  local package=$1 version=$2 dir=$3 python=$4
  [ ! -e "$dir/.complete" ] || return 0
  rm -rf "$dir" "$dir.down"
  # Only this package as source: with :all: pip would build its build tools as well.
  quietly "$dir.pip.log" "download of $package $version" "$python" -m pip download -q --no-deps \
    --no-binary "$package" -d "$dir.down" "$package==$version" || return 1
  mkdir "$dir"
  tar xf "$dir.down"/*.tar.gz -C "$dir" --strip-components=1 || return 1
  rm -rf "$dir.down"
  : >"$dir/.complete"
}

# host_cmake SOURCE BUILD OPTION...: what all hosts built here have in common. Compiling at -O3 is most of the
# time and only ggml's own part is worth it; the rest is glue.
host_cmake() {
  local source=$1 build=$2
  shift 2
  quietly "$build.cmake.log" "cmake" cmake -G Ninja -S "$source" -B "$build" \
    -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_FLAGS_RELEASE="-O1 -DNDEBUG" \
    -DCMAKE_PROJECT_ggml_INCLUDE="$REPO/scripts/lib/ggml.cmake" \
    -DCMAKE_LIBRARY_OUTPUT_DIRECTORY="$build/bin" -DCMAKE_BUILD_RPATH_USE_ORIGIN=ON \
    -DBUILD_SHARED_LIBS=ON -DGGML_BACKEND_DL=ON -DGGML_NATIVE=OFF -DGGML_CPU_REPACK=OFF -DGGML_CCACHE=OFF "$@"
}

# host_install BUILD ROOT WORDS: moves a build into place; WORDS become its stamp.
host_install() {
  local build=$1 root=$2
  rm -rf "$root" "$root.new"
  mkdir -p "$root.new"
  cp -a "$build/bin" "$root.new/" || return 1
  [ ! -d "$build/share" ] || cp -a "$build/share" "$root.new/" || return 1
  mv "$root.new" "$root" || return 1
  printf '%s\n' "$3" >"$root/.stamp"
}

# host_built NAME MAKE WORDS: a host of a generation that is known for certain, built here once.
host_built() {
  local name=$1 make=$2 words=$3 root python
  root=$CACHE/host/$name-$(uname -m)
  if [ ! -e "$root/.stamp" ]; then
    say "building $words"
    need_packages cmake ninja-build gcc g++ python3
    python=$(python_venv)
    with_lock "host-$name" "$make" "$root" "$python" || return 1
  fi
  # shellcheck disable=SC2034  # read by the scripts
  HOST=$root HOST_KIND=source
  note "host: $(cat "$root/.stamp")"
}

# host_source: llama.cpp of API 2.
host_source() {
  host_built "source-$SOURCE_VERSION" host_source_make \
    "llama.cpp from source (llama-cpp-python $SOURCE_VERSION; about 5 minutes on two cores, once)"
}

host_source_make() {
  local root=$1 tmp=$CACHE/tmp/source-$SOURCE_VERSION
  [ ! -e "$root/.stamp" ] || return 0
  mkdir -p "$tmp"
  sdist llama-cpp-python "$SOURCE_VERSION" "$tmp/src" "$2" || return 1
  # LLAMA_USE_PREBUILT_UI=OFF: its default fetches a web page while building.
  host_cmake "$tmp/src/vendor/llama.cpp" "$tmp/build" -DCMAKE_UNITY_BUILD=ON \
    -DCMAKE_PROJECT_llama.cpp_INCLUDE="$REPO/scripts/lib/llama.cmake" \
    -DLLAMA_CURL=OFF -DLLAMA_OPENSSL=OFF -DLLAMA_USE_PREBUILT_UI=OFF -DLLAMA_BUILD_UI=OFF -DLLAMA_BUILD_APP=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=ON || return 1
  # An interrupted build goes on where it stopped.
  quietly "$tmp/ninja.log" "llama.cpp" nice ninja -C "$tmp/build" llama-completion llama-perplexity \
    llama-quantize llama-eval-callback ggml-cpu || return 1
  host_install "$tmp/build" "$root" "llama.cpp from llama-cpp-python $SOURCE_VERSION" || return 1
  rm -rf "$tmp"
}

# host_simple: the newest llama.cpp of API 1 that is to be had, with the one example that needs no common code.
host_simple() {
  host_built "simple-$SIMPLE_VERSION" host_simple_make \
    "an old llama.cpp (llama-cpp-python $SIMPLE_VERSION; about 3 minutes on two cores, once)"
}

host_simple_make() {
  local root=$1 tmp=$CACHE/tmp/simple-$SIMPLE_VERSION
  [ ! -e "$root/.stamp" ] || return 0
  mkdir -p "$tmp"
  sdist llama-cpp-python "$SIMPLE_VERSION" "$tmp/src" "$2" || return 1
  host_cmake "$tmp/src/vendor/llama.cpp" "$tmp/build" -DLLAMA_CURL=OFF -DLLAMA_BUILD_TOOLS=OFF \
    -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=ON || return 1
  quietly "$tmp/ninja.log" "llama.cpp" nice ninja -C "$tmp/build" llama-simple ggml-cpu || return 1
  host_install "$tmp/build" "$root" "llama.cpp from llama-cpp-python $SIMPLE_VERSION" || return 1
  rm -rf "$tmp"
}

# host_whisper VERSION: whisper.cpp from pywhispercpp VERSION. The newest brings the programs' sources, the sample
# and the model headers (HOST/share); the older ones have the libraries alone, and get the newest one's programs.
host_whisper() {
  WHISPER_WANTED=$1 host_built "whisper-$1" host_whisper_make \
    "whisper.cpp (pywhispercpp $1; about 2 minutes on two cores, once)"
}

host_whisper_make() {
  local root=$1 version=$WHISPER_WANTED tmp=$CACHE/tmp/whisper-$WHISPER_WANTED programs=$CACHE/tmp/whisper-programs
  local src=$tmp/src/whisper.cpp words
  [ ! -e "$root/.stamp" ] || return 0
  mkdir -p "$tmp"
  sdist pywhispercpp "$version" "$tmp/src" "$2" || return 1
  if [ ! -e "$src/examples/cli/cli.cpp" ]; then
    with_lock whisper-programs sdist pywhispercpp "$WHISPER_PROGRAMS" "$programs" "$2" || return 1
    rm -rf "$src/examples" "$src/bindings"
    cp -a "$programs/whisper.cpp/examples" "$programs/whisper.cpp/bindings" "$src/" || return 1
    # The one name in them that ggml 0.9 does not have, in lists of types that cannot be quantized to.
    sed -i '/case GGML_\(FTYPE_MOSTLY\|TYPE\)_Q1_0:/d' "$src/examples/common-ggml.cpp" || return 1
  fi
  host_cmake "$src" "$tmp/build" -DWHISPER_BUILD_TESTS=OFF -DWHISPER_BUILD_SERVER=OFF || return 1
  quietly "$tmp/ninja.log" "whisper.cpp" nice ninja -C "$tmp/build" whisper-cli whisper-quantize ggml-cpu || return 1
  if [ -e "$src/samples/jfk.wav" ]; then
    mkdir -p "$tmp/build/share"
    cp "$src/samples/jfk.wav" "$src/models/for-tests-ggml-base.bin" "$tmp/build/share/" || return 1
  fi
  words="whisper.cpp $(sed -n 's/^project("whisper.cpp" VERSION \(.*\))/\1/p' "$src/CMakeLists.txt"), ggml $(
    sed -n 's/^set(GGML_VERSION_\(MAJOR\|MINOR\|PATCH\) \([0-9]*\))/\2/p' "$src/ggml/CMakeLists.txt" | paste -sd.
  ), from pywhispercpp $version"
  host_install "$tmp/build" "$root" "$words" || return 1
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
