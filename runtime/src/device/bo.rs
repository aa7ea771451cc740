//! Buffer objects, with prepare and finish as guards.

#![allow(unsafe_code)] // one of the design's borders: memory shared with the device

use super::file::{File, TAIL_BYTES, driver};
use super::node::{BoInfo, Deadline, Mapping};
use crate::{Error, Result};
use bytemuck::Pod;
use nix::errno::Errno;
use std::sync::Arc;

/// A buffer the NPU can address, mapped into this process.
///
/// The CPU reaches the contents through [`Bo::read`] and [`Bo::write`] only, which bracket the
/// access with the driver's PREP and FINI: the mapping is cached and not coherent
/// (kernel-and-uapi A.3, A.4).
#[derive(Debug)]
pub struct Bo {
    file: Arc<File>,
    info: BoInfo,
    mapping: Mapping,
    /// Bytes in use, from the start.
    len: usize,
    capacity: usize,
    tail: usize,
}

impl Bo {
    /// Allocates `len` bytes and the tail the feature DMA may over-read. Contents start as zero.
    ///
    /// # Errors
    /// [`Error::Memory`] when memory or the file's 4 GiB window is exhausted, [`Error::Driver`]
    /// otherwise.
    pub fn new(file: &Arc<File>, len: usize, what: &'static str) -> Result<Bo> {
        Bo::with_tail(file, len, TAIL_BYTES, what)
    }

    /// As [`Bo::new`] without the tail, for what no feature DMA reads: programs and results. A
    /// stock driver synchronises whole objects, so a tail is paid for at each access.
    ///
    /// # Errors
    /// As [`Bo::new`].
    pub fn exact(file: &Arc<File>, len: usize, what: &'static str) -> Result<Bo> {
        Bo::with_tail(file, len, 0, what)
    }

    fn with_tail(file: &Arc<File>, len: usize, tail: usize, what: &'static str) -> Result<Bo> {
        file.check_process()?;
        let asked = len as u64 + tail as u64;
        let memory = |why: &str| Error::Memory { asked, what, why: why.into() };
        let size = u32::try_from(asked).map_err(|_| memory("a buffer object is under 4 GiB"))?;
        let info = file.node().create_bo(size).map_err(|e| match e {
            Errno::ENOMEM => memory("the kernel is out of memory"),
            Errno::ENOSPC => memory("the file's 4 GiB address window is full"),
            e => driver("CREATE_BO", e, what),
        })?;
        // From here on a failure must not leak the handle.
        let mapped = if info.iova + asked > 1 << 32 {
            Err(memory("the object lies beyond the 32 bits that registers hold"))
        } else {
            file.node().map_bo(&info, size as usize).map_err(|e| driver("mmap", e, what))
        };
        match mapped {
            Ok(mapping) if mapping.len() >= len => {
                Ok(Bo { file: file.clone(), info, mapping, len, capacity: len, tail })
            }
            Ok(_) => {
                let _ = file.node().close_bo(info.handle);
                Err(memory("the mapping is shorter than the object"))
            }
            Err(e) => {
                // Nothing more can be done about a handle that will not close.
                let _ = file.node().close_bo(info.handle);
                Err(e)
            }
        }
    }

    /// GEM handle on its file.
    pub fn handle(&self) -> u32 {
        self.info.handle
    }

    /// Address of byte 0 on its file.
    pub fn iova(&self) -> u32 {
        // Bo::new refused anything that ends beyond 4 GiB.
        self.info.iova as u32
    }

    /// Whether the buffer lives in `file`'s address space. Addresses mean nothing on another file.
    pub fn is_on(&self, file: &Arc<File>) -> bool {
        Arc::ptr_eq(&self.file, file)
    }

    /// Bytes behind the contents.
    pub fn tail(&self) -> usize {
        self.tail
    }

