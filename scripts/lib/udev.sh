# shellcheck shell=bash
# A udevadm that can verify rules (254 or later; Debian 12 has 252). Needs common.sh.

UDEV_SUITE=trixie
UDEV=''

# udev_checker: Debian's udev of that suite, unpacked into the cache; leaves its root in UDEV.
udev_checker() {
  local arch root
  arch=$(dpkg --print-architecture)
  root=$CACHE/udev/$UDEV_SUITE-$arch
  if [ ! -e "$root/.stamp" ]; then
    say "fetching Debian $UDEV_SUITE's udev for $arch (about 60 MB unpacked, once)"
    with_lock "udev-$UDEV_SUITE-$arch" udev_checker_make "$arch" "$root" || return 1
  fi
  UDEV=$root
  note "udev: $(cat "$root/.stamp")"
}

udev_checker_make() {
  local arch=$1 root=$2 apt=$CACHE/tmp/apt-udev-$UDEV_SUITE-$1 new mirror deb
  [ ! -e "$root/.stamp" ] || return 0
  mirror=$(debian_mirror)
  if [ -z "$mirror" ]; then
    note "no Debian mirror in this machine's apt sources"
    return 1
  fi
  # Downloads stay in $apt when a run is interrupted, and are taken up again.
  own_apt "$apt" "$arch" "$mirror $UDEV_SUITE main" >/dev/null
  quietly "$apt/update.log" "package lists of $UDEV_SUITE" apt-get -q -c "$apt/apt.conf" update || return 1
  quietly "$apt/download.log" "download" apt-get -q -c "$apt/apt.conf" install -y --download-only \
    --no-install-recommends udev || return 1
  new=$(mktemp -d "$CACHE/tmp/udev.XXXXXX")
  for deb in "$apt"/arch/*.deb; do
    dpkg -x "$deb" "$new" || { rm -rf "$new"; return 1; }
  done
  find "$apt/arch" -name 'udev_*.deb' -printf '%f\n' | sed 's/%3a/:/; s/_[a-z0-9]*\.deb$//' >"$new/.stamp"
  mkdir -p "$(dirname "$root")"
  rm -rf "$root"
  mv "$new" "$root" && rm -rf "$apt"
}

# udev_verify FILE...: exit status 1, with file and line, for a rule that udev would not take.
udev_verify() {
  local lib loader
  lib=$(find "$UDEV/usr/lib" -maxdepth 1 -name '*-linux-gnu*' -type d | head -n 1)
  loader=$(find "$lib" -maxdepth 1 -name 'ld-linux*' | head -n 1)
  "$loader" --library-path "$lib:$lib/systemd" "$UDEV/usr/bin/udevadm" verify --resolve-names=never "$@"
}
