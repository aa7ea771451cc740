# shellcheck shell=bash
# Headers of ggml in several versions, for the tests that compare the handwritten layouts with what
# clang reads. Needs common.sh and packages.sh.

# Where they are: one folder per version, with include/ and, but for Debian's, src/ggml-backend-impl.h.
HEADERS=$CACHE/headers

# headers_all: fetches what is missing (about 90 MB of packages once, 2 MB are kept) and prints the versions.
# Debian's public headers are taken from the prebuilt host where there is one.
headers_all() {
  local python
  python=$(python_venv)
  need_rust
  with_lock headers headers_make "$python" || return 1
  headers_debian
  note "ggml headers: $(cd "$HEADERS" && echo *)"
}

headers_make() {
  local python=$1
  # Before its versions were numbered ggml went by those of whisper.cpp.
  headers_sdist "$python" whisper-1.7.4 pywhispercpp 1.3.1 || return 1
  headers_crate "$python" 0.9.5 whisper-rs-sys 0.15.0 || return 1
  headers_sdist "$python" 0.13.1 pywhispercpp 1.5.1 || return 1
  headers_sdist "$python" 0.25.3 llama-cpp-python 0.3.36 || return 1
  headers_crate "$python" 0.26.0 llama-cpp-sys-2 0.1.161 || return 1
}

headers_sdist() {
  local python=$1 version=$2 package=$3 release=$4 tmp
  [ ! -e "$HEADERS/$version/.stamp" ] || return 0
  say "fetching the headers of ggml $version (sdist $package $release, once)"
  tmp=$(mktemp -d "$CACHE/tmp/headers.XXXXXX")
  if quietly "$CACHE/tmp/headers-$version.log" "download" "$python" -m pip download -q --no-deps \
    --no-binary "$package" -d "$tmp" "$package==$release" &&
    tar xf "$tmp"/*.tar.gz -C "$tmp" --wildcards '*/ggml/include/*.h' '*/ggml/src/ggml-backend-impl.h' \
      '*/ggml/CMakeLists.txt'; then
    headers_keep "$version" "$tmp" "$package $release" || { rm -rf "$tmp"; return 1; }
    rm -rf "$tmp"
    return 0
  fi
  rm -rf "$tmp"
  return 1
}

headers_crate() {
  local python=$1 version=$2 crate=$3 release=$4 tmp manifest rc=0
  [ ! -e "$HEADERS/$version/.stamp" ] || return 0
  say "fetching the headers of ggml $version (crate $crate $release, once)"
  tmp=$(mktemp -d "$CACHE/tmp/headers.XXXXXX")
  # A package of its own that is never built: cargo downloads and unpacks what it depends on.
  mkdir "$tmp/src"
  : >"$tmp/src/lib.rs"
  printf '%s\n' '[package]' 'name = "fetch"' 'version = "0.0.0"' 'edition = "2024"' '[workspace]' \
    '[dependencies]' "$crate = \"=$release\"" >"$tmp/Cargo.toml"
  quietly "$CACHE/tmp/headers-$version.log" "download" cargo fetch -q --manifest-path "$tmp/Cargo.toml" || rc=1
  if [ "$rc" -eq 0 ]; then
    manifest=$(cargo metadata --format-version 1 --offline --manifest-path "$tmp/Cargo.toml" 2>/dev/null |
      "$python" -c 'import json, sys
for p in json.load(sys.stdin)["packages"]:
    if p["name"] == sys.argv[1]:
        print(p["manifest_path"])' "$crate")
    headers_keep "$version" "$(dirname "$manifest")" "$crate $release" || rc=1
  fi
  rm -rf "$tmp"
  return "$rc"
}

# headers_keep VERSION FOLDER WHAT: copies the headers of the ggml that lies somewhere in FOLDER.
headers_keep() {
  local version=$1 folder=$2 what=$3 impl ggml found new
  impl=$(find "$folder" -path '*/ggml/src/ggml-backend-impl.h' | head -n 1)
  [ -n "$impl" ] || { note "no ggml in $what"; return 1; }
  ggml=$(dirname "$(dirname "$impl")")
  found=$(sed -n 's/^set(GGML_VERSION_\(MAJOR\|MINOR\|PATCH\) *\([0-9]*\))$/\2/p' "$ggml/CMakeLists.txt" |
    paste -sd.)
  case $version in
    whisper-*) ;;
    "$found") ;;
    *) note "$what holds ggml ${found:-of unknown version}, not $version"; return 1 ;;
  esac
  new=$(mktemp -d "$CACHE/tmp/headers.XXXXXX")
  mkdir "$new/include" "$new/src"
  cp "$ggml"/include/*.h "$new/include/" && cp "$impl" "$new/src/" || return 1
  echo "$what" >"$new/.stamp"
  mkdir -p "$HEADERS"
  rm -rf "${HEADERS:?}/$version"
  mv "$new" "$HEADERS/$version"
}

# The public headers that Debian packages along with the prebuilt host.
headers_debian() {
  local root version
  for root in "$CACHE"/host/*/; do
    if [ ! -e "$root/usr/include/ggml-backend.h" ] || [ ! -e "$root/.stamp" ]; then continue; fi
    version=$(sed -n 's/^libggml0_\([0-9.]*\).*/\1/p' "$root/.stamp")
    if [ -z "$version" ] || [ -e "$HEADERS/debian-$version/.stamp" ]; then continue; fi
    rm -rf "$HEADERS/debian-$version"
    mkdir -p "$HEADERS/debian-$version/include"
    cp "$root"/usr/include/ggml*.h "$HEADERS/debian-$version/include/"
    cp "$root/.stamp" "$HEADERS/debian-$version/.stamp"
  done
}
