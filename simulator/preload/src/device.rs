//! ioctl and mmap.

use crate::call::{self, Returned};
use crate::node::is_node;
use crate::real::{syscall, syscall_int};
use libc::{c_int, c_long, c_ulong, c_void, off64_t, size_t};
use rocket_sim_wire::{CALL_IOCTL, CALL_MMAP, Call};

/// Offsets below this are no buffer's (kernel-and-uapi A.3).
const FIRST_OFFSET: off64_t = 1 << 32;

/// PRIME_HANDLE_TO_FD and PRIME_FD_TO_HANDLE: their argument is handle, flags, descriptor.
const HANDLE_TO_FD: u32 = 0x2d;
const FD_TO_HANDLE: u32 = 0x2e;

/// `ioctl`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    let number = request as u32;
    let drm = number >> 8 & 0xff == u32::from(b'd');
    if !drm || !is_node(fd) {
        let args = [c_long::from(fd), request as c_long, arg as c_long, 0, 0, 0];
        // SAFETY: the caller's contract.
        return unsafe { syscall_int(libc::SYS_ioctl, args) };
    }
    match drm_ioctl(fd, number, arg as u64) {
        Ok(value) => value,
        Err(e) => crate::fail(e),
    }
}

fn drm_ioctl(fd: c_int, number: u32, arg: u64) -> Result<c_int, c_int> {
    const COPIES_IN: u32 = 1 << 30;
    let size = (number >> 16 & 0x3fff) as usize;
    let inline = if number & COPIES_IN != 0 { size } else { 0 };
    let (mut passed, mut cloexec) = (-1, true);
    if matches!(number & 0xff, HANDLE_TO_FD | FD_TO_HANDLE) && size >= 12 {
        let [_, flags, file]: [c_int; 3] = bytemuck::cast(call::peek::<12>(arg)?);
        cloexec = flags & libc::O_CLOEXEC != 0;
        if number & 0xff == FD_TO_HANDLE {
            passed = file;
        }
    }
    let call = Call { kind: CALL_IOCTL, number, arg, len: 0, passes_file: 0, reserved: 0 };
    let Returned { value, fd } = match call::make(fd, call, inline, passed, cloexec) {
        // The descriptor that was to go along is none.
        Err(libc::EBADF) if passed >= 0 => return Err(libc::EBADF),
        other => other?,
    };
    if fd >= 0 {
        // SAFETY: the board has just stored to this argument, all 12 bytes of it.
        unsafe { (arg as *mut c_int).add(2).write_unaligned(fd) };
    }
    Ok(value)
}

/// `mmap`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    let args = |fd: c_int, offset: off64_t| {
        let [prot, flags, fd] = [prot, flags, fd].map(c_long::from);
        [at as c_long, len as c_long, prot, flags, fd, offset]
    };
    if fd < 0 || flags & libc::MAP_ANONYMOUS != 0 || !is_node(fd) {
        // SAFETY: the caller's contract.
        return unsafe { syscall(libc::SYS_mmap, args(fd, offset)) as *mut c_void };
    }
    match memory(fd, len, flags, offset) {
        Ok(memory) => {
            // SAFETY: the caller's contract, with the buffer's memory in the node's place.
            let mapped = unsafe { syscall(libc::SYS_mmap, args(memory, 0)) };
            let errno = crate::errno();
            // SAFETY: the descriptor came for this mapping, which stays without it.
            unsafe { libc::close(memory) };
            crate::fail(errno);
            mapped as *mut c_void
        }
        Err(e) => {
            crate::fail(e);
            libc::MAP_FAILED
        }
    }
}

/// A descriptor of the buffer's memory.
fn memory(node: c_int, len: size_t, flags: c_int, offset: off64_t) -> Result<c_int, c_int> {
    // A private copy of device memory is refused (as the kernel's helper does).
    let shared = matches!(flags & libc::MAP_TYPE, libc::MAP_SHARED | libc::MAP_SHARED_VALIDATE);
    if !shared || offset < FIRST_OFFSET {
        return Err(libc::EINVAL);
    }
    let (arg, len) = (offset as u64, len as u64);
    let call = Call { kind: CALL_MMAP, number: 0, arg, len, passes_file: 0, reserved: 0 };
    let returned = call::make(node, call, 0, -1, true)?;
    if returned.fd < 0 { Err(libc::EINVAL) } else { Ok(returned.fd) }
}

/// `mmap64`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: off64_t,
) -> *mut c_void {
    // SAFETY: the caller's contract; on 64-bit machines both are one call.
    unsafe { mmap(at, len, prot, flags, fd, offset) }
}
