//! Scratch buffers of a worker, kept between calls. Right-sized: the driver's cache syncs walk a
//! whole object, so a small call must not be given a large one (npu-rk3588 8.4).

use crate::Result;
use crate::device::{Bo, File};
use std::sync::Arc;

/// Bytes of idle buffers kept a worker: enough for the shapes of one model's layers.
const KEEP_BYTES: usize = 96 << 20;

#[derive(Debug)]
pub(super) struct Pool {
    file: Arc<File>,
    /// Oldest first.
    idle: Vec<Bo>,
}

impl Pool {
    pub(super) fn new(file: Arc<File>) -> Pool {
        Pool { file, idle: Vec::new() }
    }

    /// A buffer of at least `len` bytes and at most twice that. Its contents are undefined.
    pub(super) fn take(&mut self, len: usize, what: &'static str) -> Result<Bo> {
        let fits = |b: &Bo| b.len() >= len && b.len() <= len.max(4096) * 2;
        if let Some(i) = self.idle.iter().position(fits) {
            return Ok(self.idle.remove(i));
        }
        let rounded = len.max(4096).next_multiple_of(4096);
        match Bo::new(&self.file, rounded, what) {
            // The window or the memory may be held by idle buffers of other sizes.
            Err(crate::Error::Memory { .. }) if !self.idle.is_empty() => {
                self.clear();
                Bo::new(&self.file, rounded, what)
            }
            other => other,
        }
    }

    /// Gives buffers back; the oldest go when too much is idle.
    pub(super) fn put(&mut self, bos: impl IntoIterator<Item = Bo>) {
        self.idle.extend(bos);
        let mut bytes: usize = self.idle.iter().map(Bo::len).sum();
        while bytes > KEEP_BYTES {
            bytes -= self.idle.remove(0).len();
        }
    }

    /// Frees every idle buffer.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
    }
}
