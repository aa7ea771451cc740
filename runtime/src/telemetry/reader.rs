//! The reading side: from a file that anybody may have written to figures, or a refusal in words.

use super::layout as l;
use super::snapshot::{Process, Snapshot, check, parse};
use super::writer::{boot_id, pid_namespace};
use nix::fcntl::{FcntlArg, fcntl};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

/// How often a copy that is just being written is read again, and after what pause.
const TRIES: u32 = 20;
const PAUSE: Duration = Duration::from_micros(200);

/// Why a file is not shown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It cannot be opened or read.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
    /// Not a plain file.
    #[error("it is {0}, not a plain file, and no writer makes those")]
    NotAFile(&'static str),
    /// Somebody else's bytes.
    #[error("it does not begin as a file of counters does")]
    Foreign,
    /// Another layout.
    #[error("its layout has version {found}, this tool reads {}; {}", l::VERSION, .fix)]
    Version {
        /// The file's.
        found: u32,
        /// What to do.
        fix: &'static str,
    },
    /// Too short, or too long.
    #[error(
        "it has {found} bytes instead of {}: its writer did not finish it, or somebody cut it",
        l::SIZE
    )]
    Size {
        /// Bytes.
        found: u64,
    },
    /// It belongs to another user than the one it says.
    #[error("it belongs to user {owner} and says that user {writer} wrote it")]
    Owner {
        /// Of the file.
        owner: u32,
        /// In the header.
        writer: u32,
    },
    /// The checksum does not fit, however often it is read.
    #[error("its checksum is wrong: somebody else wrote to it")]
    Damaged,
}

/// Whether the process still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Life {
    /// It holds its lock.
    Alive,
    /// Nobody holds it.
    Dead,
    /// The lock cannot be asked for.
    Unknown(String),
}

/// Reads a file of counters. Never waits for a writer and never makes one wait.
///
/// # Errors
/// Why it is not shown.
pub fn read(path: &Path) -> Result<Snapshot, Refused> {
    let file = open(path)?;
    let meta = file.metadata()?;
    if !meta.is_file() {
        return Err(Refused::NotAFile("a directory, a pipe or a device"));
    }
    // Asked before the figures are read: those of a dead process are then its last.
    let life = life(&file);
    let mut last = Refused::Damaged;
    for _ in 0..TRIES {
        let mut bytes = vec![0; l::SIZE];
        let len = fill(&file, &mut bytes)?;
        bytes.truncate(len);
        match check(&bytes, file.metadata()?.len()) {
            Ok(()) => {
                let mut snapshot = parse(&bytes)?;
                let writer = snapshot.process.uid;
                if writer != meta.uid() {
                    return Err(Refused::Owner { owner: meta.uid(), writer });
                }
                snapshot.life = judge(life, &snapshot.process);
                return Ok(snapshot);
            }
            // A copy that is being written, or one that is being mended.
            Err(e @ (Refused::Damaged | Refused::Size { .. })) => last = e,
            Err(e) => return Err(e),
        }
        std::thread::sleep(PAUSE);
    }
    Err(last)
}

fn open(path: &Path) -> Result<File, Refused> {
    // Opening a pipe or a terminal must neither wait nor change anything.
    let flags =
        OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(fd) => Ok(File::from(fd)),
        Err(Errno::LOOP) => Err(Refused::NotAFile("a symbolic link")),
        Err(Errno::NXIO) => Err(Refused::NotAFile("a socket or a device")),
        Err(e) => Err(Refused::Io(e.into())),
    }
}

fn fill(file: &File, bytes: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Whether somebody holds the writer's lock. Asking takes none.
fn life(file: &File) -> Life {
    let mut lock = libc::flock {
        l_type: libc::F_RDLCK as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    match fcntl(file, FcntlArg::F_GETLK(&mut lock)) {
        Ok(_) if i32::from(lock.l_type) == libc::F_UNLCK => Life::Dead,
        Ok(_) => Life::Alive,
        Err(e) => Life::Unknown(format!("its lock cannot be asked for: {e}")),
    }
}

/// Whether nobody holds the lock of a plain file.
pub(super) fn is_unlocked(path: &Path) -> bool {
    let file = open(path).ok().filter(|f| f.metadata().is_ok_and(|m| m.is_file()));
    file.is_some_and(|f| life(&f) == Life::Dead)
}

/// A process's own lock never stands in its way, and locks do not outlive a boot.
fn judge(life: Life, process: &Process) -> Life {
    let boot = boot_id();
    if boot.is_some_and(|b| b != process.boot && process.boot != [0; 16]) {
        return Life::Dead;
    }
    let namespace = process.pid_namespace.unwrap_or(0);
    let own = process.pid == std::process::id() && namespace == pid_namespace();
    if life == Life::Dead && own { Life::Alive } else { life }
}
