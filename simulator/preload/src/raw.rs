//! `syscall`: programs that number their calls themselves but still ask libc for them.

use crate::real;
use libc::{c_char, c_int, c_long, c_uint, c_ulong, size_t};

/// `syscall`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn syscall(
    number: c_long,
    a: c_long,
    b: c_long,
    c: c_long,
    d: c_long,
    e: c_long,
    f: c_long,
) -> c_long {
    // SAFETY: the caller's contract; each case takes its arguments as the system call does.
    unsafe {
        match number {
            libc::SYS_openat => {
                crate::files::open_at(a as c_int, b as *const c_char, c as c_int, d as c_uint)
                    .into()
            }
            libc::SYS_ioctl => crate::device::ioctl(a as c_int, b as c_ulong, c as *mut _).into(),
            libc::SYS_mmap => {
                let (len, prot, flags) = (b as size_t, c as c_int, d as c_int);
                crate::device::mmap(a as *mut _, len, prot, flags, e as c_int, f) as c_long
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_open => {
                crate::files::open_at(libc::AT_FDCWD, a as *const c_char, b as c_int, c as c_uint)
                    .into()
            }
            _ => real::syscall(number, [a, b, c, d, e, f]),
        }
    }
}
