//! [`Packed`]: an image on disk, opened, checked and mapped.

use super::dir::lock_within;
use super::{format, map};
use crate::{Error, Result};
use memmap2::Mmap;
use nix::unistd::geteuid;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Writers and eviction hold a finished file for one rename or unlink.
const LOCK_WAIT: Duration = Duration::from_millis(200);

/// An image from the disk, every byte of it checked. As long as it lives the file is not evicted,
/// and its bytes stay as they are.
#[derive(Debug)]
pub struct Packed {
    map: Mmap,
    parts: Vec<Range<usize>>,
    /// Holds the shared lock.
    _file: File,
}

impl Packed {
    /// The parts, in the order they were saved in.
    pub fn parts(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.parts.iter().map(|p| &self.map[p.clone()])
    }

    /// Bytes of all parts together.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(|p| p.len() as u64).sum()
    }
}

/// Why there is no image.
#[derive(Debug)]
pub(super) enum Missing {
    /// No such file.
    Absent,
    /// The file may be good, but not for this process at this time.
    Now(String),
    /// It will never be good: in words, and which inode when it was opened.
    Bad(String, Option<(u64, u64)>),
    /// The directory does not let this process look.
    Mend(Error),
}

/// Opens the image of the key with the bytes `key` at `path`.
pub(super) fn open(path: &Path, key: &[u8]) -> Result<Packed, Missing> {
    let file = open_file(path)?;
    let meta = file.metadata().map_err(|e| Missing::Now(e.to_string()))?;
    let bad = |why| Missing::Bad(why, Some((meta.dev(), meta.ino())));
    fit_to_map(&meta).map_err(bad)?;
    match lock_within(&file, false, LOCK_WAIT) {
        Ok(true) => {}
        Ok(false) => return Err(Missing::Now("another process is about to replace it".into())),
        Err(e) => return Err(Missing::Now(format!("it cannot be locked: {e}"))),
    }
    if meta.len() == 0 {
        // No mapping can be empty.
        return Err(bad("it is empty".into()));
    }
    let map = map::map(&file).map_err(|e| match e.raw_os_error() {
        // EFAULT and EHWPOISON: what a populating read finds on a bad disk or bad memory.
        Some(libc::EFAULT | libc::EHWPOISON | libc::EIO) => bad(format!("it cannot be read: {e}")),
        _ => Missing::Now(format!("it cannot be mapped: {e}")),
    })?;
    let parts = format::read(&map, key).map_err(bad)?;
    // Eviction goes by it. A clock or a file system that refuses costs a worse choice there.
    let _ = file.set_modified(SystemTime::now());
    Ok(Packed { map, parts, _file: file })
}

fn open_file(path: &Path) -> Result<File, Missing> {
    let opened = OpenOptions::new()
        .read(true)
        // Not through a link; and a FIFO must not make a start wait.
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path);
    opened.map_err(|e| match e.raw_os_error() {
        Some(libc::ENOENT) => Missing::Absent,
        Some(libc::ELOOP) => Missing::Bad("it is a symbolic link".into(), None),
        Some(libc::ENXIO | libc::ENODEV) => Missing::Bad("it is no regular file".into(), None),
        Some(libc::EACCES | libc::ENOTDIR) => match path.symlink_metadata() {
            Ok(_) => Missing::Bad("this user may not read it".into(), None),
            Err(e) => Missing::Mend(super::dir::error(path.parent().unwrap_or(path), &e)),
        },
        _ => Missing::Now(e.to_string()),
    })
}

/// Weights that somebody else could change are not used, and a mapping must not shrink.
fn fit_to_map(meta: &Metadata) -> Result<(), String> {
    if !meta.is_file() {
        return Err("it is no regular file".into());
    }
    if meta.uid() != geteuid().as_raw() {
        return Err(format!("it belongs to user {}", meta.uid()));
    }
    if meta.mode() & 0o022 != 0 {
        return Err(format!("others may write it (mode {:04o})", meta.mode() & 0o7777));
    }
    Ok(())
}

/// Takes a bad file away, unless another one has come in its place.
pub(super) fn remove(path: &Path, opened: Option<(u64, u64)>) -> io::Result<()> {
    let meta = match path.symlink_metadata() {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        meta => meta?,
    };
    if opened.is_some_and(|id| id != (meta.dev(), meta.ino())) {
        return Ok(());
    }
    // A directory with something in it is nothing this module made: it stays.
    if meta.is_dir() { std::fs::remove_dir(path) } else { std::fs::remove_file(path) }
}
