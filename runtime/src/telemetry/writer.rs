//! The writing side.

use super::image::Image;
use super::layout::{self as l, header, put_u32, put_u64};
use super::place::{Directory, NAME_PREFIX, UNFINISHED};
use super::scan::{self, Keep};
use nix::time::{ClockId, clock_gettime};
use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::rand::GetRandomFlags;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A copy may be written when so many times its own cost has passed: it takes one part in a
/// hundred of the time at most, whatever the file system.
const PAUSE: u32 = 100;

/// Why there are no counters: each directory that was tried, and what was wrong with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no counters: {}", .tried.iter().map(|(p, why)| format!("{}: {why}", p.display())).collect::<Vec<_>>().join("; "))]
pub struct NoCounters {
    /// In the order of trying.
    pub tried: Vec<(PathBuf, String)>,
}

/// The counters of this process. Any thread may count; a forked child's counts go nowhere.
///
/// Its file stays when the process ends, unlocked, so that the last figures can still be read;
/// the next writer in the directory or a tool removes it.
#[derive(Debug)]
pub struct Writer {
    pid: u32,
    path: PathBuf,
    image: Mutex<Image>,
    out: Mutex<Out>,
    made: Instant,
    /// Nanoseconds after `made` from which a copy may be written.
    due: AtomicU64,
    /// Something was counted since the last copy.
    changed: AtomicBool,
}

#[derive(Debug)]
struct Out {
    /// `None` once the descriptor is no longer ours.
    file: Option<File>,
    inode: (u64, u64),
    buffer: Vec<u8>,
}

impl Writer {
    /// Makes this process's file in the first of `directories` that takes it, and removes what
    /// dead processes left there. `facts` are about the process.
    ///
    /// # Errors
    /// What was wrong with each.
    pub fn create(directories: &[Directory], facts: &[(&str, &str)]) -> Result<Writer, NoCounters> {
        let mut tried = Vec::new();
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        for directory in directories {
            // Beyond the limit a write is a signal that ends the process.
            let made = match limit.is_some_and(|most| most < l::SIZE as u64) {
                true => Err(io::Error::other("the limit of file sizes (ulimit -f) is too low")),
                false => Writer::create_in(directory, facts),
            };
            match made {
                Ok(writer) => {
                    let _ = scan::clean_directory(&directory.path, &Keep::default());
                    return Ok(writer);
                }
                Err(e) => tried.push((directory.path.clone(), e.to_string())),
            }
        }
        Err(NoCounters { tried })
    }

