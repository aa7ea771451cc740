//! `librocket_sim_preload.so`: an unmodified program that opens the accel node through libc meets
//! a simulated board.
//!
//! The library stands between a program and libc for the calls by which a program can reach the
//! node: opening and naming files, ioctl, mmap. Paths that belong to a board
//! ([`rocket_sim_wire::OWNED`]) lead below the folder that `ROCKET_SIM_ROOT` names; there the node
//! is a socket. An open node *is* a connected socket, so closing, duplicating, passing on and
//! inheriting it need no help. Everything else goes to libc untouched, and the library keeps no
//! state that a fork or a signal could tear.
//!
//! Functions with a variable argument list are declared here with the arguments that they may
//! have: on x86-64 and aarch64 Linux both are passed in the same registers.

#![allow(unsafe_code)] // one of the design's borders: libc interposition

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("the preload library knows the calling conventions of x86-64 and aarch64 only");

mod call;
mod device;
mod dirs;
mod exec;
mod files;
mod node;
mod path;
mod raw;
mod real;
mod stat;

use libc::{c_char, c_int};

/// Sets errno and returns -1.
fn fail(errno: c_int) -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() = errno };
    -1
}

/// This thread's errno.
fn errno() -> c_int {
    // SAFETY: errno is this thread's own.
    unsafe { *libc::__errno_location() }
}

/// The bytes of a C string.
///
/// # Safety
/// `s` must be null or a C string that outlives the use of the result.
unsafe fn bytes<'a>(s: *const c_char) -> &'a [u8] {
    if s.is_null() {
        return &[];
    }
    // SAFETY: not null, so a C string by the caller's contract.
    unsafe { std::ffi::CStr::from_ptr(s) }.to_bytes()
}

/// Tells the board that a process is there; whether anybody listens does not matter.
extern "C" fn attach() {
    node::attach();
}

#[used]
#[unsafe(link_section = ".init_array")]
static ATTACH: extern "C" fn() = attach;
