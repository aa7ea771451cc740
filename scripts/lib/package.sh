# shellcheck shell=bash
# What the packages have in common: their form, and what is asked of the programs in them. Needs common.sh, and of
# its caller: version, target, crates, work, SOURCE_DATE_EPOCH.
# shellcheck disable=SC2154  # set by those who source this

# The oldest C library that anything in them is meant to start on, as the README says.
GLIBC_CEILING=2.34

# strip_of ARCH: a strip for it.
strip_of() {
  case $1-$(uname -m) in
    arm64-x86_64) printf 'aarch64-linux-gnu-strip\n' ;;
    *) printf 'strip\n' ;;
  esac
}

# elf_machine FILE ARCH
elf_machine() {
  local machine
  case $2 in amd64) machine=X86-64 ;; arm64) machine=AArch64 ;; esac
  readelf -Wh "$1" | grep -q "Machine:.*$machine" || fail "$1 is not for $2"
}

# glibc_floor FILE ARCH: the C library it asks for; refuses one that must not be shipped.
glibc_floor() {
  local file=$1 lib floor
  elf_machine "$file" "$2"
  for lib in $(readelf -Wd "$file" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p'); do
    case $lib in
      libc.so.6 | libm.so.6 | libgcc_s.so.1 | ld-linux-*.so.*) ;;
      *) fail "$file needs $lib; it may need libc, libm and libgcc_s alone" ;;
    esac
  done
  floor=$(readelf -WV "$file" | grep -oE 'GLIBC_[0-9]+(\.[0-9]+)+' | sed 's/GLIBC_//' | sort -Vu | tail -n 1)
  [ -n "$floor" ] || fail "$file names no version of the C library"
  [ "$(printf '%s\n' "$floor" "$GLIBC_CEILING" | sort -V | tail -n 1)" = "$GLIBC_CEILING" ] ||
    fail "$file needs glibc $floor; the README promises $GLIBC_CEILING"
  no_paths "$file"
  printf '%s\n' "$floor"
}

# no_paths FILE: it would be another file in another folder.
no_paths() {
  ! grep -qF -e "$REPO/" -e "$crates/" -e "$target/" "$1" || fail "$1 holds paths of this machine"
}

# fixed_dates DIR
fixed_dates() { find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +; }

hash_of() { sha256sum "$1" | cut -d' ' -f1; }

# pack_deb TREE FILE: TREE has usr and DEBIAN/control, of which the size is still to be filled in.
pack_deb() {
  local tree=$1
  (cd "$tree" && find usr -type f | sort | xargs md5sum) >"$tree/DEBIAN/md5sums"
  sed -i "s/@SIZE@/$(du -sk --apparent-size "$tree/usr" | cut -f1)/" "$tree/DEBIAN/control"
  chmod 644 "$tree/DEBIAN/control" "$tree/DEBIAN/md5sums"
  fixed_dates "$tree"
  dpkg-deb -Zxz --root-owner-group --build "$tree" "$2" >/dev/null
}

# pack_tar TREE NAME FILE: of TREE/NAME.
pack_tar() {
  fixed_dates "$1"
  tar -C "$1" --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --format=gnu -cf - "$2" | gzip -9n >"$3"
}

# maintainer: as DEBFULLNAME and DEBEMAIL say.
maintainer() {
  printf '%s <%s>\n' "${DEBFULLNAME:-The authors of the Rockchip NPU suite}" "${DEBEMAIL:-unset@example.invalid}"
}

# check_deb DEB ARCH FLOOR OUT MODES FOLDER...: the basics that lintian would complain of. DEB is unpacked in OUT/deb,
# its control files in OUT/control. MODES are those of files; they lie in these folders alone.
check_deb() {
  local deb=$1 arch=$2 floor=$3 out=$4 modes=$5 field line path folder within
  shift 5
  for field in Package Version Architecture Maintainer Description Depends; do
    [ -n "$(dpkg-deb -f "$deb" "$field")" ] || fail "$deb has no field $field"
  done
  [ "$(dpkg-deb -f "$deb" Architecture)" = "$arch" ] || fail "$deb is not for $arch"
  dpkg-deb -f "$deb" Depends | grep -qF "libc6 (>= $floor)" || fail "$deb does not ask for glibc $floor"
  dpkg-deb -I "$deb" control | grep -q '[[:space:]]$' && fail "$deb: white space at the end of a line of control"
  [ "$(dpkg-deb -f "$deb" Description | head -n 1 | wc -c)" -le 80 ] || fail "$deb: its synopsis is too long"
  dpkg-deb -e "$deb" "$out/control"
  (cd "$out/deb" && md5sum --quiet -c "$out/control/md5sums") || fail "$deb: md5sums"
  [ "$(wc -l <"$out/control/md5sums")" = "$(find "$out/deb" -type f | wc -l)" ] || fail "$deb: md5sums leaves files out"
  while read -r line; do
    within=''
    for field in drwxr-xr-x $modes; do
      case $line in "$field root/root "*) within=1 ;; esac
    done
    [ -n "$within" ] || fail "$deb: owner or mode of: $line"
    path=${line##* .}
    within=''
    for folder; do
      # Below it, or above.
      case $path in "/$folder/"*) within=1 ;; esac
      case /$folder/ in "$path"*) within=1 ;; esac
    done
    [ -n "$within" ] || fail "$deb: outside of its folders: $line"
  done < <(dpkg-deb -c "$deb")
}
