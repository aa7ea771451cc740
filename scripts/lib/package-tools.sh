# shellcheck shell=bash
# The package rocket-npu-tools: rocketctl, rocket-top and what goes with them. Needs package.sh.
# shellcheck disable=SC2034,SC2154  # set or read by those who source this

TOOLS='rocketctl rocket-top'
TOOLS_DOCS='counters detect doctor forecast knobs load-test overlay report rocket-top rocketctl routing services setup
  simulator using'
# Where its files may be.
TOOLS_FOLDERS='usr/bin usr/lib/rocket usr/lib/udev/rules.d usr/lib/tmpfiles.d usr/share/rocket-npu/kernel-patches
  usr/share/doc/rocket-npu-tools usr/share/man/man1 usr/share/bash-completion/completions
  usr/share/zsh/vendor-completions usr/share/fish/vendor_completions.d'

# tools_run ARCH PROGRAM ARGUMENT...: a program for ARCH, under qemu where this machine is of another.
tools_run() {
  local arch=$1
  shift
  case $arch-$(uname -m) in
    arm64-x86_64) timeout 120 qemu-aarch64-static -cpu cortex-a76 -L /usr/aarch64-linux-gnu "$@" ;;
    *) timeout 120 "$@" ;;
  esac
}

# tools_tree ARCH USR: the files of both packages, as they lie below a prefix.
tools_tree() {
  local arch=$1 usr=$2 doc=$2/share/doc/rocket-npu-tools name file
  mkdir -p "$usr/bin" "$usr/lib/rocket" "$usr/lib/udev/rules.d" "$usr/lib/tmpfiles.d" "$doc" "$usr/share/man/man1"
  for name in $TOOLS; do
    "$(strip_of "$arch")" -o "$usr/bin/$name" "$(built "$arch" "$name")"
  done
  "$(strip_of "$arch")" -o "$usr/lib/rocket/rocket-load-test" "$(built "$arch" rocket-load-test)"
  chmod 755 "$usr"/bin/* "$usr/lib/rocket/rocket-load-test"
  install -m 644 udev/*.rules "$usr/lib/udev/rules.d"
  install -m 644 udev/*.conf "$usr/lib/tmpfiles.d"
  # What git has, not what else lies there.
  while read -r file; do
    install -D -m 644 "$file" "$usr/share/rocket-npu/$file"
  done < <(git ls-files kernel-patches)
  tools_run "$arch" "$usr/bin/rocketctl" man "$usr/share/man/man1" >/dev/null
  tools_run "$arch" "$usr/bin/rocket-top" --generate man >"$usr/share/man/man1/rocket-top.1"
  gzip -9n "$usr"/share/man/man1/*.1
  tools_completions "$arch" "$usr" bash share/bash-completion/completions '' ''
  tools_completions "$arch" "$usr" zsh share/zsh/vendor-completions _ ''
  tools_completions "$arch" "$usr" fish share/fish/vendor_completions.d '' .fish
  for name in $TOOLS_DOCS; do
    install -m 644 "docs/$name.md" "$doc"
  done
  gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
  tools_copyright "$arch" >"$doc/copyright"
  find "$usr/share" -type f -exec chmod 644 {} +
}

# tools_completions ARCH USR SHELL FOLDER BEFORE AFTER: BEFORE and AFTER go round a program's name.
tools_completions() {
  local usr=$2 dir=$2/$4
  mkdir -p "$dir"
  tools_run "$1" "$usr/bin/rocketctl" completions "$3" >"$dir/$5rocketctl$6"
  tools_run "$1" "$usr/bin/rocket-top" --generate "$3" >"$dir/$5rocket-top$6"
}

tools_copyright() {
  python3 scripts/lib/copyright.py "$1" rocketctl rocket-top rocket-load-test
  cat <<COPYRIGHT

------------------------------------------------------------------------------
/usr/share/rocket-npu/kernel-patches: patches for the kernel's driver rocket and
what builds them. GPL-2.0-only, as that driver is; the text is in
/usr/share/common-licenses/GPL-2 and in the file LICENSE of that folder. No
program is linked with them: rocketctl hands them to the kernel's own build.
COPYRIGHT
}

# tools_deb ARCH FLOOR USR FILE
tools_deb() {
  local tree=$work/tools-deb-$1
  rm -rf "$tree"
  mkdir -p "$tree/DEBIAN"
  cp -r "$3" "$tree/usr"
  cat >"$tree/DEBIAN/control" <<CONTROL
Package: rocket-npu-tools
Version: $version
Architecture: $1
Maintainer: $(maintainer)
Installed-Size: @SIZE@
Depends: libc6 (>= $2), libgcc-s1
Recommends: udev
Suggests: ggml-rocket, rocket-npu-dkms, bubblewrap
Section: utils
Priority: optional
Description: tools for Rockchip NPUs on mainline Linux
 rocketctl finds out why the NPU of an RK3588 or RK3576 board does not work or
 is slow, says what mends it and does that on request; rocket-top shows what
 the NPU does and which work is not on it, and why.
 .
 With rules for udev that give the NPU's node to the group render, the folder
 for live counters, and the patches for the kernel's driver that rocketctl
 patch builds.
CONTROL
  # Neither may fail an installation: in an image or a container nobody reads rules, and nothing is lost by that.
  cat >"$tree/DEBIAN/postinst" <<'POSTINST'
#!/bin/sh
[ "$1" = configure ] || exit 0
if [ -d /run/systemd/system ] && command -v systemd-tmpfiles >/dev/null; then
  systemd-tmpfiles --create rocket-npu.conf || true
fi
if [ -e /run/udev/control ] && command -v udevadm >/dev/null; then
  udevadm control --reload || true
  udevadm trigger --subsystem-match=accel || true
  udevadm trigger --action=bind --subsystem-match=platform --property-match=DRIVER=rocket || true
fi
exit 0
POSTINST
  cat >"$tree/DEBIAN/postrm" <<'POSTRM'
#!/bin/sh
if [ -e /run/udev/control ] && command -v udevadm >/dev/null; then
  udevadm control --reload || true
fi
exit 0
POSTRM
  chmod 755 "$tree/DEBIAN/postinst" "$tree/DEBIAN/postrm"
  pack_deb "$tree" "$4"
}

# tools_tar ARCH USR FILE
tools_tar() {
  local name=rocket-npu-tools-$version-$1 tree=$work/tools-tar-$1
  rm -rf "$tree"
  mkdir -p "$tree"
  cp -r "$2" "$tree/$name"
  install -m 644 LICENSE-MIT LICENSE-APACHE "$tree/$name"
  pack_tar "$tree" "$name" "$3"
}

# tools ARCH: makes and checks its packages, or checks those that are there.
tools() {
  local arch=$1 usr=$work/tools-$1 deb tar floor='' round
  deb=$dist/rocket-npu-tools_${version}_$arch.deb tar=$dist/rocket-npu-tools-$version-$arch.tar.gz
  [ "$arch-$(uname -m)" != arm64-x86_64 ] || need_packages qemu-user-static
  if [ -n "$pack" ]; then
    for round in "$work/first" "$dist"; do
      rm -rf "$usr"
      mkdir -p "$round"
      tools_tree "$arch" "$usr"
      floor=$(tools_floor "$arch" "$usr")
      tools_deb "$arch" "$floor" "$usr" "$round/${deb##*/}"
      tools_tar "$arch" "$usr" "$round/${tar##*/}"
    done
    same_twice "$deb" "$tar"
  fi
  if [ ! -e "$deb" ] || [ ! -e "$tar" ]; then
    fail "no $deb with its .tar.gz; run scripts/package $arch tools"
  fi
  tools_check "$arch" "$deb" "$tar"
  tell "$deb" "$tar"
}

# tools_floor ARCH USR: the C library that the newest of the three programs asks for.
tools_floor() {
  local file floor floors=''
  for file in "$2"/bin/* "$2"/lib/rocket/*; do
    floor=$(glibc_floor "$file" "$1") || exit 1
    floors="$floors $floor"
  done
  # shellcheck disable=SC2086  # a list of words
  printf '%s\n' $floors | sort -Vu | tail -n 1
}
