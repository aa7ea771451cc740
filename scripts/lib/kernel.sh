# shellcheck shell=bash
# Kernel sources, and the rocket driver built out of them. Needs common.sh and packages.sh.

KERNEL_PATCHES=$REPO/kernel-patches
KERNEL=$CACHE/kernel

kernel_packages() {
  need_packages gcc-aarch64-linux-gnu libc6-dev-arm64-cross gcc libc6-dev make bc flex bison libelf-dev \
    libssl-dev kmod cpio xz-utils patch perl curl ca-certificates rsync
}

# kernel_bases: lines of kernel-patches/bases.
kernel_bases() { grep -v '^#' "$KERNEL_PATCHES/bases"; }

# What a module needs of a tree: headers, scripts, every Kconfig and Makefile. The rest of 1.8 GB goes.
kernel_prune() {
  local tree=$1
  (
    cd "$tree" || exit
    find Documentation sound samples -type f -not -name 'Kconfig*' -not -name Makefile -delete
    rm -rf tools/testing tools/perf
    find drivers sound fs net -name '*.c' -not -path 'drivers/accel/rocket/*' -delete
    find drivers/gpu/drm/amd drivers/net -name '*.h' -delete
    find arch -mindepth 1 -maxdepth 1 -type d -not -name arm64 -not -name x86 -not -name arm \
      -exec find {} -name '*.[chS]' -delete ';'
  )
}

kernel_unpack() {
  local tree=$1
  rm -rf "$tree.new"
  mkdir -p "$tree.new"
  # Callers ask for the status, so that nothing here ends the script by itself.
  tar -xJ -C "$tree.new" --strip-components=1 || return 1
  kernel_prune "$tree.new" || return 1
  # The driver as it came, for every run to start from.
  mkdir -p "$tree.new/.rocket"
  (cd "$tree.new" && cp -r --parents drivers/accel/rocket include/uapi/drm/rocket_accel.h .rocket/) || return 1
  rm -rf "$tree"
  mv "$tree.new" "$tree"
}

kernel_fetch_deb() {
  local name=$1 tree=$2 conf dir=$KERNEL/apt mirror
  mirror=$(debian_mirror)
  conf=$(own_apt "$dir" 'amd64 arm64' "$mirror trixie-backports main")
  APT_CONFIG=$conf quietly "$CACHE/tmp/kernel-apt.log" "apt-get update" apt-get update || return 1
  rm -f "$dir/$name"_*.deb
  (cd "$dir" && APT_CONFIG=$conf quietly "$CACHE/tmp/kernel-apt.log" "$name" apt-get download "$name") || return 1
  note "unpacking $(cd "$dir" && ls "$name"_*.deb)"
  dpkg-deb --fsys-tarfile "$dir/$name"_*.deb | tar -xO --wildcards './usr/src/*.tar.xz' |
    kernel_unpack "$tree" || return 1
  rm -f "$dir/$name"_*.deb
}

kernel_fetch_orig() {
  local version=$1 sum=$2 tree=$3 file=$CACHE/tmp/linux_$1.orig.tar.xz
  curl -fsS --retry 2 -m 300 -o "$file" "$(debian_mirror)pool/main/l/linux/linux_$version.orig.tar.xz" || return 1
  printf '%s  %s\n' "$sum" "$file" | sha256sum -c --quiet - >&2 || return 1
  note "unpacking linux $version"
  kernel_unpack "$tree" <"$file" || return 1
  rm -f "$file"
}

# kernel_tree VERSION HOW WHERE: the source of a base; leaves its folder in TREE and its version in VERSION.
kernel_tree() {
  local base=$1 how=$2 where=$3
  TREE=$KERNEL/source-$base
  if [ ! -e "$TREE/.stamp" ]; then
    mkdir -p "$KERNEL"
    say "source of linux $base (160 MB)"
    case $how in
      deb) kernel_fetch_deb "$where" "$TREE" || return 1 ;;
      orig) kernel_fetch_orig "$base" "$where" "$TREE" || return 1 ;;
    esac
    : >"$TREE/.stamp"
  fi
  # shellcheck disable=SC2034  # for those who call
  VERSION=$(make -s -C "$TREE" kernelversion)
}

# kernel_make ARCH ARGUMENT...: make in TREE for an architecture, with its own folder of outputs.
kernel_make() {
  local arch=$1 cross=''
  shift
  [ "$arch" != arm64 ] || cross=aarch64-linux-gnu-
  make -s -C "$TREE" ARCH="$arch" CROSS_COMPILE="$cross" O="$TREE.$arch" "$@"
}

# kernel_prepare ARCH: TREE made ready for modules of that architecture.
kernel_prepare() {
  local arch=$1 out=$TREE.$1 log=$CACHE/tmp/kernel-prepare-$1.log
  [ ! -e "$out/.stamp" ] || return 0
  rm -rf "$out"
  mkdir -p "$out"
  {
    kernel_make "$arch" defconfig
    if [ "$arch" = x86_64 ]; then
      "$TREE/scripts/config" --file "$out/.config" -e COMPILE_TEST -m DRM
    fi
    "$TREE/scripts/config" --file "$out/.config" -e DRM_ACCEL -m DRM_ACCEL_ROCKET
    kernel_make "$arch" olddefconfig
  } >"$log" 2>&1 || { tail -n 20 "$log" >&2; return 1; }
  grep -q '^CONFIG_DRM_ACCEL_ROCKET=m' "$out/.config" || { note "the driver cannot be chosen for $arch"; return 1; }
  quietly "$log" "preparing $arch" kernel_make "$arch" -j"$(nproc)" modules_prepare || return 1
  : >"$out/.stamp"
}

# kernel_build ARCH DIR: the driver of DIR as a module in TREE, with all warnings; prints them.
kernel_build() {
  local arch=$1 dir=$2 log=$CACHE/tmp/kernel-build.log
  mkdir -p "$TREE.$arch/rocket"
  # Times are kept, so that only what differs is compiled.
  rsync -rt --checksum --delete "$dir/drivers/accel/rocket/" "$TREE/drivers/accel/rocket/" || return 1
  rsync -rt --checksum "$dir/include/uapi/drm/rocket_accel.h" "$TREE/include/uapi/drm/rocket_accel.h" || return 1
  # Symbols of the kernel are not there: it was not built.
  if ! kernel_make "$arch" -j"$(nproc)" M=drivers/accel/rocket MO="$TREE.$arch/rocket" W=1 \
    CONFIG_DRM_ACCEL_ROCKET=m KBUILD_MODPOST_WARN=1 modules >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    return 1
  fi
  [ -s "$TREE.$arch/rocket/rocket.ko" ] || return 1
  grep -E ': (warning|error):' "$log" || true
}

# kernel_patch DIR FILE: applies a patch without fuzz.
kernel_patch() {
  patch -d "$1" -p1 -s -F0 --no-backup-if-mismatch <"$2" >&2
}

# kernel_variant DIR LINE: what mainline changed since the driver of that line of kernels, of which one release may
# need other words than the next.
kernel_variant() {
  local file
  for file in "$KERNEL_PATCHES/variants/$2"[.-]*patch; do
    patch -d "$1" -p1 -s -F0 --dry-run <"$file" >/dev/null 2>&1 || continue
    kernel_patch "$1" "$file"
    return
  done
  return 1
}
