//! Folders: the node among its entries is a character device.

use crate::path::{led, names_counters, names_node, strip};
use crate::real::real;
use libc::{DIR, c_char, c_int, c_void, dirent};
use std::ptr::null_mut;

/// `opendir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn opendir(at: *const c_char) -> *mut DIR {
    let Some(f) = real!(opendir: fn(*const c_char) -> *mut DIR) else {
        crate::fail(libc::ENOSYS);
        return null_mut();
    };
    // SAFETY: the caller's contract.
    unsafe { led(at, |at| f(at)) }
}

/// An entry that is a socket with a name of ours is what that name says.
unsafe fn device(entry: *mut dirent) -> *mut dirent {
    // SAFETY: null or an entry that libc has just filled.
    unsafe {
        if !entry.is_null() && (*entry).d_type == libc::DT_SOCK {
            let name = crate::bytes((&raw const (*entry).d_name).cast());
            if names_node(name) {
                (*entry).d_type = libc::DT_CHR;
            } else if names_counters(name) {
                (*entry).d_type = libc::DT_REG;
            }
        }
        entry
    }
}

/// `readdir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir(dir: *mut DIR) -> *mut dirent {
    let Some(f) = real!(readdir: fn(*mut DIR) -> *mut dirent) else { return null_mut() };
    // SAFETY: the caller's contract.
    unsafe { device(f(dir)) }
}

/// `readdir64`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn readdir64(dir: *mut DIR) -> *mut dirent {
    // SAFETY: the caller's contract; on 64-bit machines both are one call.
    unsafe { readdir(dir) }
}

type Filter = unsafe extern "C" fn(*const dirent) -> c_int;
type Compare = unsafe extern "C" fn(*mut *const dirent, *mut *const dirent) -> c_int;

/// `scandir`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir(
    at: *const c_char,
    list: *mut *mut *mut dirent,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    let Some(f) = real!(scandir: fn(
        *const c_char, *mut *mut *mut dirent, Option<Filter>, Option<Compare>
    ) -> c_int) else {
        return crate::fail(libc::ENOSYS);
    };
    // SAFETY: the caller's contract; libc filled as many entries as it says.
    unsafe {
        let n = led(at, |at| f(at, list, filter, compare));
        for i in 0..usize::try_from(n).unwrap_or(0) {
            device(*(*list).add(i));
        }
        n
    }
}

/// `scandir64`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn scandir64(
    at: *const c_char,
    list: *mut *mut *mut dirent,
    filter: Option<Filter>,
    compare: Option<Compare>,
) -> c_int {
    // SAFETY: the caller's contract; on 64-bit machines both are one call.
    unsafe { scandir(at, list, filter, compare) }
}

/// The head of glibc's `glob_t`, which is all that is needed here.
#[repr(C)]
#[derive(Debug)]
pub struct Globbed {
    count: usize,
    paths: *mut *mut c_char,
    offset: usize,
}

/// `glob`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn glob(
    pattern: *const c_char,
    flags: c_int,
    failed: *mut c_void,
    to: *mut Globbed,
) -> c_int {
    let Some(f) = real!(glob: fn(*const c_char, c_int, *mut c_void, *mut Globbed) -> c_int) else {
        return libc::GLOB_ABORTED;
    };
    // SAFETY: the caller's contract; libc filled as many paths as it says, each a C string of its
    // own, which is only shortened.
    unsafe {
        let rc = led(pattern, |pattern| f(pattern, flags, failed, to));
        if rc == 0 {
            let skipped = if flags & libc::GLOB_DOOFFS != 0 { (*to).offset } else { 0 };
            for i in 0..(*to).count {
                let path = *(*to).paths.add(skipped + i);
                let whole = crate::bytes(path);
                if let Some(rest) = strip(whole) {
                    path.add(whole.len() - rest.len()).copy_to(path, rest.len() + 1);
                }
            }
        }
        rc
    }
}

/// `glob64`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn glob64(
    pattern: *const c_char,
    flags: c_int,
    failed: *mut c_void,
    to: *mut Globbed,
) -> c_int {
    // SAFETY: the caller's contract; on 64-bit machines both are one call.
    unsafe { glob(pattern, flags, failed, to) }
}
