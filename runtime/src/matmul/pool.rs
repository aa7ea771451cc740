//! Scratch buffers of a worker, kept between calls. Right-sized: the driver's cache syncs walk a
//! whole object, so a small call must not be given a large one (npu-rk3588 8.4).

use crate::Result;
use crate::device::{Bo, File, TAIL_BYTES};
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

    /// A buffer for `len` bytes that a feature DMA may over-read. Its contents are undefined.
    pub(super) fn operand(&mut self, len: usize, what: &'static str) -> Result<Bo> {
        self.take(len, TAIL_BYTES, what)
    }

    /// A buffer for `len` bytes of programs or results. Its contents are undefined.
    pub(super) fn exact(&mut self, len: usize, what: &'static str) -> Result<Bo> {
        self.take(len, 0, what)
    }

    /// The smallest idle buffer that is not much larger, or a new one.
    fn take(&mut self, len: usize, tail: usize, what: &'static str) -> Result<Bo> {
        let rounded = len.max(1).next_multiple_of(4096);
        // A stock driver synchronises all of a buffer, at every access.
        let most = rounded + rounded / 8;
        let fits = |b: &&Bo| b.tail() == tail && (rounded..=most).contains(&b.capacity());
        let best = self.idle.iter().filter(fits).min_by_key(|b| b.capacity()).map(Bo::handle);
        let mut bo = match self.idle.iter().position(|b| Some(b.handle()) == best) {
            Some(i) => self.idle.remove(i),
            None => self.create(rounded, tail, what)?,
        };
        bo.narrow(len);
        Ok(bo)
    }

    fn create(&mut self, len: usize, tail: usize, what: &'static str) -> Result<Bo> {
        let file = self.file.clone();
        let new = || match tail {
            0 => Bo::exact(&file, len, what),
            _ => Bo::new(&file, len, what),
        };
        match new() {
            // The window or the memory may be held by idle buffers of other sizes.
            Err(crate::Error::Memory { .. }) if !self.idle.is_empty() => {
                self.clear();
                new()
            }
            other => other,
        }
    }

    /// Gives buffers back; the oldest go when too much is idle.
    pub(super) fn put(&mut self, bos: impl IntoIterator<Item = Bo>) {
        self.idle.extend(bos);
        let mut bytes: usize = self.idle.iter().map(Bo::capacity).sum();
        while bytes > KEEP_BYTES {
            bytes -= self.idle.remove(0).capacity();
        }
    }

    /// Frees every idle buffer.
    pub(super) fn clear(&mut self) {
        self.idle.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::tests::Driver;

    /// A buffer serves again where it has the tail that is needed and is not much larger.
    #[test]
    fn idle_buffers_serve_what_they_fit() {
        const KIB: usize = 1024;
        let driver = Driver::default();
        let mut pool = Pool::new(driver.file());
        let results = pool.exact(64 * KIB, "a test").unwrap();
        let operand = pool.operand(64 * KIB, "a test").unwrap();
        let [of_results, of_operands] = [&results, &operand].map(Bo::handle);
        pool.put([results, operand]);
        // A feature DMA would read beyond the one, a stock driver would synchronise all of it.
        let small = pool.exact(8 * KIB, "a test").unwrap();
        assert!(![of_results, of_operands].contains(&small.handle()));
        let operand = pool.operand(60 * KIB, "a test").unwrap();
        assert_eq!((operand.handle(), operand.len()), (of_operands, 60 * KIB));
        assert_eq!(operand.tail(), TAIL_BYTES);
        let other = pool.operand(60 * KIB, "a test").unwrap();
        assert!(other.handle() != of_results && other.tail() == TAIL_BYTES);
        assert_eq!(pool.exact(64 * KIB, "a test").unwrap().handle(), of_results);
    }

    #[test]
    fn the_oldest_go_when_too_much_is_idle() {
        let driver = Driver::default();
        let mut pool = Pool::new(driver.file());
        let bos = [1, 2, 3].map(|_| pool.exact(40 << 20, "a test").unwrap());
        let handles: Vec<u32> = bos.iter().map(Bo::handle).collect();
        pool.put(bos);
        let kept: Vec<u32> = pool.idle.iter().map(Bo::handle).collect();
        assert_eq!(kept, handles[1..]);
    }
}
