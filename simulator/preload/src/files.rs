//! Opening and naming files.

use crate::node::{self, decimal};
use crate::path::{self, led};
use crate::real::{real, syscall, syscall_int};
use libc::{FILE, c_char, c_int, c_long, c_uint, size_t, ssize_t};
use rocket_sim_wire::NODE;

/// openat with the path led where it belongs. What the kernel will not open because it is a
/// socket (ENXIO) may be a node.
///
/// # Safety
/// As libc's `openat`.
pub unsafe fn open_at(dir: c_int, at: *const c_char, flags: c_int, mode: c_uint) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        led(at, |at| {
            let [d, f, m] = [dir as c_long, c_long::from(flags), c_long::from(mode)];
            let fd = syscall_int(libc::SYS_openat, [d, at as c_long, f, m, 0, 0]);
            let name = crate::bytes(at);
            let ours = path::names_node(name) || path::names_counters(name);
            if fd < 0 && crate::errno() == libc::ENXIO && ours {
                node::open(dir, at, flags)
            } else {
                fd
            }
        })
    }
}

macro_rules! opens {
    ($($name:ident($($arg:ident: $type:ty),*) = $dir:expr, $at:expr, $flags:expr, $mode:expr;)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $type),*) -> c_int {
            // SAFETY: the caller's contract.
            unsafe { open_at($dir, $at, $flags, $mode) }
        }
    )*};
}

opens! {
    open(at: *const c_char, flags: c_int, mode: c_uint) = libc::AT_FDCWD, at, flags, mode;
    open64(at: *const c_char, flags: c_int, mode: c_uint) = libc::AT_FDCWD, at, flags, mode;
    openat(dir: c_int, at: *const c_char, flags: c_int, mode: c_uint) = dir, at, flags, mode;
    openat64(dir: c_int, at: *const c_char, flags: c_int, mode: c_uint) = dir, at, flags, mode;
    __open_2(at: *const c_char, flags: c_int) = libc::AT_FDCWD, at, flags, 0;
    __open64_2(at: *const c_char, flags: c_int) = libc::AT_FDCWD, at, flags, 0;
    __openat_2(dir: c_int, at: *const c_char, flags: c_int) = dir, at, flags, 0;
    __openat64_2(dir: c_int, at: *const c_char, flags: c_int) = dir, at, flags, 0;
}

/// `fopen`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen(at: *const c_char, mode: *const c_char) -> *mut FILE {
    let Some(f) = real!(fopen: fn(*const c_char, *const c_char) -> *mut FILE) else {
        crate::fail(libc::ENOSYS);
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's contract.
    let file = unsafe { led(at, |at| f(at, mode)) };
    if !file.is_null() || crate::errno() != libc::ENXIO {
        return file;
    }
    // A socket, which may be ours: opened by the way that knows it.
    // SAFETY: the caller's contract; a descriptor that makes no stream is closed again.
    unsafe {
        let text = crate::bytes(mode);
        let reads = text.first() == Some(&b'r') && !text.contains(&b'+');
        let cloexec = if text.contains(&b'e') { libc::O_CLOEXEC } else { 0 };
        let flags = cloexec | if reads { libc::O_RDONLY } else { libc::O_RDWR };
        let fd = open_at(libc::AT_FDCWD, at, flags, 0);
        if fd < 0 {
            return std::ptr::null_mut();
        }
        let file = libc::fdopen(fd, mode);
        if file.is_null() {
            let errno = crate::errno();
            libc::close(fd);
            crate::fail(errno);
        }
        file
    }
}

/// `fopen64`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fopen64(at: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the caller's contract; on 64-bit machines both are one call.
    unsafe { fopen(at, mode) }
}

/// `access`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn access(at: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { faccessat(libc::AT_FDCWD, at, mode, 0) }
}

/// `euidaccess`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn euidaccess(at: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { faccessat(libc::AT_FDCWD, at, mode, libc::AT_EACCESS) }
}

/// `eaccess`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn eaccess(at: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { euidaccess(at, mode) }
}

/// `faccessat`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn faccessat(
    dir: c_int,
    at: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        led(at, |at| {
            let [dir, mode, flags] = [dir, mode, flags].map(c_long::from);
            if flags == 0 {
                return syscall_int(libc::SYS_faccessat, [dir, at as c_long, mode, 0, 0, 0]);
            }
            syscall_int(libc::SYS_faccessat2, [dir, at as c_long, mode, flags, 0, 0])
        })
    }
}

/// Extended attributes by path; `ls` asks for them.
macro_rules! attributes {
    ($($name:ident($($arg:ident: $type:ty),*) = $number:expr, [$($word:expr),*];)*) => {$(
        #[doc = concat!("`", stringify!($name), "`.")]
        ///
        /// # Safety
        /// As libc's.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(at: *const c_char, $($arg: $type),*) -> ssize_t {
            // SAFETY: the caller's contract.
            unsafe { led(at, |at| syscall($number, [at as c_long, $($word),*]) as ssize_t) }
        }
    )*};
}

