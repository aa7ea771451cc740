//! The node: a socket that looks like a device, and connections that look like open files.

use crate::real::syscall_int;
use crate::{call, path};
use bytemuck::Zeroable;
use libc::{c_char, c_int, c_long, sockaddr_un};
use rocket_sim_wire::{Hello, NODE, Purpose};
use std::mem::{offset_of, size_of};

/// Whether a descriptor is an open node: its other end is a board's socket.
pub fn is_node(fd: c_int) -> bool {
    let mut address = empty_address();
    let mut len = size_of::<sockaddr_un>() as libc::socklen_t;
    let before = crate::errno();
    // SAFETY: address and length describe the same local buffer.
    let rc = unsafe { libc::getpeername(fd, (&raw mut address).cast(), &raw mut len) };
    if rc != 0 {
        crate::fail(before);
        return false;
    }
    let head = offset_of!(sockaddr_un, sun_path);
    let len = (len as usize).saturating_sub(head).min(address.sun_path.len());
    let path: &[u8] = bytemuck::cast_slice(&address.sun_path[..len]);
    let path = path.split(|b| *b == 0).next().unwrap_or_default();
    let folder = NODE.as_bytes().strip_suffix(b"accel0").unwrap_or_default();
    let name = path.len() - path.iter().rev().take_while(|b| **b != b'/').count();
    c_int::from(address.sun_family) == libc::AF_UNIX
        && path::names_node(path)
        && path[..name].ends_with(folder)
}

fn empty_address() -> sockaddr_un {
    sockaddr_un { sun_family: libc::AF_UNIX as libc::sa_family_t, sun_path: [0; 108] }
}

/// Opens the node, or the counters, at a path that is a socket; -1 with errno.
///
/// # Safety
/// `at` must be a C string.
pub unsafe fn open(dir: c_int, at: *const c_char, flags: c_int) -> c_int {
    let cloexec = flags & libc::O_CLOEXEC;
    // SAFETY: the caller's contract.
    let opened = unsafe {
        if path::names_counters(crate::bytes(at)) {
            connect(dir, at, 1, Purpose::Counters).and_then(|socket| {
                let returned = call::done(socket, cloexec != 0);
                libc::close(socket);
                returned.map(|r| r.fd)
            })
        } else {
            connect(dir, at, cloexec, Purpose::File)
        }
    };
    match opened {
        Ok(fd) => fd,
        // The server is gone and has left its socket behind.
        Err(libc::ECONNREFUSED | libc::ECONNRESET | libc::EPIPE) => crate::fail(libc::ENODEV),
        Err(e) => crate::fail(e),
    }
}

/// Connects, greets, and hears whether it is welcome.
///
/// # Safety
/// `at` must be a C string.
unsafe fn connect(
    dir: c_int,
    at: *const c_char,
    cloexec: c_int,
    purpose: Purpose,
) -> Result<c_int, c_int> {
    let kind = libc::SOCK_SEQPACKET | if cloexec == 0 { 0 } else { libc::SOCK_CLOEXEC };
    // SAFETY: no pointers.
    let socket = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if socket < 0 {
        return Err(crate::errno());
    }
    // SAFETY: the caller's contract, and a socket that was just made.
    let greeted = unsafe { connect_path(socket, dir, at) }.and_then(|()| greet(socket, purpose));
    if let Err(e) = greeted {
        // SAFETY: made above and known to nobody else.
        unsafe { libc::close(socket) };
        return Err(e);
    }
    Ok(socket)
}

/// Connects to a socket by a descriptor of its path: a path may be longer than an address holds.
unsafe fn connect_path(socket: c_int, dir: c_int, at: *const c_char) -> Result<(), c_int> {
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    let args = [c_long::from(dir), at as c_long, c_long::from(flags), 0, 0, 0];
    // SAFETY: `at` is a C string by the caller's contract.
    let path = unsafe { syscall_int(libc::SYS_openat, args) };
    if path < 0 {
        return Err(crate::errno());
    }
    let mut address = empty_address();
    let mut digits = [0u8; 10];
    let text = b"/proc/self/fd/".iter().chain(decimal(path, &mut digits));
    for (to, from) in address.sun_path.iter_mut().zip(text) {
        *to = *from as c_char;
    }
    let len = size_of::<sockaddr_un>() as libc::socklen_t;
    // SAFETY: the address is a local of that length.
    let rc = unsafe { libc::connect(socket, (&raw const address).cast(), len) };
    let result = if rc == 0 { Ok(()) } else { Err(crate::errno()) };
    // SAFETY: opened above and known to nobody else.
    unsafe { libc::close(path) };
    result
}

/// A number in decimal, without the allocations that a signal handler must not make.
pub fn decimal(n: c_int, digits: &mut [u8; 10]) -> &[u8] {
    let mut left = n.unsigned_abs();
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 || at == 0 {
            return &digits[at..];
        }
    }
}

fn greet(socket: c_int, purpose: Purpose) -> Result<(), c_int> {
    // SAFETY: no pointers.
    let pid = unsafe { libc::getpid() };
    let hello = Hello::new(purpose, pid.unsigned_abs());
    let mut errno = i32::zeroed();
    // SAFETY: both buffers are locals of the length given.
    unsafe {
        let (at, len) = ((&raw const hello).cast(), size_of::<Hello>());
        if libc::send(socket, at, len, libc::MSG_NOSIGNAL) < 0 {
            return Err(crate::errno());
        }
        loop {
            match libc::recv(socket, (&raw mut errno).cast(), 4, 0) {
                4 if errno == 0 => return Ok(()),
                4 => return Err(errno),
                -1 if crate::errno() == libc::EINTR => {}
                -1 => return Err(crate::errno()),
                _ => return Err(libc::ECONNRESET),
            }
        }
    }
}

/// Says once that this process has loaded the library.
pub fn attach() {
    let Some(at) = path::redirect(NODE.as_bytes()) else { return };
    let before = crate::errno();
    // SAFETY: a buffer with its NUL.
    if let Ok(fd) = unsafe { connect(libc::AT_FDCWD, at.as_ptr(), 1, Purpose::Attach) } {
        // SAFETY: made by connect and known to nobody else.
        unsafe { libc::close(fd) };
    }
    crate::fail(before);
}
