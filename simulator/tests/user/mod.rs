//! A process of the tests: memory in segments, EFAULT between them.
#![allow(dead_code)]

use nix::errno::Errno;
use rocket_runtime::device::Deadline;
use rocket_sim::{Caller, Fence};
use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

/// What a wait does: told the fence and the deadline, says how it ended.
pub type Waiter<'a> = Box<dyn FnMut(&Arc<Fence>, Deadline) -> Result<(), Errno> + 'a>;

#[derive(Default)]
pub struct User<'a> {
    segments: BTreeMap<u64, Vec<u8>>,
    /// In place of a real wait.
    pub waiter: Option<Waiter<'a>>,
    /// Passed with the next call.
    pub passed: Option<File>,
    /// Waits so far.
    pub waits: usize,
}

impl User<'_> {
    /// Maps a segment, in place of one that starts at the same address.
    pub fn map(&mut self, at: u64, bytes: impl Into<Vec<u8>>) {
        self.segments.insert(at, bytes.into());
    }

    pub fn unmap(&mut self, at: u64) {
        self.segments.remove(&at);
    }

    /// The segment and the offset in it, if all of the bytes lie there.
    fn place(&mut self, at: u64, len: usize) -> Result<&mut [u8], Errno> {
        if len == 0 {
            return Ok(&mut []);
        }
        let (start, segment) = self.segments.range_mut(..=at).next_back().ok_or(Errno::EFAULT)?;
        let from = usize::try_from(at - start).map_err(|_| Errno::EFAULT)?;
        let to = from.checked_add(len).ok_or(Errno::EFAULT)?;
        segment.get_mut(from..to).ok_or(Errno::EFAULT)
    }

    /// Bytes of its memory, as the process itself sees them.
    pub fn peek(&mut self, at: u64, len: usize) -> Option<Vec<u8>> {
        self.place(at, len).ok().map(|b| b.to_vec())
    }

    pub fn poke(&mut self, at: u64, bytes: &[u8]) -> bool {
        self.write(at, bytes).is_ok()
    }
}

impl Caller for User<'_> {
    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Errno> {
        to.copy_from_slice(self.place(at, to.len())?);
        Ok(())
    }

    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Errno> {
        self.place(at, from.len())?.copy_from_slice(from);
        Ok(())
    }

    fn wait(&mut self, fence: &Arc<Fence>, deadline: Deadline) -> Result<(), Errno> {
        self.waits += 1;
        match &mut self.waiter {
            Some(waiter) => waiter(fence, deadline),
            None => fence.wait(deadline),
        }
    }

    fn passed_file(&mut self) -> Option<File> {
        self.passed.take()
    }
}
