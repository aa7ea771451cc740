# shellcheck shell=bash
# Whether the packages of the tools hold what they should, and work where nothing else of ours is. Needs
# package-tools.sh.
# shellcheck disable=SC2034,SC2154  # set or read by those who source this

# tools_check ARCH DEB TAR
tools_check() {
  local arch=$1 deb=$2 tar=$3 out=$work/tools-check-$1 usr floor file
  rm -rf "$out"
  mkdir -p "$out/deb" "$out/tar"
  dpkg-deb -x "$deb" "$out/deb"
  tar -C "$out/tar" --strip-components=1 -xf "$tar"
  usr=$out/deb/usr
  for file in LICENSE-MIT LICENSE-APACHE; do
    cmp "$file" "$out/tar/$file" || fail "$tar has no $file"
    rm "$out/tar/$file"
  done
  diff -r "$usr" "$out/tar" >&2 || fail "$deb and $tar differ"
  floor=$(tools_floor "$arch" "$usr")
  # shellcheck disable=SC2086  # a list of words
  check_deb "$deb" "$arch" "$floor" "$out" '-rw-r--r-- -rwxr-xr-x' $TOOLS_FOLDERS
  [ "$(find "$usr" -type f -perm /111 | sort | tr '\n' ' ')" = \
    "$usr/bin/rocket-top $usr/bin/rocketctl $usr/lib/rocket/rocket-load-test " ] ||
    fail "$deb: other programs than the three"
  ! (GLIBC_CEILING=2.16 && tools_floor "$arch" "$usr") >/dev/null 2>&1 || fail "any C library would do"
  tools_check_files "$usr"
  case $arch-$(uname -m) in
    arm64-x86_64) tools_check_emulated "$arch" "$usr" ;;
    *) tools_check_in_root "$arch" "$out" ;;
  esac
}

# tools_check_files USR
tools_check_files() {
  local usr=$1 name
  (cd "$usr/share/rocket-npu" && find kernel-patches -type f | sort) >"$work/packed"
  git ls-files kernel-patches | cmp - "$work/packed" || fail "the patches are not those of the tree"
  while read -r name; do
    cmp "$name" "$usr/share/rocket-npu/$name" || fail "$name is not packed"
  done <"$work/packed"
  for name in udev/*.rules; do
    cmp "$name" "$usr/lib/udev/rules.d/${name##*/}" || fail "$name is not packed"
  done
  cmp udev/rocket-npu.conf "$usr/lib/tmpfiles.d/rocket-npu.conf" || fail "nothing makes /run/rocket"
  for name in rocketctl rocketctl-doctor rocketctl-patch-apply rocket-top; do
    gzip -dc "$usr/share/man/man1/$name.1.gz" | grep -q '^\.SH NAME' || fail "no man page of $name"
  done
  for name in $TOOLS; do
    bash -n "$usr/share/bash-completion/completions/$name" || fail "bash does not take the completions of $name"
    grep -q "^ *complete -F .* $name\$" "$usr/share/bash-completion/completions/$name" || fail "no completions of $name"
    head -n 1 "$usr/share/zsh/vendor-completions/_$name" | grep -qx "#compdef $name" || fail "zsh: no $name"
    grep -q "^complete -c $name " "$usr/share/fish/vendor_completions.d/$name.fish" || fail "fish: no $name"
  done
  for name in 'ratatui ' 'clap ' 'serde_json ' 'GPL-2\.0-only'; do
    grep -q "$name" "$usr/share/doc/rocket-npu-tools/copyright" || fail "copyright does not name $name"
  done
}

# expect STATUS PATTERN COMMAND...: its status, and its first line; all it prints is in $said.
expect() {
  local want=$1 pattern=$2 status=0 first what
  shift 2
  said=$("$@" 2>&1 </dev/null) || status=$?
  first=${said%%$'\n'*}
  # shellcheck disable=SC2254  # a pattern
  case $status-$first in
    "$want"-$pattern) ;;
    *) fail "$*: status $status for $want, first line '$first' for '$pattern'" ;;
  esac
  # The program and its words alone.
  what=$(printf '%s\n' "$*" | sed -E 's#--(ro-bind [^ ]+|tmpfs) [^ ]+ ##g; s#.*--chdir / ##; s#.*/usr/(bin|lib)/#/usr/\1/#')
  note "$what: ${first:-(silent)}"
}

# first_of BOARD: the first line of the doctor on it, as a pattern, from what the tests say must be found.
first_of() {
  sed -n 's/^\([a-z]*\) \([a-z.0-9-]*\)$/[!x] \1 *\2 */p' "tests/boards/$1.findings" | head -n 1
}