    /// Bytes there are, without the tail.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Uses the first `len` bytes only, all there are at most. The rest is neither handed out
    /// nor, where the driver can leave parts out, synchronised.
    pub fn narrow(&mut self, len: usize) {
        self.len = len.min(self.capacity);
    }

    /// Bytes in use.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Reads the contents as the device left them. Waits for the last writer, briefly: whoever
    /// submitted should have waited.
    ///
    /// # Errors
    /// [`Error::Timeout`] or [`Error::Driver`].
    pub fn read<T: Pod, R>(&mut self, f: impl FnOnce(&[T]) -> R) -> Result<R> {
        self.prepare()?;
        Ok(f(self.prepared()))
    }

    /// The contents of a buffer that [`Pending::wait`](super::Pending::wait) has just prepared:
    /// the first one that the last job writes. Of any other they may be stale.
    pub fn prepared<T: Pod>(&mut self) -> &[T] {
        // SAFETY: the mapping is `len` readable bytes for as long as self lives. &mut self makes
        // this the only access: no other closure runs, and no job is in flight, for its Pending
        // would hold a shared borrow.
        let bytes = unsafe { std::slice::from_raw_parts(self.mapping.as_ptr().as_ptr(), self.len) };
        cast(bytes)
    }

    /// Changes the contents and makes the change visible to the device.
    ///
    /// # Errors
    /// [`Error::Timeout`] or [`Error::Driver`].
    pub fn write<T: Pod, R>(&mut self, f: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        self.prepare()?;
        self.fill(f)
    }

    /// As [`Bo::write`] for contents that are replaced whole: no wait and no read sync. Where the
    /// device wrote the buffer before, bytes that the closure does not write may come from a stale
    /// cache line; nobody may read them.
    ///
    /// # Errors
    /// [`Error::Driver`].
    pub fn fill<T: Pod, R>(&mut self, f: impl FnOnce(&mut [T]) -> R) -> Result<R> {
        // SAFETY: as in `read`; the mapping is writable too.
        let bytes =
            unsafe { std::slice::from_raw_parts_mut(self.mapping.as_ptr().as_ptr(), self.len) };
        let finish = Finish(&self.file, self.info.handle, self.len);
        let result = f(cast_mut(bytes));
        finish.now()?;
        Ok(result)
    }

    fn prepare(&self) -> Result<()> {
        match self.file.prep_part(self.info.handle, self.len, Deadline::after_ms(1_000)) {
            Ok(()) => Ok(()),
            Err(Errno::EBUSY | Errno::ETIMEDOUT) => {
                Err(Error::Timeout { waited_ms: 1_000, doing: "access to a buffer".into() })
            }
            Err(e) => Err(driver("PREP_BO", e, "access to a buffer")),
        }
    }
}

/// FINI even when the closure panics: the device must not see half-flushed lines later.
struct Finish<'a>(&'a File, u32, usize);

impl Finish<'_> {
    fn now(self) -> Result<()> {
        let result = self.0.fini_part(self.1, self.2);
        std::mem::forget(self);
        result.map_err(|e| driver("FINI_BO", e, "flushing a buffer"))
    }
}

impl Drop for Finish<'_> {
    fn drop(&mut self) {
        let _ = self.0.fini_part(self.1, self.2);
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        if self.file.check_process().is_err() {
            return;
        }
        if self.file.drain_forgotten(self.info.handle) {
            // Nothing more can be done about a handle that will not close.
            let _ = self.file.node().close_bo(self.info.handle);
        }
    }
}

fn cast<T: Pod>(bytes: &[u8]) -> &[T] {
    // Mappings are page-aligned; a trailing part of an element is left out.
    let whole = bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice(&bytes[..whole])
}

fn cast_mut<T: Pod>(bytes: &mut [u8]) -> &mut [T] {
    let whole = bytes.len() / size_of::<T>() * size_of::<T>();
    bytemuck::cast_slice_mut(&mut bytes[..whole])
}
