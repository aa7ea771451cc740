# shellcheck shell=bash
# What every script needs: where things are, how to talk, how to run something slow.
# Source it after `set -eu`; it defines REPO and CACHE.

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
  wait "$pid" || rc=$?
  kill "$beat" 2>/dev/null || true
  wait "$beat" 2>/dev/null || true
  if [ "$rc" -ne 0 ]; then
    note "$what failed (status $rc); the end of $log:"
    tail -n 25 "$log" >&2
  fi
  return "$rc"
}
