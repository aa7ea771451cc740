//! [`Node`]: one open file of the accel node, with the driver's calls as they are; [`Board`]:
//! what opens such files.

use crate::{Result, soc::Profile, uapi};
use nix::errno::Errno;
use std::any::Any;
use std::fmt::Debug;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The driver interface version (kernel-and-uapi A.1). `0.0.0` is stock mainline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DriverVersion {
    /// Major: 1 or more means per-job submit errors are returned.
    pub major: u32,
    /// Minor: see the ladder in the spec.
    pub minor: u32,
}

/// What a driver offers beside the calls that every version has (kernel-and-uapi A.1, A.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Abilities {
    /// The tasks of a job may be chained into one kick ([`uapi::JOB_BATCHED`]).
    pub batched: bool,
    /// Parts of a buffer can be synchronised.
    pub ranges: bool,
}

impl Abilities {
    /// What `version` and the parameter of [`Board::may_batch`] promise. Never guessed: a chained
    /// layout stalls a driver that runs it task by task (A.6).
    pub fn new(version: DriverVersion, may_batch: Option<bool>) -> Abilities {
        let at_least = |minor| version >= DriverVersion { major: 1, minor };
        Abilities { batched: at_least(1) && may_batch.unwrap_or(true), ranges: at_least(5) }
    }
}

/// A buffer object as CREATE_BO describes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BoInfo {
    /// GEM handle, valid on this file only.
    pub handle: u32,
    /// Address in this file's IOVA space. Zero is legal and is what a fresh file hands out first.
    pub iova: u64,
    /// Offset for mmap.
    pub mmap_offset: u64,
}

/// One job to submit: programs that run in order on one core, and the buffers they touch.
#[derive(Debug, Clone, Copy)]
pub struct JobRef<'a> {
    /// Register-command programs.
    pub tasks: &'a [uapi::Task],
    /// Handles that the job only reads.
    pub reads: &'a [u32],
    /// Handles that the job writes. A handle in both lists makes a stock driver drop the job in
    /// silence (kernel-and-uapi A.5).
    pub writes: &'a [u32],
    /// [`uapi::JOB_BATCHED`] and its like.
    pub flags: u32,
}

/// An absolute `CLOCK_MONOTONIC` time in nanoseconds, as PREP_BO takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(pub i64);

impl Deadline {
    /// Zero: poll, do not wait.
    pub const POLL: Deadline = Deadline(0);

    /// Now.
    pub fn now() -> Deadline {
        use nix::time::{ClockId, clock_gettime};
        // CLOCK_MONOTONIC cannot fail on Linux; a zero would only turn a wait into a poll.
        let ns = clock_gettime(ClockId::CLOCK_MONOTONIC)
            .map_or(0, |t| t.tv_sec().saturating_mul(1_000_000_000).saturating_add(t.tv_nsec()));
        Deadline(ns)
    }

    /// `ms` milliseconds from now, saturating: a wrapped value would be an instant poll.
    pub fn after_ms(ms: u64) -> Deadline {
        let ns = i64::try_from(ms.saturating_mul(1_000_000)).unwrap_or(i64::MAX);
        Deadline(Deadline::now().0.saturating_add(ns))
    }
}

/// A buffer object mapped into this process. Whoever made it keeps the memory alive through
/// `owner` until the mapping is dropped.
#[derive(Debug)]
pub struct Mapping {
    ptr: NonNull<u8>,
    len: usize,
    _owner: Box<dyn Owner>,
}

/// Anything whose drop releases a mapping.
trait Owner: Any + Send + Sync + Debug {}
impl<T: Any + Send + Sync + Debug> Owner for T {}

#[allow(unsafe_code)]
// SAFETY: a Mapping is a pointer to shared memory plus its owner, which is Send and Sync; access
// through it is guarded by `Bo`.
unsafe impl Send for Mapping {}
#[allow(unsafe_code)]
// SAFETY: as above; a shared Mapping gives out nothing but its address and length.
unsafe impl Sync for Mapping {}

/// Memory shared as atomic words: what a board in software maps.
pub trait SharedWords: Any + Send + Sync + Debug {
    /// The words, always the same ones.
    fn words(&self) -> &[AtomicU64];
}

impl Mapping {
    /// Wraps `len` bytes at `ptr`.
    ///
    /// # Safety
    /// They must be readable and writable, and stay so as long as `owner` lives; nobody but the
    /// device may touch them while they are accessed through the mapping.
    #[allow(unsafe_code)]
    pub unsafe fn new(
        ptr: NonNull<u8>,
        len: usize,
        owner: impl Any + Send + Sync + Debug,
    ) -> Mapping {
        Mapping { ptr, len, _owner: Box::new(owner) }
    }

    /// Maps the first `len` bytes of a software board's memory; `None` when it is shorter.
    pub fn of_words<T: SharedWords>(owner: Arc<T>, len: usize) -> Option<Mapping> {
        let words = owner.words();
        if len > size_of_val(words) {
            return None;
        }
        let ptr = NonNull::from(words).cast();
        Some(Mapping { ptr, len, _owner: Box::new(owner) })
    }

    /// First byte.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

/// One open file of the accel node: the driver's calls, unadorned. Errors are errnos as the
/// driver gives them, including its silences: see kernel-and-uapi A.4 and A.5 for what success
/// does not mean. `File` is the careful layer above.
pub trait Node: Send + Sync + Debug {
    /// DRM_IOCTL_VERSION.
    fn version(&self) -> Result<DriverVersion, Errno>;
    /// CREATE_BO of `size` bytes.
    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno>;
    /// mmap of a whole buffer object, `len` bytes.
    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno>;
    /// SUBMIT. Success says that the call was understood, not that a job was queued.
    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno>;
    /// PREP_BO: waits for the last writer, then makes the device's writes visible to the CPU.
    /// Success says that the fence signalled, not that the job ran.
    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno>;
    /// FINI_BO: makes the CPU's writes visible to the device.
    fn fini_bo(&self, handle: u32) -> Result<(), Errno>;
    /// GEM_CLOSE.
    fn close_bo(&self, handle: u32) -> Result<(), Errno>;
    /// As [`Node::prep_bo`] for parts of the object: ascending, disjoint, not empty, at most
    /// [`uapi::MAX_RANGES`] (interface 1.5). A driver without the call says EINVAL.
    fn prep_bo_ranges(&self, _: u32, _: &[uapi::BoRange], _: Deadline) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
    /// As [`Node::fini_bo`] for parts of the object.
    fn fini_bo_ranges(&self, _: u32, _: &[uapi::BoRange]) -> Result<(), Errno> {
        Err(Errno::EINVAL)
    }
}

/// Something that opens accel files: a real board ([`KernelBoard`](super::KernelBoard)) or a
/// simulated one (`SimBoard` of the crate `rocket-sim`).
pub trait Board: Send + Sync + Debug {
    /// The part on it.
    fn profile(&self) -> &'static Profile;
    /// For people: which board, by what path.
    fn describe(&self) -> String;
    /// Whether the driver's parameter lets jobs be batched; `None` where it has no such parameter
    /// (kernel-and-uapi A.6).
    fn may_batch(&self) -> Option<bool> {
        None
    }
    /// Opens one more file. Each file has its own IOVA space and runs on one core at a time
    /// (kernel-and-uapi A.5).
    ///
    /// # Errors
    /// [`Error::NoNode`](crate::Error::NoNode), [`Error::Permission`](crate::Error::Permission) or
    /// [`Error::Driver`](crate::Error::Driver), by what opening the node says.
    fn open(&self) -> Result<Arc<dyn Node>>;
}
