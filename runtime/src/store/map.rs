//! The one mapping of this module.

#![allow(unsafe_code)] // one of the design's borders: ioctl and mmap

use memmap2::{Advice, Mmap};
use std::fs::File;
use std::io;

/// Maps `file`, which [`image`](super::image) has found to be fit for it, and brings it into
/// memory.
///
/// # Errors
/// The file cannot be mapped or read.
pub(super) fn map(file: &File) -> io::Result<Mmap> {
    // SAFETY: what is mapped must not change or shrink while it is borrowed (a file that shrinks
    // is a SIGBUS). The caller has seen, on this very descriptor, a regular file of this user that
    // nobody else may write, in a directory that nobody else may write. This program never writes
    // to a file that has its final name: writers fill a temporary file and rename it, eviction
    // unlinks, and neither touches an inode that is mapped. Finished files are mode 0400, so that
    // another program of this user does not write to one by mistake. What remains is root or this
    // user bent on it, and a disk that fails after it was read once: they can stop this process
    // anyway.
    let map = unsafe { Mmap::map(file) }?;
    // Both are requests. Populating has a disk's error come as one rather than as SIGBUS.
    let _ = map.advise(Advice::Sequential);
    match map.advise(Advice::PopulateRead) {
        // Linux before 5.14 does not know it.
        Err(e) if e.raw_os_error() == Some(libc::EINVAL) => Ok(map),
        done => done.map(|()| map),
    }
}
