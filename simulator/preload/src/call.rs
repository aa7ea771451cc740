//! A driver call: sent to the board, which asks for this process's memory until it is done.
//!
//! The kernel itself copies from and to the program's memory here, as part of a send or a receive,
//! so a bad pointer is EFAULT and never a crash.

use libc::{c_int, c_void, iovec, msghdr};
use rocket_sim_wire::{
    ANSWER_DONE, ANSWER_INTERRUPTED, Answer, Call, REPLY_DONE, REPLY_READ, REPLY_WAITS,
    REPLY_WRITE, Reply,
};
use std::mem::{size_of, zeroed};

/// Room for two descriptors in a control message, aligned as one.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// What a call returned: its value, and a descriptor or -1.
pub struct Returned {
    pub value: c_int,
    pub fd: c_int,
}

/// Makes `call` on an open node, with `inline` bytes of the argument; errno on failure. `passed`
/// goes along unless it is negative; `cloexec` is for a descriptor that comes back.
pub fn make(
    node: c_int,
    mut call: Call,
    inline: usize,
    passed: c_int,
    cloexec: bool,
) -> Result<Returned, c_int> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for both ends.
    if unsafe { libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) } != 0 {
        return Err(crate::errno());
    }
    call.passes_file = u32::from(passed >= 0);
    let result = send_call(node, &call, inline, pair[1], passed);
    close(pair[1]);
    let result = result.and_then(|()| talk(pair[0], cloexec));
    close(pair[0]);
    result
}

fn close(fd: c_int) {
    // SAFETY: an end of the pair made above, closed once.
    unsafe { libc::close(fd) };
}

fn part(at: *const c_void, len: usize) -> iovec {
    iovec { iov_base: at.cast_mut(), iov_len: len }
}

fn message(parts: &mut [iovec]) -> msghdr {
    // SAFETY: all zero is an empty message.
    let mut m: msghdr = unsafe { zeroed() };
    m.msg_iov = parts.as_mut_ptr();
    m.msg_iovlen = parts.len() as _;
    m
}

fn send_call(
    node: c_int,
    call: &Call,
    inline: usize,
    pair: c_int,
    passed: c_int,
) -> Result<(), c_int> {
    let mut parts = [
        part((&raw const *call).cast(), size_of::<Call>()),
        part(call.arg as *const c_void, inline),
    ];
    let mut m = message(&mut parts);
    let mut control = Control([0; 64]);
    let fds = [pair, passed];
    let bytes = if passed >= 0 { size_of::<[c_int; 2]>() } else { size_of::<c_int>() } as u32;
    // SAFETY: the control buffer holds a header and two descriptors, and outlives the call.
    unsafe {
        m.msg_control = control.0.as_mut_ptr().cast();
        m.msg_controllen = libc::CMSG_SPACE(bytes) as _;
        let header = libc::CMSG_FIRSTHDR(&raw const m);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(bytes) as _;
        fds.as_ptr().cast::<u8>().copy_to(libc::CMSG_DATA(header), bytes as usize);
    }
    match send(node, &m) {
        // The server has gone away, as a device does.
        Err(libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN) => Err(libc::ENODEV),
        result => result,
    }
}

fn send(socket: c_int, m: &msghdr) -> Result<(), c_int> {
    loop {
        // SAFETY: the message's parts are described as they are; memory of the program that is not
        // readable is EFAULT.
        if unsafe { libc::sendmsg(socket, m, libc::MSG_NOSIGNAL) } >= 0 {
            return Ok(());
        }
        match crate::errno() {
            libc::EINTR => {}
            e => return Err(e),
        }
    }
}

fn answer(socket: c_int, kind: u32, errno: c_int) -> Result<(), c_int> {
    let answer = Answer { kind, errno };
    let mut parts = [part((&raw const answer).cast(), size_of::<Answer>())];
    send(socket, &message(&mut parts)).map_err(|_| libc::ENODEV)
}

