//! One connection: an open file, a process that is there, or somebody with questions.

use super::Shared;
use super::control::{self, Status};
use super::dialog::{self, Dialog};
use crate::{Errno, SimFile};
use rocket_runtime::uapi;
use rocket_sim_wire::{Call, Hello, MAGIC, Purpose, VERSION};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::SendFlags;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Longest packet: a call with the largest argument that an ioctl number can state.
const LONGEST: usize = size_of::<Call>() + (1 << 14);

pub fn serve(shared: &Arc<Shared>, socket: &Arc<OwnedFd>) {
    let mut packet = vec![0; LONGEST];
    let Some((n, _)) = dialog::receive(socket, &mut packet) else { return };
    let Ok(hello) = bytemuck::try_pod_read_unaligned::<Hello>(&packet[..n]) else { return };
    let purpose = Purpose::from_number(hello.purpose)
        .filter(|_| hello.magic == MAGIC && hello.version == VERSION);
    let opened = match purpose {
        None => Err(Errno::EPROTO),
        Some(Purpose::File) => shared.board.open_shared().map(Some),
        Some(Purpose::Control | Purpose::Attach | Purpose::Counters) => Ok(None),
    };
    // Counted before the answer: a process may do its work and end before this thread goes on.
    match (&opened, purpose) {
        (Ok(Some(_)), _) => shared.files_opened.fetch_add(1, SeqCst),
        (Ok(None), Some(Purpose::Attach)) => shared.attached.fetch_add(1, SeqCst),
        _ => 0,
    };
    let errno = opened.as_ref().err().map_or(0, |e| *e as i32);
    if rustix::net::send(socket, &errno.to_le_bytes(), SendFlags::NOSIGNAL).is_err() {
        return;
    }
    match opened {
        Ok(Some(file)) => calls(shared, socket, &Arc::new(file), &mut packet),
        Ok(None) if purpose == Some(Purpose::Control) => control::serve(shared, socket),
        Ok(None) if purpose == Some(Purpose::Counters) => counters(shared, socket),
        Ok(None) => {
            // Nothing more is said.
            while dialog::receive(socket, &mut packet).is_some() {}
        }
        Err(_) => {}
    }
}

/// Hands over what the board did so far, as a file.
fn counters(shared: &Shared, socket: &OwnedFd) {
    let status = Status::of(&shared.board);
    let file = serde_json::to_vec_pretty(&status).map_err(io::Error::from).and_then(text_file);
    if let Err(e) = file.and_then(|file| dialog::hand_over(socket, &file)) {
        tracing::error!("cannot hand over the counters: {e}");
    }
}

/// A file without a name that holds `text`.
fn text_file(mut text: Vec<u8>) -> io::Result<File> {
    let mut file = File::from(memfd_create("sim-counters", MemfdFlags::CLOEXEC)?);
    text.push(b'\n');
    file.write_all(&text)?;
    file.rewind()?;
    Ok(file)
}

/// The calls on one open file, until its last descriptor is closed.
fn calls(shared: &Arc<Shared>, socket: &OwnedFd, file: &Arc<SimFile>, packet: &mut [u8]) {
    const HEAD: usize = size_of::<Call>();
    while let Some((n, fds)) = dialog::receive(socket, packet) {
        let mut fds = fds.into_iter();
        // A packet without its parts is from no library of ours; its sender gets no answer.
        let (Some(pair), true) = (fds.next(), n >= HEAD) else { continue };
        let call: Call = bytemuck::pod_read_unaligned(&packet[..HEAD]);
        let passed = (call.passes_file != 0).then(|| fds.next()).flatten();
        let dialog = Dialog::new(pair, call.arg, packet[HEAD..n].to_vec(), passed);
        shared.calls.fetch_add(1, SeqCst);
        if !may_wait(file, &call, &packet[HEAD..n]) {
            dialog.run(file, &call);
            continue;
        }
        // Others use the file while this call waits.
        let f = Arc::clone(file);
        let thread = std::thread::Builder::new().name("sim-wait".to_owned());
        let run = move || {
            let pair = dialog.run(&f, &call);
            // A child that was forked meanwhile may hold the caller's end, but not the file.
            drop(f);
            dialog::see_off(&pair);
        };
        if let Err(e) = thread.spawn(run) {
            // The dialog is gone, and the caller sees that as an error.
            tracing::error!("cannot serve a waiting call: {e}");
        }
    }
}

/// Whether a call would wait for a fence now.
fn may_wait(file: &SimFile, call: &Call, arg: &[u8]) -> bool {
    let prep = [uapi::IOCTL_PREP_BO, uapi::IOCTL_PREP_BO_RANGES].map(|n| n & 0xff);
    let Some(Ok(handle)) = arg.get(..4).map(bytemuck::try_pod_read_unaligned::<u32>) else {
        return false;
    };
    call.kind == rocket_sim_wire::CALL_IOCTL
        && prep.contains(&(call.number & 0xff))
        && file.is_busy(handle)
}
