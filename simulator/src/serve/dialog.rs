//! One call: what the server asks of the caller until the call is over.

use crate::{Caller, Errno, Fence, Outcome, SimFile};
use rocket_runtime::device::Deadline;
use rocket_sim_wire::{
    ANSWER_DONE, Answer, CALL_IOCTL, CALL_MMAP, CHUNK, Call, REPLY_DONE, REPLY_READ, REPLY_WAITS,
    REPLY_WRITE, Reply,
};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags,
};
use std::fs::File;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// Receives one packet and the descriptors with it; none when the other side is gone.
pub fn receive(socket: &OwnedFd, packet: &mut [u8]) -> Option<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    loop {
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(packet)];
        match rustix::net::recvmsg(socket, &mut into, &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(got) if got.bytes > 0 => {
                let mut fds = Vec::new();
                for message in control.drain() {
                    if let RecvAncillaryMessage::ScmRights(rights) = message {
                        fds.extend(rights);
                    }
                }
                return Some((got.bytes, fds));
            }
            Err(rustix::io::Errno::INTR) => {}
            Ok(_) | Err(_) => return None,
        }
    }
}

/// Keeps the pair of a call that waited until the caller has closed its end: an end that closes with
/// the news of a signal unread would take the answer from the caller (ECONNRESET).
pub fn see_off(pair: &OwnedFd) {
    let mut packet = [0; size_of::<Answer>()];
    while receive(pair, &mut packet).is_some() {}
}

fn send(socket: &OwnedFd, reply: &Reply, behind: &[u8], file: Option<&File>) -> Result<(), Errno> {
    let parts = [IoSlice::new(bytemuck::bytes_of(reply)), IoSlice::new(behind)];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = file.map(|f| [f.as_fd()]);
    if let Some(fds) = &fds {
        control.push(SendAncillaryMessage::ScmRights(fds));
    }
    rustix::net::sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL)
        .map(drop)
        .map_err(|e| Errno::from_raw(e.raw_os_error()))
}

/// Ends a conversation with a file.
pub fn hand_over(socket: &OwnedFd, file: &File) -> std::io::Result<()> {
    let reply = Reply { kind: REPLY_DONE, ..Reply::default() };
    send(socket, &reply, &[], Some(file)).map_err(Into::into)
}

/// The server's end of the pair that a call brought.
#[derive(Debug)]
pub struct Dialog {
    pair: OwnedFd,
    /// The argument came with the call.
    arg: u64,
    inline: Vec<u8>,
    passed: Option<OwnedFd>,
}

impl Dialog {
    pub fn new(pair: OwnedFd, arg: u64, inline: Vec<u8>, passed: Option<OwnedFd>) -> Dialog {
        Dialog { pair, arg, inline, passed }
    }

    /// Carries the call out, says what it returns, and hands back the pair.
    pub fn run(mut self, file: &SimFile, call: &Call) -> OwnedFd {
        let done = match call.kind {
            CALL_IOCTL => file.ioctl(call.number, call.arg, &mut self),
            CALL_MMAP => file
                .memory(call.arg, call.len)
                .map(|memory| Outcome { value: 0, file: Some(memory) }),
            _ => Err(Errno::ENOSYS),
        };
        let reply = Reply { kind: REPLY_DONE, ..Reply::default() };
        let (reply, attached) = match done {
            Ok(Outcome { value, file }) => (Reply { value, ..reply }, file),
            Err(errno) => (Reply { errno: errno as i32, ..reply }, None),
        };
        // Whoever is gone needs no answer.
        let _ = self.send(&reply, &[], attached.as_ref());
        self.pair
    }

    fn send(&self, reply: &Reply, behind: &[u8], file: Option<&File>) -> Result<(), Errno> {
        send(&self.pair, reply, behind, file)
    }

    /// The caller's answer and what it brought; a caller that is gone has no memory.
    fn answer(&self, packet: &mut [u8]) -> Result<usize, Errno> {
        const HEAD: usize = size_of::<Answer>();
        let (n, _) = receive(&self.pair, packet).ok_or(Errno::EFAULT)?;
        let head = packet.get(..HEAD).filter(|_| n >= HEAD).ok_or(Errno::EPROTO)?;
        let answer: Answer = bytemuck::pod_read_unaligned(head);
        match answer.errno {
            0 if answer.kind == ANSWER_DONE => Ok(n - HEAD),
            0 => Err(Errno::EPROTO),
            e => Err(Errno::from_raw(e)),
        }
    }
}

impl Caller for Dialog {
    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        if at == self.arg && to.len() == self.inline.len() {
            to.copy_from_slice(&self.inline);
            return Ok(());
        }
        const HEAD: usize = size_of::<Answer>();
        let mut packet = vec![0; HEAD + to.len().min(CHUNK)];
        let mut from = at;
        for chunk in to.chunks_mut(CHUNK) {
            let len = chunk.len() as u64;
            self.send(&Reply { kind: REPLY_READ, at: from, len, ..Reply::default() }, &[], None)?;
            if self.answer(&mut packet)? != chunk.len() {
                return Err(Errno::EFAULT);
            }
            chunk.copy_from_slice(&packet[HEAD..HEAD + chunk.len()]);
            from = from.checked_add(len).ok_or(Errno::EFAULT)?;
        }
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Errno> {
        let mut packet = [0; size_of::<Answer>()];
        let mut to = at;
        for chunk in from.chunks(CHUNK) {
            let len = chunk.len() as u64;
            self.send(&Reply { kind: REPLY_WRITE, at: to, len, ..Reply::default() }, chunk, None)?;
            self.answer(&mut packet)?;
            to = to.checked_add(len).ok_or(Errno::EFAULT)?;
        }
        Ok(())
    }

    fn wait(&mut self, fence: &Arc<Fence>, deadline: Deadline) -> Result<(), Errno> {
        self.send(&Reply { kind: REPLY_WAITS, ..Reply::default() }, &[], None)
            .map_err(|_| Errno::EINTR)?;
        let signalled = eventfd(0, EventfdFlags::CLOEXEC).map(Arc::new);
        let signalled = signalled.map_err(|_| Errno::ENOMEM)?;
        let waker = Arc::clone(&signalled);
        fence.on_signal(move || {
            // The counter is one number; a full one wakes as well.
            let _ = rustix::io::write(&*waker, &1u64.to_ne_bytes());
        });
        loop {
            let left = deadline.0.saturating_sub(Deadline::now().0);
            if fence.signalled() {
                return Ok(());
            }
            if left <= 0 {
                return Err(Errno::ETIMEDOUT);
            }
            let left = Timespec { tv_sec: left / 1_000_000_000, tv_nsec: left % 1_000_000_000 };
            let mut fds =
                [PollFd::new(&self.pair, PollFlags::IN), PollFd::new(&*signalled, PollFlags::IN)];
            match poll(&mut fds, Some(&left)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(Errno::from_raw(e.raw_os_error())),
            }
            // A fence that signalled in the same moment wins, as in the kernel.
            if !fds[0].revents().is_empty() && !fence.signalled() {
                return Err(Errno::EINTR);
            }
        }
    }

    fn passed_file(&mut self) -> Option<File> {
        self.passed.take().map(File::from)
    }
}
