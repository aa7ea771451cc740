# shellcheck shell=bash
# What every script needs: where things are, how to talk, how to run something slow.
# Source it after `set -eu`; it defines REPO and CACHE.

# shellcheck disable=SC2034  # used by those who source this
REPO=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# Everything that is slow to fetch or build lives here, outside the tree.
cache_dir() {
  printf '%s\n' "${ROCKET_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/rocket-npu}"
}
CACHE=$(cache_dir)
mkdir -p "$CACHE/tmp"
CACHE=$(cd "$CACHE" && pwd)
export ROCKET_CACHE=$CACHE

if [ -t 2 ] && [ -z "${NO_COLOR:-}" ]; then
  SAY_ON=$'\033[1m' SAY_OFF=$'\033[0m'
else
  SAY_ON='' SAY_OFF=''
fi

# All talk goes to standard error, so that functions can print results.
say() { printf '%s==>%s %s\n' "$SAY_ON" "$SAY_OFF" "$*" >&2; }
note() { printf '    %s\n' "$*" >&2; }
fail() {
  printf '%serror:%s %s\n' "$SAY_ON" "$SAY_OFF" "$*" >&2
  exit 1
}

have() { command -v "$1" >/dev/null 2>&1; }

# with_lock NAME COMMAND...: two scripts started at once do not build the same thing twice.
with_lock() {
  local name=$1
  shift
  mkdir -p "$CACHE/locks"
  (
    if ! flock -n 9; then
      note "another run is preparing '$name'; waiting for it"
      flock 9
    fi
    "$@" 9>&-
  ) 9>"$CACHE/locks/$name"
}

# quietly LOG WHAT COMMAND...: output to LOG, a sign of life every 20 s, the log's end on failure.
quietly() {
  local log=$1 what=$2 start=$SECONDS rc=0 pid beat
  shift 2
  mkdir -p "$(dirname "$log")"
  "$@" >"$log" 2>&1 </dev/null &
  pid=$!
  (
    while sleep 20; do
      printf '    ... %s: %d s: %s\n' "$what" $((SECONDS - start)) \
        "$(tail -n 1 "$log" 2>/dev/null | tr '\r' '\n' | tail -n 1 | cut -c1-80)" >&2
    done
  ) &
  beat=$!
  # A command in the background does not see Ctrl-C; it must not outlive its script.
  trap 'kill "$pid" "$beat" 2>/dev/null; exit 130' INT TERM
  wait "$pid" || rc=$?
  trap - INT TERM
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  if [ "$rc" -ne 0 ]; then
    note "$what failed (status $rc); the end of $log:"
    tail -n 25 "$log" >&2
  fi
  return "$rc"
}

# Where cargo builds: the tree's target/ unless CARGO_TARGET_DIR says otherwise.
target_dir() {
  local dir=${CARGO_TARGET_DIR:-$REPO/target}
  mkdir -p "$dir"
  (cd "$dir" && pwd)
}

# own_apt DIR ARCHS LINE...: an apt folder with its own lists, status and sources; prints its configuration's
# path. The machine's package state is not touched and no root is needed.
own_apt() {
  local apt=$1 archs=$2 quoted
  shift 2
  mkdir -p "$apt/lists/partial" "$apt/arch/partial" "$apt/empty"
  : >"$apt/status"
  printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] %s\n' "$@" >"$apt/sources.list"
  # shellcheck disable=SC2086  # a list of words
  quoted=$(printf '"%s"; ' $archs)
  cat >"$apt/apt.conf" <<CONF
Dir::State "$apt"; Dir::State::lists "$apt/lists"; Dir::State::status "$apt/status";
Dir::Cache "$apt"; Dir::Cache::archives "$apt/arch"; Dir::Log "$apt";
Dir::Etc::sourcelist "$apt/sources.list"; Dir::Etc::sourceparts "$apt/empty"; Dir::Etc::preferencesparts "$apt/empty";
APT::Architecture "${archs%% *}"; APT::Architectures { $quoted}; APT::Sandbox::User "root";
CONF
  printf '%s\n' "$apt/apt.conf"
}

# debian_mirror [security]: where this machine gets Debian from.
debian_mirror() {
  # shellcheck disable=SC2016  # awk's fields
  local want='$3 !~ /security|updates|backports/'
  # shellcheck disable=SC2016
  [ "${1:-}" != security ] || want='$3 ~ /security/'
  # shellcheck disable=SC2016  # apt's own variables
  apt-get indextargets --format '$(ORIGIN) $(COMPONENT) $(RELEASE) $(REPO_URI)' 'Created-By: Packages' |
    awk '$1 == "Debian" && $2 == "main" && '"$want"' { print $4; exit }'
}
