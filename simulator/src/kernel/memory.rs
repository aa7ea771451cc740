//! Buffer objects. Each is two copies of its bytes: what the CPU sees and what the device sees.
//! Only FINI_BO and PREP_BO move bytes between them, so a forgotten one shows
//! (kernel-and-uapi A.4).

use super::fence::{Fence, lock};
use super::space::Space;
use crate::machine::Alive;
use nix::errno::Errno;
use rocket_runtime::device::SharedWords;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
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
}

/// Where the CPU's copy of a buffer lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backing {
    /// In this process, mapped by handing out its address.
    Words,
    /// In an anonymous file, which other processes map.
    File,
}

#[derive(Debug)]
enum CpuCopy {
    Words(Memory),
    File(File),
}

/// A buffer object. It lives as long as a handle, a mapping or a job needs it; then its addresses
/// are free again.
#[derive(Debug)]
pub struct Bo {
    iova: u64,
    size: u64,
    cpu: CpuCopy,
    device: Arc<Memory>,
    space: Arc<Space>,
    alive: Arc<Alive>,
    writer: Mutex<Option<Arc<Fence>>>,
}

/// What the CPU maps; nothing when other processes do.
impl SharedWords for Bo {
    fn words(&self) -> &[AtomicU64] {
        match &self.cpu {
            CpuCopy::Words(m) => m.words(),
            CpuCopy::File(_) => &[],
        }
    }
}

impl Bo {
    /// Allocates `size` bytes, rounded up to pages, in a file's address space.
    pub fn create(
        space: &Arc<Space>,
        size: u32,
        backing: Backing,
        alive: &Arc<Alive>,
    ) -> Result<Bo, Errno> {
        let size = u64::from(size).next_multiple_of(PAGE);
        if size == 0 {
            return Err(Errno::ENOSPC);
        }
        let cpu = match backing {
            Backing::Words => CpuCopy::Words(Memory::zeroed(size)?),
            Backing::File => CpuCopy::File(anonymous_file(size)?),
        };
        let device = Arc::new(Memory::zeroed(size)?);
        let iova = space.insert(size, &device)?;
        alive.buffers.fetch_add(1, Relaxed);
        alive.bytes.fetch_add(size, Relaxed);
        let (space, alive) = (Arc::clone(space), Arc::clone(alive));
        Ok(Bo { iova, size, cpu, device, space, alive, writer: Mutex::new(None) })
    }

    pub fn iova(&self) -> u64 {
        self.iova
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// All of it.
    pub fn whole(&self) -> Range<u64> {
        0..self.size
    }

    /// The file that other processes map.
    pub fn file(&self) -> Option<&File> {
        match &self.cpu {
            CpuCopy::Words(_) => None,
            CpuCopy::File(f) => Some(f),
        }
    }

    /// FINI_BO: the device sees what the CPU wrote, between two multiples of eight bytes.
    pub fn to_device(&self, from: u64, to: u64) {
        let device = span(&self.device, from, to);
        match &self.cpu {
            CpuCopy::Words(cpu) => copy(device, span(cpu, from, to)),
            CpuCopy::File(f) => each_chunk(device, from, |at, words, bytes| {
                if f.read_exact_at(bytes, at).is_ok() {
                    for (word, b) in words.iter().zip(bytes.chunks_exact(8)) {
                        store(word, u64::from_le_bytes(b.try_into().unwrap_or_default()));
                    }
                }
            }),
        }
    }

    /// PREP_BO: the CPU sees what the device wrote, between two multiples of eight bytes.
    pub fn to_cpu(&self, from: u64, to: u64) {
        let device = span(&self.device, from, to);
        match &self.cpu {
            CpuCopy::Words(cpu) => copy(span(cpu, from, to), device),
            CpuCopy::File(f) => {
                let mut new = Vec::new();
                each_chunk(device, from, |at, words, bytes| {
                    let known = f.read_exact_at(bytes, at).is_ok();
                    new.clear();
                    new.extend(words.iter().flat_map(|w| w.load(Relaxed).to_le_bytes()));
                    if !known || new != bytes {
                        // It cannot fail but for lack of memory; then the CPU sees old data, and
                        // the log says why.
                        if let Err(e) = f.write_all_at(&new, at) {
                            tracing::error!("cannot show device memory to the CPU: {e}");
                        }
                    }
                });
            }
        }
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
        self.alive.buffers.fetch_sub(1, Relaxed);
        self.alive.bytes.fetch_sub(self.size, Relaxed);
    }
}

/// Memory of its own that a descriptor stands for; it can neither grow nor shrink.
fn anonymous_file(size: u64) -> Result<File, Errno> {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let errno = |e: rustix::io::Errno| Errno::from_raw(e.raw_os_error());
    let fd = memfd_create("rocket-sim-bo", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)
        .map_err(errno)?;
    ftruncate(&fd, size).map_err(errno)?;
    fcntl_add_seals(&fd, SealFlags::GROW | SealFlags::SHRINK).map_err(errno)?;
    Ok(File::from(fd))
}

fn span(m: &Memory, from: u64, to: u64) -> &[AtomicU64] {
    &m.words()[(from / 8) as usize..(to / 8) as usize]
}

/// Equal words are not written, so that pages nobody used stay unallocated.
fn store(to: &AtomicU64, value: u64) {
    if to.load(Relaxed) != value {
        to.store(value, Relaxed);
    }
}

fn copy(to: &[AtomicU64], from: &[AtomicU64]) {
    for (to, from) in to.iter().zip(from) {
        store(to, from.load(Relaxed));
    }
}

/// Calls `f` with an offset in the buffer, the words from there on, and as many bytes to use.
fn each_chunk(words: &[AtomicU64], from: u64, mut f: impl FnMut(u64, &[AtomicU64], &mut [u8])) {
    const WORDS: usize = 8192;
    let mut bytes = vec![0; WORDS.min(words.len()) * 8];
    for (i, chunk) in words.chunks(WORDS).enumerate() {
        f(from + (i * WORDS * 8) as u64, chunk, &mut bytes[..chunk.len() * 8]);
    }
}