# tools_check_emulated ARCH USR: what another machine's programs say here.
tools_check_emulated() {
  local said
  expect 0 "rocketctl $version" tools_run "$1" "$2/bin/rocketctl" --version
  expect 1 "$(first_of rk3588-stock)" tools_run "$1" "$2/bin/rocketctl" doctor --root tests/boards/rk3588-stock
  expect 0 "rocket-top $version" tools_run "$1" "$2/bin/rocket-top" --version
  expect 2 'usage: rocket-load-test *' tools_run "$1" "$2/lib/rocket/rocket-load-test"
}

# tools_check_in_root ARCH OUT: OUT/deb as a system that has this machine's C library besides and nothing else.
tools_check_in_root() {
  local out=$2 root=$2/root board=$2/board said lib
  lib=usr/lib/$(uname -m)-linux-gnu
  cp -r "$out/deb" "$root"
  mkdir -p "$root/$lib" "$root/usr/lib64" "$root/boards" "$root/proc" "$root/sys" "$root/tmp" "$root/dev"
  ln -s usr/lib "$root/lib"
  cp -P /lib64/ld-linux-*.so.* "$root/usr/lib64" 2>/dev/null || true
  ln -s usr/lib64 "$root/lib64"
  ln -s usr/bin "$root/bin"
  local run=(timeout 120 bwrap --die-with-parent --unshare-all --new-session --ro-bind "$root" / --ro-bind "/$lib" "/$lib"
    --ro-bind tests/boards /boards --ro-bind /sys /sys --proc /proc --dev /dev --tmpfs /tmp
    --clearenv --setenv PATH /usr/bin --chdir /)

  expect 0 "rocketctl $version" "${run[@]}" rocketctl --version
  if [ ! -e /proc/device-tree/compatible ]; then
    expect 1 'x fail    board.family *no board with a Rockchip NPU' "${run[@]}" rocketctl doctor
  fi
  expect 1 "$(first_of rk3588-stock)" "${run[@]}" rocketctl doctor --root /boards/rk3588-stock
  expect 0 'i note    udev.rules *' "${run[@]}" rocketctl udev check --root /boards/laptop
  expect 0 '*' "${run[@]}" rocketctl selftest --sim
  case $said in *$'\nevery test passed'*) ;; *) fail "selftest --sim: $said" ;; esac
  expect 0 'rocket-top *' "${run[@]}" rocket-top --once --root /boards/rk3588-series
  case $said in *core2*) ;; *) fail "rocket-top --once shows no core2" ;; esac
  expect 2 'usage: rocket-load-test *' "${run[@]}" /usr/lib/rocket/rocket-load-test

  # The rules and the folder's line are this program's own, where it looks for them.
  cp -r tests/boards/rk3588-series "$board"
  cp -r "$out/deb/usr" "$board/"
  mkdir -p "$board/run/rocket"
  expect 0 '+ ok      udev.*' "${run[@]}" --ro-bind "$board" /tmp/board rocketctl udev check --root /tmp/board
  case $said in *note* | *warn*) fail "udev check does not take the package's files: $said" ;; esac

  # The patches are found: it comes to the source, which is none.
  mkdir -p "$out/none"
  expect 2 '*rocket driver*' "${run[@]}" --ro-bind "$out/none" /tmp/none rocketctl patch apply --dry-run /tmp/none
  expect 2 '*the patches are not here*' "${run[@]}" --ro-bind "$out/none" /tmp/none --tmpfs /usr/share/rocket-npu \
    rocketctl patch apply --dry-run /tmp/none
  tools_check_scripts "$out" "${run[@]}"
}

# tools_check_scripts OUT RUN...: the maintainer scripts, with and without udev, and with one that fails.
tools_check_scripts() {
  local out=$1 said script
  shift
  cp /bin/dash "$out/root/usr/bin/sh"
  printf '#!/bin/sh\necho "udevadm $*"\nexit 1\n' >"$out/udevadm"
  chmod 755 "$out/udevadm"
  : >"$out/root/usr/bin/udevadm"
  mkdir -p "$out/udev" "$out/root/control" "$out/root/run/udev"
  : >"$out/udev/control"
  for script in postinst postrm; do
    expect 0 '' "$@" --ro-bind "$out/control" /control sh "/control/$script" configure
    expect 0 'udevadm control --reload' "$@" --ro-bind "$out/control" /control \
      --ro-bind "$out/udevadm" /usr/bin/udevadm --ro-bind "$out/udev" /run/udev sh "/control/$script" configure
  done
}