/// Serves the board until the call is over. A signal ends it once the board says that it waits.
fn talk(socket: c_int, cloexec: bool) -> Result<Returned, c_int> {
    let mut waits = false;
    loop {
        let mut reply = Reply::default();
        let (at, len) = ((&raw mut reply).cast::<c_void>(), size_of::<Reply>());
        // SAFETY: a local of that length; the packet stays for the receive below.
        let got = unsafe { libc::recv(socket, at, len, libc::MSG_PEEK) };
        if got < 0 {
            match crate::errno() {
                libc::EINTR if waits => {
                    waits = false;
                    // The board still ends the call: it shows the CPU what is there.
                    answer(socket, ANSWER_INTERRUPTED, libc::EINTR)?;
                }
                libc::EINTR => {}
                _ => return Err(libc::ENODEV),
            }
            continue;
        }
        if got as usize != len {
            return Err(libc::ENODEV);
        }
        match reply.kind {
            REPLY_READ => {
                drain(socket);
                read(socket, &reply)?;
            }
            REPLY_WRITE => write(socket, &reply)?,
            REPLY_WAITS => {
                drain(socket);
                waits = true;
            }
            REPLY_DONE => return done(socket, cloexec),
            _ => return Err(libc::EPROTO),
        }
    }
}

/// Takes the packet that was looked at, if it is still there.
fn drain(socket: c_int) {
    let mut byte = 0u8;
    // SAFETY: a local of that length; the rest of the packet is dropped.
    unsafe { libc::recv(socket, (&raw mut byte).cast(), 1, libc::MSG_DONTWAIT) };
}

/// The board reads the program's memory.
fn read(socket: c_int, reply: &Reply) -> Result<(), c_int> {
    let head = Answer { kind: ANSWER_DONE, errno: 0 };
    let mut parts = [
        part((&raw const head).cast(), size_of::<Answer>()),
        part(reply.at as *const c_void, reply.len as usize),
    ];
    match send(socket, &message(&mut parts)) {
        Err(libc::EFAULT) => answer(socket, ANSWER_DONE, libc::EFAULT),
        Err(_) => Err(libc::ENODEV),
        Ok(()) => Ok(()),
    }
}

/// The board writes the program's memory.
fn write(socket: c_int, reply: &Reply) -> Result<(), c_int> {
    let mut head = Reply::default();
    let mut parts = [
        part((&raw mut head).cast(), size_of::<Reply>()),
        part(reply.at as *const c_void, reply.len as usize),
    ];
    let mut m = message(&mut parts);
    // SAFETY: the parts are described as they are; memory of the program that is not writable is
    // EFAULT.
    let got = unsafe { libc::recvmsg(socket, &raw mut m, 0) };
    if got >= 0 {
        return answer(socket, ANSWER_DONE, 0);
    }
    match crate::errno() {
        libc::EINTR => Ok(()),
        libc::EFAULT => {
            // The packet may be gone or not, and the board sends no other before it is answered.
            drain(socket);
            answer(socket, ANSWER_DONE, libc::EFAULT)
        }
        _ => Err(libc::ENODEV),
    }
}

/// The end of the call, perhaps with a descriptor.
pub fn done(socket: c_int, cloexec: bool) -> Result<Returned, c_int> {
    let mut reply = Reply::default();
    let mut parts = [part((&raw mut reply).cast(), size_of::<Reply>())];
    let mut m = message(&mut parts);
    let mut control = Control([0; 64]);
    m.msg_control = control.0.as_mut_ptr().cast();
    m.msg_controllen = control.0.len() as _;
    let flags = if cloexec { libc::MSG_CMSG_CLOEXEC } else { 0 };
    let mut fd = -1;
    // SAFETY: the message's parts and its control buffer are locals of the lengths given, and a
    // control message of rights holds at least one descriptor.
    unsafe {
        while libc::recvmsg(socket, &raw mut m, flags) < 0 {
            if crate::errno() != libc::EINTR {
                return Err(libc::ENODEV);
            }
        }
        let header = libc::CMSG_FIRSTHDR(&raw const m);
        if !header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS {
            fd = libc::CMSG_DATA(header).cast::<c_int>().read_unaligned();
        }
    }
    if reply.errno != 0 { Err(reply.errno) } else { Ok(Returned { value: reply.value, fd }) }
}

/// A copy of the program's memory, for arguments that are looked at here; EFAULT if unreadable.
pub fn peek<const N: usize>(at: u64) -> Result<[u8; N], c_int> {
    let mut pair = [-1; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    let mut copy = [0; N];
    // SAFETY: the array has room for both ends; the send reads the program's memory, where bad
    // memory is EFAULT, and the receive fills a local of that length.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, pair.as_mut_ptr()) != 0 {
            return Err(crate::errno());
        }
        let sent = libc::send(pair[0], at as *const c_void, N, libc::MSG_NOSIGNAL);
        let result = if sent == N as isize {
            libc::recv(pair[1], copy.as_mut_ptr().cast(), N, libc::MSG_DONTWAIT);
            Ok(copy)
        } else {
            Err(crate::errno())
        };
        close(pair[0]);
        close(pair[1]);
        result
    }
}
