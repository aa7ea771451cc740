//! libc's own functions, behind the ones defined here.

use libc::{c_int, c_long, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// A function of the next library in line, looked up on first use.
pub struct Real {
    name: &'static CStr,
    at: AtomicPtr<c_void>,
}

impl Real {
    pub const fn new(name: &'static CStr) -> Real {
        Real { name, at: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// Its address; null when libc does not have it.
    pub fn address(&self) -> *mut c_void {
        let known = self.at.load(Relaxed);
        if !known.is_null() {
            return known;
        }
        // SAFETY: a C string; dlsym has no other precondition.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        self.at.store(found, Relaxed);
        found
    }
}

/// `real!(name: fn(types) -> type)`: libc's function of that name as an `Option` of that type.
macro_rules! real {
    ($name:ident: fn($($arg:ty),*) -> $ret:ty) => {{
        static REAL: $crate::real::Real = $crate::real::Real::new(
            // A name with its NUL is a C string.
            match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => panic!("a name has no NUL"),
            },
        );
        // SAFETY: libc's function of that name has this signature, and a null address is None.
        unsafe {
            std::mem::transmute::<
                *mut libc::c_void,
                Option<unsafe extern "C" fn($($arg),*) -> $ret>,
            >(REAL.address())
        }
    }};
}
pub(crate) use real;

type Syscall = unsafe extern "C" fn(c_long, ...) -> c_long;

/// A system call through libc's `syscall`, which sets errno.
///
/// # Safety
/// As the system call.
pub unsafe fn syscall(number: c_long, args: [c_long; 6]) -> c_long {
    static REAL: Real = Real::new(c"syscall");
    let address = REAL.address();
    if address.is_null() {
        return c_long::from(crate::fail(libc::ENOSYS));
    }
    // SAFETY: libc's `syscall` has this signature.
    let f = unsafe { std::mem::transmute::<*mut c_void, Syscall>(address) };
    let [a, b, c, d, e, g] = args;
    // SAFETY: the caller's contract; surplus arguments are ignored.
    unsafe { f(number, a, b, c, d, e, g) }
}

/// A system call that returns an int.
///
/// # Safety
/// As the system call.
pub unsafe fn syscall_int(number: c_long, args: [c_long; 6]) -> c_int {
    // SAFETY: the caller's contract.
    unsafe { syscall(number, args) as c_int }
}
