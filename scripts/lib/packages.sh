# shellcheck shell=bash
# Debian packages and cargo tools. Needs common.sh.

# need_packages PACKAGE...: installs those that are missing, and asks for root only then.
need_packages() {
  local p missing=()
  if ! have dpkg-query || ! have apt-get; then
    fail "this is not a Debian system; please install what these packages provide: $*"
  fi
  for p in "$@"; do
    # shellcheck disable=SC2016  # dpkg's own variable
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
  done
  [ ${#missing[@]} -gt 0 ] || return 0

  local root=()
  if [ "$(id -u)" -ne 0 ]; then
    have sudo || fail "not root and no sudo; please have these packages installed: ${missing[*]}"
    root=(sudo)
  fi
  say "installing Debian packages: ${missing[*]}"
  root+=(env DEBIAN_FRONTEND=noninteractive)
  local install=(apt-get install -y -q --no-install-recommends "${missing[@]}")
  # Lists may be absent (container images) or stale; one update settles both.
  if ! apt-get install -s -q --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
    apt_update "${root[@]}"
  fi
  "${root[@]}" "${install[@]}" </dev/null >&2 && return 0
  if [ -z "${APT_UPDATED:-}" ]; then
    apt_update "${root[@]}"
    "${root[@]}" "${install[@]}" </dev/null >&2 && return 0
  fi
  fail "apt-get could not install: ${missing[*]}"
}

apt_update() {
  [ -z "${APT_UPDATED:-}" ] || return 0
  note "apt-get update"
  "$@" apt-get -q update </dev/null >&2 || fail "apt-get update failed"
  APT_UPDATED=1
}

need_rust() {
  have cargo || fail "cargo not found; install Rust 1.95 or later (https://rustup.rs) and start again"
  local part
  for part in "$@"; do
    cargo "$part" --version >/dev/null 2>&1 && continue
    have rustup || fail "cargo $part not found; install it with your Rust toolchain"
    say "rustup component add $part"
    rustup component add "$part" >&2 || fail "could not add $part"
  done
}

# need_cargo_tool NAME VERSION: `cargo NAME` from the machine if it is there, else built into the cache.
need_cargo_tool() {
  local name=$1 version=$2
  case :$PATH: in
    *":$CACHE/tools/bin:"*) ;;
    *) export PATH="$PATH:$CACHE/tools/bin" ;;
  esac
  have "cargo-$name" && return 0
  say "building cargo-$name $version into the cache (once, some minutes)"
  with_lock "tool-$name" cargo_tool_build "$name" "$version" || fail "could not build cargo-$name"
}

cargo_tool_build() {
  [ ! -x "$CACHE/tools/bin/cargo-$1" ] || return 0
  CARGO_TARGET_DIR=$CACHE/tmp/tool-$1 quietly "$CACHE/tmp/tool-$1.log" "cargo install cargo-$1" \
    cargo install --locked --root "$CACHE/tools" "cargo-$1" --version "=$2" || return 1
  rm -rf "$CACHE/tmp/tool-$1"
}

# python_venv: prints the path of a python with pip, in the cache.
python_venv() {
  local venv=$CACHE/venv
  if [ ! -e "$venv/.ready" ] || ! "$venv/bin/python" -c '' 2>/dev/null; then
    if ! python3 -c 'import venv, ensurepip' >/dev/null 2>&1; then
      need_packages python3 python3-venv
    fi
    with_lock venv venv_make "$venv" >&2 || fail "could not make a Python environment in $venv"
  fi
  printf '%s\n' "$venv/bin/python"
}

venv_make() {
  rm -rf "$1"
  python3 -m venv "$1" && : >"$1/.ready"
}