    fn create_in(directory: &Directory, facts: &[(&str, &str)]) -> io::Result<Writer> {
        if directory.make
            && let Err(e) = rustix::fs::mkdir(&directory.path, Mode::RWXU)
            && e != rustix::io::Errno::EXIST
        {
            return Err(e.into());
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(&directory.path, flags, Mode::empty())?;
        let mut id = [0; 16];
        rustix::rand::getrandom(&mut id, GetRandomFlags::NONBLOCK)?;
        let pid = std::process::id();
        let number = u64::from_le_bytes([id[0], id[1], id[2], id[3], id[4], id[5], id[6], id[7]]);
        let name = format!("{NAME_PREFIX}{pid}-{number:016x}");
        let unfinished = format!("{UNFINISHED}{name}");
        // For nobody else before it is locked: a reader could place a lock of its own.
        let flags =
            OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file: OwnedFd = rustix::fs::openat(&dir, &unfinished, flags, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(file);
        let fill = || -> io::Result<(Image, Metadata)> {
            rustix::fs::fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive)?;
            let meta = file.metadata()?;
            let mut image = Image::default();
            identify(image.header(), pid, meta.uid(), id);
            facts.iter().for_each(|(key, value)| image.fact(key, value));
            // The room is taken now, every page of it: later there may be none.
            file.write_all_at(&vec![0; l::SIZE], 0)?;
            let mut buffer = Vec::new();
            write(&file, &mut image, &mut buffer)?;
            rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
            rustix::fs::renameat(&dir, &unfinished, &dir, &name)?;
            Ok((image, meta))
        };
        let (image, meta) = fill().inspect_err(|_| {
            let _ = rustix::fs::unlinkat(&dir, &unfinished, AtFlags::empty());
        })?;
        let out = Out { file: Some(file), inode: (meta.dev(), meta.ino()), buffer: Vec::new() };
        Ok(Writer {
            pid,
            path: directory.path.join(name),
            image: Mutex::new(image),
            out: Mutex::new(out),
            made: Instant::now(),
            due: AtomicU64::new(0),
            changed: AtomicBool::new(false),
        })
    }

    /// The file.
    pub fn path(&self) -> &std::path::Path {
        &self.path
    }

    /// Counts. Nothing is written before [`Writer::publish`].
    pub fn update<R>(&self, f: impl FnOnce(&mut Image) -> R) -> Option<R> {
        let done = f(&mut *self.lock(&self.image)?);
        self.changed.store(true, Ordering::Relaxed);
        Some(done)
    }

    /// A mutex that another thread held when this process was forked would never be free again
    /// in the child: there it is not waited for.
    fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> Option<MutexGuard<'a, T>> {
        match mutex.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.is_own_process().then(|| mutex.lock().unwrap_or_else(|e| e.into_inner()))
            }
        }
    }

    fn is_own_process(&self) -> bool {
        std::process::id() == self.pid
    }

    /// Writes a copy if something was counted since the last one, and enough time has passed for
    /// the copies to cost one part in a hundred of it at most. To be called wherever something ends.
    pub fn publish_if_due(&self) {
        if !self.changed.load(Ordering::Relaxed) {
            return;
        }
        let now = self.made.elapsed();
        if now.as_nanos() as u64 >= self.due.load(Ordering::Relaxed) {
            self.publish();
        }
    }

    /// Writes a copy now. False when there is nowhere to write to (any more): in a forked child,
    /// or when the host closed the descriptor.
    pub fn publish(&self) -> bool {
        if !self.is_own_process() {
            return false;
        }
        let begun = self.made.elapsed();
        let Some(mut out) = self.lock(&self.out) else { return false };
        let Out { file, inode, buffer } = &mut *out;
        let Some(open) = file else { return false };
        if open.metadata().map_or(true, |m| (m.dev(), m.ino()) != *inode) {
            // The host closed all descriptors, as daemons do: this number is somebody else's now,
            // to be neither written nor closed.
            let _ = file.take().map(IntoRawFd::into_raw_fd);
            return false;
        }
        self.changed.store(false, Ordering::Relaxed);
        // A copy that fails is followed by another one.
        let written = self.copy(open.as_fd(), buffer).is_ok();
        let ended = self.made.elapsed();
        let pause =
            ended.saturating_sub(begun).saturating_mul(PAUSE).max(Duration::from_micros(100));
        self.due.store((ended + pause).as_nanos() as u64, Ordering::Relaxed);
        written
    }

    fn copy(&self, fd: BorrowedFd<'_>, buffer: &mut Vec<u8>) -> io::Result<()> {
        // Lost when the host opened and closed the file itself.
        let _ = rustix::fs::fcntl_lock(fd, FlockOperation::NonBlockingLockExclusive);
        let limit = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if limit.is_some_and(|most| most < l::SIZE as u64) {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if let Some(mut image) = self.lock(&self.image) {
            stamp(&mut image, buffer);
        }
        let mut done = 0;
        while done < buffer.len() {
            done += rustix::io::pwrite(fd, &buffer[done..], done as u64)?;
        }
        // Whoever truncated it has the missing end back.
        if rustix::fs::fstat(fd)?.st_size != l::SIZE as i64 {
            rustix::fs::ftruncate(fd, l::SIZE as u64)?;
        }
        Ok(())
    }
}

/// The next copy of the image, with time, number and checksum.
fn stamp(image: &mut Image, buffer: &mut Vec<u8>) {
    let head = image.header();
    put_u64(head, header::UPDATED, since_boot());
    let copies = l::u64_at(head, header::COPIES);
    put_u64(head, header::COPIES, copies + 1);
    image.copy_to(buffer);
    let sum = l::checksum(buffer);
    put_u64(buffer, header::CHECKSUM, sum);
}

fn write(file: &File, image: &mut Image, buffer: &mut Vec<u8>) -> io::Result<()> {
    stamp(image, buffer);
    file.write_all_at(buffer, 0)
}

fn identify(head: &mut [u8], pid: u32, uid: u32, id: [u8; 16]) {
    put_u32(head, header::PID, pid);
    put_u32(head, header::UID, uid);
    head[header::ID..][..16].copy_from_slice(&id);
    head[header::BOOT..][..16].copy_from_slice(&boot_id().unwrap_or_default());
    put_u64(head, header::PID_NAMESPACE, pid_namespace());
    put_u64(head, header::START_TICKS, start_ticks().unwrap_or(0));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    put_u64(head, header::CREATED, now.as_nanos() as u64);
}

/// Nanoseconds since boot, sleep included.
pub(super) fn since_boot() -> u64 {
    // By libc: rustix reads the kernel's vDSO itself, which valgrind has no map of. It cannot fail.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, |t| {
        (t.tv_sec() as u64).saturating_mul(1_000_000_000).saturating_add(t.tv_nsec() as u64)
    })
}

/// The kernel's boot id as bytes.
pub(super) fn boot_id() -> Option<[u8; 16]> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let mut id = [0; 16];
    if digits.len() != 32 {
        return None;
    }
    for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
    }
    Some(id)
}

/// Inode of this process's PID namespace; 0 where it cannot be read.
pub(super) fn pid_namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |m| m.ino())
}

/// Field 22 of /proc/self/stat. The second is a name in brackets that may hold anything.
fn start_ticks() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/stat").ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(22 - 3)?.parse().ok()
}
