//! Buffer objects. Each is two copies of its bytes: what the CPU sees and what the device sees.
//! Only FINI_BO and PREP_BO move bytes between them, so a forgotten one shows
//! (kernel-and-uapi A.4).

use super::fence::{Fence, lock};
use super::space::Space;
use nix::errno::Errno;
use rocket_runtime::device::SharedWords;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// The page size that CREATE_BO rounds to (kernel-and-uapi A.3).
pub const PAGE: u64 = 4096;

/// Memory that threads may read and write at any time.
pub struct Memory(Box<[AtomicU64]>);

impl std::fmt::Debug for Memory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Memory({} bytes)", self.0.len() * 8)
    }
}

impl Memory {
    /// Zeroed memory, which the host provides page by page as it is touched.
    pub fn zeroed(bytes: u64) -> Result<Memory, Errno> {
        let words = usize::try_from(bytes / 8).map_err(|_| Errno::ENOMEM)?;
        bytemuck::allocation::try_zeroed_slice_box(words).map(Memory).map_err(|()| Errno::ENOMEM)
    }

    /// The bytes, eight at a time.
    pub fn words(&self) -> &[AtomicU64] {
        &self.0
    }

    /// Copies everything from another memory of the same size. Equal words are not written, so
    /// that pages nobody used stay unallocated.
    fn copy_from(&self, other: &Memory) {
        for (to, from) in self.0.iter().zip(&other.0) {
            let value = from.load(Relaxed);
            if to.load(Relaxed) != value {
                to.store(value, Relaxed);
            }
        }
    }
}

/// A buffer object. It lives as long as a handle, a mapping or a job needs it; then its addresses
/// are free again.
#[derive(Debug)]
pub struct Bo {
    iova: u64,
    size: u64,
    cpu: Memory,
    device: Arc<Memory>,
    space: Arc<Space>,
    writer: Mutex<Option<Arc<Fence>>>,
}

/// What the CPU maps.
impl SharedWords for Bo {
    fn words(&self) -> &[AtomicU64] {
        self.cpu.words()
    }
}

impl Bo {
    /// Allocates `size` bytes, rounded up to pages, in a file's address space.
    pub fn create(space: &Arc<Space>, size: u32) -> Result<Bo, Errno> {
        let size = u64::from(size).next_multiple_of(PAGE);
        if size == 0 {
            return Err(Errno::ENOSPC);
        }
        let (cpu, device) = (Memory::zeroed(size)?, Arc::new(Memory::zeroed(size)?));
        let iova = space.insert(size, &device)?;
        let (space, writer) = (Arc::clone(space), Mutex::new(None));
        Ok(Bo { iova, size, cpu, device, space, writer })
    }

    pub fn iova(&self) -> u64 {
        self.iova
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// FINI_BO: the device sees what the CPU wrote.
    pub fn to_device(&self) {
        self.device.copy_from(&self.cpu);
    }

    /// PREP_BO: the CPU sees what the device wrote.
    pub fn to_cpu(&self) {
        self.cpu.copy_from(&self.device);
    }

    /// The fence of the last job that writes this buffer.
    pub fn last_writer(&self) -> Option<Arc<Fence>> {
        lock(&self.writer).clone()
    }

    pub fn set_writer(&self, fence: &Arc<Fence>) {
        *lock(&self.writer) = Some(Arc::clone(fence));
    }
}

impl Drop for Bo {
    fn drop(&mut self) {
        self.space.remove(self.iova);
    }
}