attributes! {
    getxattr(name: *const c_char, to: *mut c_char, len: size_t) =
        libc::SYS_getxattr, [name as c_long, to as c_long, len as c_long, 0, 0];
    lgetxattr(name: *const c_char, to: *mut c_char, len: size_t) =
        libc::SYS_lgetxattr, [name as c_long, to as c_long, len as c_long, 0, 0];
    listxattr(to: *mut c_char, len: size_t) =
        libc::SYS_listxattr, [to as c_long, len as c_long, 0, 0, 0];
    llistxattr(to: *mut c_char, len: size_t) =
        libc::SYS_llistxattr, [to as c_long, len as c_long, 0, 0, 0];
}

/// `chdir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn chdir(at: *const c_char) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { led(at, |at| syscall_int(libc::SYS_chdir, [at as c_long, 0, 0, 0, 0, 0])) }
}

/// Where a descriptor's link in /proc leads.
pub fn link_of(fd: c_int, to: &mut [u8]) -> Option<&[u8]> {
    let mut name = [0u8; 32];
    let mut digits = [0u8; 10];
    let text = b"/proc/self/fd/".iter().chain(decimal(fd, &mut digits));
    for (to, from) in name.iter_mut().zip(text) {
        *to = *from;
    }
    let args = [
        c_long::from(libc::AT_FDCWD),
        name.as_ptr() as c_long,
        to.as_mut_ptr() as c_long,
        to.len() as c_long,
        0,
        0,
    ];
    // SAFETY: a name with its NUL and a buffer of that length.
    let n = unsafe { syscall(libc::SYS_readlinkat, args) };
    to.get(..usize::try_from(n).ok()?)
}

/// The descriptor that a path like /proc/self/fd/3 names.
fn named_descriptor(path: &[u8]) -> Option<c_int> {
    let rest = path.strip_prefix(b"/proc/")?;
    let rest = rest.strip_prefix(b"self/fd/").or_else(|| rest.strip_prefix(b"thread-self/fd/"));
    let digits = match rest {
        Some(digits) => digits,
        None => {
            // SAFETY: no arguments.
            let pid = unsafe { libc::getpid() };
            let mut buffer = [0u8; 10];
            let rest = path.strip_prefix(b"/proc/")?.strip_prefix(decimal(pid, &mut buffer))?;
            rest.strip_prefix(b"/fd/")?
        }
    };
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// `readlinkat`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlinkat(
    dir: c_int,
    at: *const c_char,
    to: *mut c_char,
    len: size_t,
) -> ssize_t {
    // SAFETY: the caller's contract; what is stored fits into the length the caller gave.
    unsafe {
        let name = crate::bytes(at);
        let read = |to: *mut c_char, len: size_t| {
            led(at, |at| {
                let args = [dir as c_long, at as c_long, to as c_long, len as c_long, 0, 0];
                syscall(libc::SYS_readlinkat, args) as ssize_t
            })
        };
        let got = read(to, len);
        if got < 0 {
            return got;
        }
        // Whole, whatever the caller has room for: its beginning decides what it is.
        let mut whole = [0u8; libc::PATH_MAX as usize];
        let named = named_descriptor(name).filter(|fd| node::is_node(*fd));
        let link = match named {
            Some(_) => NODE.as_bytes(),
            None => {
                let n = usize::try_from(read(whole.as_mut_ptr().cast(), whole.len())).unwrap_or(0);
                match path::strip(&whole[..n]) {
                    Some(link) => link,
                    None => return got,
                }
            }
        };
        let n = link.len().min(len);
        link.as_ptr().copy_to(to.cast(), n);
        n as ssize_t
    }
}

/// `readlink`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readlink(at: *const c_char, to: *mut c_char, len: size_t) -> ssize_t {
    // SAFETY: the caller's contract.
    unsafe { readlinkat(libc::AT_FDCWD, at, to, len) }
}

/// Cuts the root off a path that libc has resolved.
unsafe fn shorten(resolved: *mut c_char) -> *mut c_char {
    // SAFETY: null or a C string in a buffer of its own; the rest of it and its NUL move down.
    unsafe {
        let whole = crate::bytes(resolved);
        if let Some(rest) = path::strip(whole) {
            let rest_at = resolved.add(whole.len() - rest.len());
            rest_at.copy_to(resolved, rest.len() + 1);
        }
        resolved
    }
}

/// `realpath`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn realpath(at: *const c_char, to: *mut c_char) -> *mut c_char {
    let Some(f) = real!(realpath: fn(*const c_char, *mut c_char) -> *mut c_char) else {
        crate::fail(libc::ENOSYS);
        return std::ptr::null_mut();
    };
    // SAFETY: the caller's contract.
    unsafe { shorten(led(at, |at| f(at, to))) }
}

/// `canonicalize_file_name`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn canonicalize_file_name(at: *const c_char) -> *mut c_char {
    // SAFETY: the caller's contract.
    unsafe { realpath(at, std::ptr::null_mut()) }
}
