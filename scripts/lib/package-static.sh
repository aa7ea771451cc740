# shellcheck shell=bash
# rocketctl alone, without a C library: for systems that have another one, or an older one. Needs package.sh and
# package-tools-check.sh. It loads nothing, so load-test needs the program of rocket-npu-tools, which it says.
# shellcheck disable=SC2034,SC2154  # set or read by those who source this

# static_triple ARCH
static_triple() {
  case $1 in amd64) printf 'x86_64-unknown-linux-musl\n' ;; arm64) printf 'aarch64-unknown-linux-musl\n' ;; esac
}

# static_build ARCH
static_build() {
  local triple
  triple=$(static_triple "$1")
  if [ ! -d "$(rustc --print sysroot)/lib/rustlib/$triple" ]; then
    if ! have rustup || ! timeout 300 rustup target add "$triple" >&2; then
      fail "this Rust has no standard library for $triple, which comes with rustup: rustup target add $triple"
    fi
  fi
  if [ "$1-$(uname -m)" = arm64-x86_64 ]; then
    need_packages gcc-aarch64-linux-gnu
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc
  fi
  # Stripped in any case.
  CARGO_PROFILE_RELEASE_DEBUG=false cargo build --release --locked --target "$triple" -p rocketctl >&2
}

# static_tar ARCH FILE
static_tar() {
  local name=rocketctl-$version-$1-static tree=$work/static-$1
  rm -rf "$tree"
  mkdir -p "$tree/$name"
  "$(strip_of "$1")" -o "$tree/$name/rocketctl" "$target/$(static_triple "$1")/release/rocketctl"
  install -m 644 LICENSE-MIT LICENSE-APACHE docs/rocketctl.md docs/doctor.md "$tree/$name"
  static_copyright "$1" >"$tree/$name/copyright"
  chmod 755 "$tree/$name/rocketctl"
  chmod 644 "$tree/$name/copyright"
  pack_tar "$tree" "$name" "$2"
}

static_copyright() {
  python3 scripts/lib/copyright.py "$1" rocketctl
  cat <<COPYRIGHT

------------------------------------------------------------------------------
Linked in as well, by way of the Rust standard library: musl, copyright 2005-2020
Rich Felker and others, under the MIT licence in the words above; and LLVM's
libunwind, Apache License 2.0 with LLVM Exceptions.
COPYRIGHT
}

# static ARCH: makes and checks its package, or checks the one that is there.
static() {
  local arch=$1 tar=$dist/rocketctl-$version-$1-static.tar.gz round out=$work/static-check-$1 said
  [ -z "$build" ] || static_build "$arch"
  if [ -n "$pack" ]; then
    for round in "$work/first" "$dist"; do
      mkdir -p "$round"
      static_tar "$arch" "$round/${tar##*/}"
    done
    same_twice "$tar"
  fi
  mkdir -p "$out/root/boards" "$out/root/dev" "$out/root/proc" "$out/root/tmp"
  tar -C "$out/root" --strip-components=1 -xf "$tar"
  elf_machine "$out/root/rocketctl" "$arch"
  no_paths "$out/root/rocketctl"
  ! readelf -Wld "$out/root/rocketctl" | grep -qE 'NEEDED|INTERP' || fail "$tar: rocketctl is not static"
  # In a root that has nothing else; another machine's needs its emulator.
  local run=("$out/root/rocketctl") boards=tests/boards
  case $arch-$(uname -m) in
    arm64-x86_64) need_packages qemu-user-static ;;
    *)
      run=(bwrap --die-with-parent --unshare-all --ro-bind "$out/root" / --ro-bind tests/boards /boards --proc /proc
        --dev /dev --tmpfs /tmp --clearenv --chdir / /rocketctl)
      boards=/boards
      ;;
  esac
  expect 0 "rocketctl $version" tools_run "$arch" "${run[@]}" --version
  expect 1 "$(first_of rk3588-stock)" tools_run "$arch" "${run[@]}" doctor --root "$boards/rk3588-stock"
  expect 0 '*' tools_run "$arch" "${run[@]}" selftest --sim
  expect 2 '*rocket-load-test is not installed*' tools_run "$arch" "${run[@]}" load-test --host / /rocketctl
  tell "$tar"
}
