# shellcheck shell=bash
# The package ggml-rocket: libggml-rocket.so. Needs package.sh.
# shellcheck disable=SC2034,SC2154  # set or read by those who source this

# plugin_floor SO ARCH: the C library it asks for; refuses one that must not be shipped.
plugin_floor() {
  local exported
  glibc_floor "$1" "$2"
  exported=$(readelf -W --dyn-syms "$1" | awk '$5 ~ /GLOBAL|WEAK/ && $7 != "UND" { print $8 }' | sort | tr '\n' ' ')
  [ "$exported" = 'ggml_backend_init ggml_backend_score ' ] || fail "$1 exports $exported"
  # The tests' engines are no part of a released file.
  ! grep -q ROCKET_TEST_ENGINE "$1" || fail "$1 is built with the feature test-engine"
}

# plugin_documents DIR ARCH: what both packages bring besides the library.
plugin_documents() {
  mkdir -p "$1"
  cp docs/using.md docs/knobs.md docs/counters.md docs/routing.md docs/config.example.yaml "$1"
  gzip -9n <CHANGELOG.md >"$1/changelog.gz"
  python3 scripts/lib/copyright.py "$2" ggml-rocket >"$1/copyright"
  find "$1" -type f -exec chmod 644 {} +
}

# plugin_deb ARCH FLOOR SO DOCS FILE
plugin_deb() {
  local arch=$1 floor=$2 tree=$work/deb-$1
  rm -rf "$tree"
  mkdir -p "$tree/DEBIAN" "$tree/usr/lib/ggml-rocket" "$tree/usr/share/doc"
  install -m 644 "$3" "$tree/usr/lib/ggml-rocket/libggml-rocket.so"
  cp -r "$4" "$tree/usr/share/doc/ggml-rocket"
  # Live counters of every user, from the next boot on; until then they are in shared memory.
  mkdir -p "$tree/usr/lib/tmpfiles.d"
  printf 'd /run/rocket 1777 root root -\n' >"$tree/usr/lib/tmpfiles.d/ggml-rocket.conf"
  chmod 644 "$tree/usr/lib/tmpfiles.d/ggml-rocket.conf"
  cat >"$tree/DEBIAN/control" <<CONTROL
Package: ggml-rocket
Version: $version
Architecture: $arch
Maintainer: $(maintainer)
Installed-Size: @SIZE@
Depends: libc6 (>= $floor), libgcc-s1
Suggests: rocket-npu-tools
Enhances: llama.cpp, whisper.cpp
Section: libs
Priority: optional
Description: Rockchip NPU backend for llama.cpp and whisper.cpp
 A ggml backend that stock hosts load through GGML_BACKEND_PATH. Large matrix
 products of prompts and audio run on the NPU of an RK3588 with the mainline
 rocket driver; everything else stays on the CPU.
 .
 Nothing is loaded by itself: set
 GGML_BACKEND_PATH=/usr/lib/ggml-rocket/libggml-rocket.so
CONTROL
  pack_deb "$tree" "$5"
}

# plugin_tar ARCH SO DOCS FILE
plugin_tar() {
  local name=ggml-rocket-$version-$1 tree=$work/tar-$1
  rm -rf "$tree"
  mkdir -p "$tree/$name"
  install -m 644 "$2" "$tree/$name/libggml-rocket.so"
  cp "$3"/* LICENSE-MIT LICENSE-APACHE "$tree/$name"
  find "$tree" -type f -exec chmod 644 {} +
  pack_tar "$tree" "$name" "$4"
}

# plugin_check ARCH FLOOR SO DEB TAR: what a user gets is what was built.
plugin_check() {
  local arch=$1 floor=$2 so=$3 deb=$4 tar=$5 out=$work/check-$1 doc
  rm -rf "$out"
  mkdir -p "$out/deb" "$out/tar"
  dpkg-deb -x "$deb" "$out/deb"
  tar -C "$out/tar" --strip-components=1 -xf "$tar"
  [ "$(hash_of "$out/deb/usr/lib/ggml-rocket/libggml-rocket.so")" = "$(hash_of "$so")" ] ||
    fail "the library in $deb is not the one that was built"
  [ "$(hash_of "$out/tar/libggml-rocket.so")" = "$(hash_of "$so")" ] ||
    fail "the library in $tar is not the one that was built"
  plugin_floor "$out/deb/usr/lib/ggml-rocket/libggml-rocket.so" "$arch" >/dev/null
  for doc in using.md knobs.md counters.md routing.md copyright config.example.yaml changelog.gz; do
    [ -s "$out/deb/usr/share/doc/ggml-rocket/$doc" ] || fail "$deb has no $doc"
    cmp -s "$out/deb/usr/share/doc/ggml-rocket/$doc" "$out/tar/$doc" || fail "$doc differs between the packages"
  done
  grep -qx 'd /run/rocket 1777 root root -' "$out/deb/usr/lib/tmpfiles.d/ggml-rocket.conf" ||
    fail "$deb does not make /run/rocket"
  check_deb "$deb" "$arch" "$floor" "$out" -rw-r--r-- usr/lib/ggml-rocket usr/lib/tmpfiles.d usr/share/doc/ggml-rocket
}

# plugin ARCH: makes and checks its packages, or checks those that are there.
plugin() {
  local arch=$1 so=$work/libggml-rocket-$1.so floor deb tar round other
  "$(strip_of "$arch")" --strip-unneeded -o "$so" "$(built "$arch" libggml_rocket.so)"
  floor=$(plugin_floor "$so" "$arch")
  deb=$dist/ggml-rocket_${version}_$arch.deb tar=$dist/ggml-rocket-$version-$arch.tar.gz
  if [ -n "$pack" ]; then
    plugin_documents "$work/doc-$arch" "$arch"
    # Twice, from nothing: the second must be the first.
    for round in "$work/first" "$dist"; do
      mkdir -p "$round"
      plugin_deb "$arch" "$floor" "$so" "$work/doc-$arch" "$round/${deb##*/}"
      plugin_tar "$arch" "$so" "$work/doc-$arch" "$round/${tar##*/}"
    done
    same_twice "$deb" "$tar"
  fi
  plugin_check "$arch" "$floor" "$so" "$deb" "$tar"
  # Negative controls: another library in the package, an older C library, another architecture.
  { cat "$so" && printf x; } >"$work/other.so"
  ! (plugin_check "$arch" "$floor" "$work/other.so" "$deb" "$tar") 2>/dev/null || fail "the check takes any library"
  ! (GLIBC_CEILING=2.16 && glibc_floor "$so" "$arch") >/dev/null 2>&1 || fail "any C library would do"
  case $arch in amd64) other=arm64 ;; *) other=amd64 ;; esac
  ! (glibc_floor "$so" "$other") >/dev/null 2>&1 || fail "any architecture would do"
  tell "$deb" "$tar"
  printf 'libggml-rocket.so (%s)  %d bytes  sha256 %s  glibc %s or newer\n' "$arch" "$(stat -c %s "$so")" \
    "$(hash_of "$so")" "$floor"
}
