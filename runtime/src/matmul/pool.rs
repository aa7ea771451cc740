//! Scratch buffers of a worker, kept between calls. Right-sized: the driver's cache syncs walk a
//! whole object, so a small call must not be given a large one (npu-rk3588 8.4).

use crate::Result;
use crate::device::{Bo, File};
use std::sync::Arc;

/// Idle buffers; at most this many are kept.
const KEEP: usize = 16;

#[derive(Debug)]
pub(super) struct Pool {
    file: Arc<File>,
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
            return Ok(self.idle.swap_remove(i));
        }
        let rounded = len.max(4096).next_multiple_of(4096);
        match Bo::new(&self.file, rounded, what) {
            // The window or the memory may be held by idle buffers of other sizes.
            Err(crate::Error::Memory { .. }) if !self.idle.is_empty() => {
                self.idle.clear();
                Bo::new(&self.file, rounded, what)
            }
            other => other,
        }
    }

    /// Gives buffers back, most recently used last.
    pub(super) fn put(&mut self, bos: impl IntoIterator<Item = Bo>) {
        self.idle.extend(bos);
        let excess = self.idle.len().saturating_sub(KEEP);
        self.idle.drain(..excess);
    }
}
