//! stat and its relatives: the node is a character device, whatever stands for it.

use crate::node::is_node;
use crate::path::{self, led, names_counters, names_node};
use crate::real::syscall_int;
use libc::{c_char, c_int, c_long, c_uint, stat, statx};
use rocket_sim_wire::MAJOR;

/// Which minor: a board has one node.
const MINOR: c_uint = 0;

/// The counters are a file to read.
const COUNTERS_MODE: u32 = libc::S_IFREG | 0o444;

fn is_socket(mode: u32) -> bool {
    mode & libc::S_IFMT == libc::S_IFSOCK
}

/// What a device node says instead. A connected socket has every permission, its node has those
/// of udev's rules.
fn device_mode(mode: u32) -> u32 {
    libc::S_IFCHR | if mode & 0o777 == 0o777 { 0o660 } else { mode & 0o777 }
}

/// Whether what was looked at is a node: by its name, or by descriptor when there is none.
unsafe fn names_a_node(dir: c_int, at: *const c_char) -> bool {
    // SAFETY: the caller passes null or a C string.
    let name = unsafe { crate::bytes(at) };
    if name.is_empty() { is_node(dir) || names_node_by_link(dir) } else { names_node(name) }
}

/// A descriptor opened with O_PATH is no connection; its link has the name.
fn names_node_by_link(fd: c_int) -> bool {
    let mut link = [0u8; libc::PATH_MAX as usize];
    crate::files::link_of(fd, &mut link).is_some_and(|l| path::strip(l).is_some_and(names_node))
}

/// fstatat, by system call: on 64-bit machines the kernel's struct is libc's.
///
/// # Safety
/// As `fstatat`; `at` may be null with AT_EMPTY_PATH.
unsafe fn stat_at(dir: c_int, at: *const c_char, to: *mut stat, flags: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        led(at, |at| {
            let name = if at.is_null() { c"".as_ptr() } else { at };
            let args = [c_long::from(dir), name as c_long, to as c_long, c_long::from(flags), 0, 0];
            let rc = syscall_int(libc::SYS_newfstatat, args);
            if rc == 0 && is_socket((*to).st_mode) && names_counters(crate::bytes(at)) {
                (*to).st_mode = COUNTERS_MODE;
            } else if rc == 0 && is_socket((*to).st_mode) && names_a_node(dir, at) {
                (*to).st_mode = device_mode((*to).st_mode);
                (*to).st_rdev = libc::makedev(MAJOR, MINOR);
                ((*to).st_size, (*to).st_blocks) = (0, 0);
            }
            rc
        })
    }
}

/// Functions that differ in name, in arguments that are ignored (the struct's version in programs
/// built before glibc 2.33), and in flags.
macro_rules! relatives {
    ($($name:ident($($arg:ident: $type:ty),*) = $dir:expr, $at:expr, $flags:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type,)* to: *mut libc::stat) -> c_int {
            // SAFETY: the caller's contract.
            unsafe { super::stat_at($dir, $at, to, $flags) }
        }
    )*};
}

/// In a module of their own: one has the name of its struct.
mod functions {
    use libc::{AT_EMPTY_PATH, AT_FDCWD, AT_SYMLINK_NOFOLLOW, c_char, c_int};

    relatives! {
        stat(at: *const c_char) = AT_FDCWD, at, 0;
        stat64(at: *const c_char) = AT_FDCWD, at, 0;
        lstat(at: *const c_char) = AT_FDCWD, at, AT_SYMLINK_NOFOLLOW;
        lstat64(at: *const c_char) = AT_FDCWD, at, AT_SYMLINK_NOFOLLOW;
        fstat(fd: c_int) = fd, c"".as_ptr(), AT_EMPTY_PATH;
        fstat64(fd: c_int) = fd, c"".as_ptr(), AT_EMPTY_PATH;
        __xstat(_version: c_int, at: *const c_char) = AT_FDCWD, at, 0;
        __xstat64(_version: c_int, at: *const c_char) = AT_FDCWD, at, 0;
        __lxstat(_version: c_int, at: *const c_char) = AT_FDCWD, at, AT_SYMLINK_NOFOLLOW;
        __lxstat64(_version: c_int, at: *const c_char) = AT_FDCWD, at, AT_SYMLINK_NOFOLLOW;
        __fxstat(_version: c_int, fd: c_int) = fd, c"".as_ptr(), AT_EMPTY_PATH;
        __fxstat64(_version: c_int, fd: c_int) = fd, c"".as_ptr(), AT_EMPTY_PATH;
    }
}

/// As [`relatives`], for those whose flags come behind the struct.
macro_rules! relatives_at {
    ($($name:ident($($arg:ident: $type:ty),*);)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            $($arg: $type,)*
            dir: c_int,
            at: *const c_char,
            to: *mut stat,
            flags: c_int,
        ) -> c_int {
            // SAFETY: the caller's contract.
            unsafe { stat_at(dir, at, to, flags) }
        }
    )*};
}

relatives_at! {
    fstatat();
    fstatat64();
    __fxstatat(_version: c_int);
    __fxstatat64(_version: c_int);
}

/// `statx`, which is in a module as its struct has the same name.
mod extended {
    use super::{COUNTERS_MODE, MINOR, device_mode, is_socket, names_a_node};
    use crate::path::{led, names_counters};
    use crate::real::syscall_int;
    use libc::{c_char, c_int, c_long, c_uint};
    use rocket_sim_wire::MAJOR;

    /// `statx`.
    ///
    /// # Safety
    /// As libc's.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn statx(
        dir: c_int,
        at: *const c_char,
        flags: c_int,
        mask: c_uint,
        to: *mut super::statx,
    ) -> c_int {
        // SAFETY: the caller's contract.
        unsafe {
            led(at, |at| {
                let numbers = [dir as c_long, c_long::from(flags), c_long::from(mask)];
                let [dir_arg, flags, mask] = numbers;
                let args = [dir_arg, at as c_long, flags, mask, to as c_long, 0];
                let rc = syscall_int(libc::SYS_statx, args);
                // Rust's std asks with null pointers whether the call exists.
                if rc != 0 || to.is_null() {
                    return rc;
                }
                if is_socket((*to).stx_mode.into()) && names_counters(crate::bytes(at)) {
                    (*to).stx_mode = COUNTERS_MODE as u16;
                } else if is_socket((*to).stx_mode.into()) && names_a_node(dir, at) {
                    (*to).stx_mode = device_mode((*to).stx_mode.into()) as u16;
                    ((*to).stx_rdev_major, (*to).stx_rdev_minor) = (MAJOR, MINOR);
                    ((*to).stx_size, (*to).stx_blocks) = (0, 0);
                }
                rc
            })
        }
    }
}
