//! The `rocket` driver's ioctls: structs, sizes and numbers, nothing else.
//!
//! Source: kernel-and-uapi A.2. The sizes and the numbers are asserted against that table at
//! compile time, so an error in either does not build.

use bytemuck::{Pod, Zeroable};
use std::mem::{offset_of, size_of};

/// Name that `DRM_IOCTL_VERSION` reports for the driver (kernel-and-uapi A.1).
pub const DRIVER_NAME: &str = "rocket";

/// `DRM_IOCTL_ROCKET_CREATE_BO` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct CreateBo {
    /// In: bytes wanted; rounded up to a page by the driver.
    pub size: u32,
    /// Out: GEM handle.
    pub handle: u32,
    /// Out: address in this file's IOVA space. Zero is a legal address.
    pub dma_address: u64,
    /// Out: offset for `mmap`.
    pub offset: u64,
}

/// `DRM_IOCTL_ROCKET_PREP_BO` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct PrepBo {
    /// Handle to wait for.
    pub handle: u32,
    /// Must be zero.
    pub reserved: u32,
    /// Absolute `CLOCK_MONOTONIC` deadline in nanoseconds; zero or past means poll.
    pub timeout_ns: i64,
}

/// `DRM_IOCTL_ROCKET_FINI_BO` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct FiniBo {
    /// Handle to flush.
    pub handle: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// One register-command program of a job.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct Task {
    /// IOVA of the program, 16-byte aligned.
    pub regcmd: u32,
    /// Its length in 64-bit words, trailer included.
    pub regcmd_count: u32,
}

/// One job, in the grown 48-byte layout. Stock kernels stride by the declared size and read the
/// first 40 bytes; newer ones check that the tail is zero (kernel-and-uapi A.5).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct Job {
    /// Pointer to `task_count` tasks.
    pub tasks: u64,
    /// Pointer to the handles that the job reads.
    pub in_bo_handles: u64,
    /// Pointer to the handles that the job writes.
    pub out_bo_handles: u64,
    /// Number of tasks.
    pub task_count: u32,
    /// `size_of::<Task>()`.
    pub task_struct_size: u32,
    /// Number of read handles.
    pub in_bo_handle_count: u32,
    /// Number of written handles.
    pub out_bo_handle_count: u32,
    /// Job flags, [`JOB_BATCHED`] and its like; driver interface 1.1 or newer.
    pub flags: u32,
    /// Must be zero.
    pub reserved: u32,
}

/// The job's programs are chained and run as one kick (kernel-and-uapi A.6).
pub const JOB_BATCHED: u32 = 1 << 0;
/// The outputs are wider than a byte, so the DPU raises no completion on RK3576; interface 1.2.
pub const JOB_NO_DPU_DONE: u32 = 1 << 1;
/// The last program is a pooling program; interface 1.3.
pub const JOB_PPU_DONE: u32 = 1 << 2;

/// `DRM_IOCTL_ROCKET_SUBMIT` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct Submit {
    /// Pointer to `job_count` jobs.
    pub jobs: u64,
    /// Number of jobs.
    pub job_count: u32,
    /// `size_of::<Job>()`.
    pub job_struct_size: u32,
    /// Must be zero.
    pub reserved: u64,
}

/// Part of a buffer object, for the ranged cache ioctls (interface 1.5).
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
pub struct BoRange {
    /// First byte.
    pub offset: u64,
    /// Bytes, not zero.
    pub size: u64,
}

/// Most ranges of one call (kernel-and-uapi A.4).
pub const MAX_RANGES: u32 = 1024;

/// `DRM_IOCTL_ROCKET_PREP_BO_RANGES` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct PrepBoRanges {
    /// Handle to wait for.
    pub handle: u32,
    /// Number of ranges; zero means the whole object.
    pub range_count: u32,
    /// Pointer to ascending, disjoint [`BoRange`]s.
    pub ranges: u64,
    /// As in [`PrepBo`].
    pub timeout_ns: i64,
    /// Must be zero.
    pub reserved: u64,
}

/// `DRM_IOCTL_ROCKET_FINI_BO_RANGES` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct FiniBoRanges {
    /// Handle to flush.
    pub handle: u32,
    /// Number of ranges; zero means the whole object.
    pub range_count: u32,
    /// Pointer to ascending, disjoint [`BoRange`]s.
    pub ranges: u64,
    /// Must be zero.
    pub reserved: u64,
}

/// `DRM_IOCTL_GEM_CLOSE` argument.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct GemClose {
    /// Handle to drop.
    pub handle: u32,
    /// Padding.
    pub pad: u32,
}

/// `DRM_IOCTL_VERSION` argument on a 64-bit machine.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct DrmVersion {
    /// Out: major.
    pub major: i32,
    /// Out: minor.
    pub minor: i32,
    /// Out: patch level.
    pub patch: i32,
    /// Padding.
    pub pad: u32,
    /// In: capacity of `name`; out: its length.
    pub name_len: u64,
    /// Pointer to the name buffer.
    pub name: u64,
    /// As `name_len`, for the date.
    pub date_len: u64,
    /// Pointer to the date buffer.
    pub date: u64,
    /// As `name_len`, for the description.
    pub desc_len: u64,
    /// Pointer to the description buffer.
    pub desc: u64,
}

const fn ioc(dir: u32, nr: u32, size: usize) -> u32 {
    dir << 30 | (size as u32) << 16 | (b'd' as u32) << 8 | nr
}
const WRITE: u32 = 1;
const READ_WRITE: u32 = 3;

/// Number of `DRM_IOCTL_VERSION`.
pub const IOCTL_VERSION: u32 = ioc(READ_WRITE, 0x00, size_of::<DrmVersion>());
/// Number of `DRM_IOCTL_GEM_CLOSE`.
pub const IOCTL_GEM_CLOSE: u32 = ioc(WRITE, 0x09, size_of::<GemClose>());
/// Number of `DRM_IOCTL_ROCKET_CREATE_BO`.
pub const IOCTL_CREATE_BO: u32 = ioc(READ_WRITE, 0x40, size_of::<CreateBo>());
/// Number of `DRM_IOCTL_ROCKET_SUBMIT`.
pub const IOCTL_SUBMIT: u32 = ioc(WRITE, 0x41, size_of::<Submit>());
/// Number of `DRM_IOCTL_ROCKET_PREP_BO`.
pub const IOCTL_PREP_BO: u32 = ioc(WRITE, 0x42, size_of::<PrepBo>());
/// Number of `DRM_IOCTL_ROCKET_FINI_BO`.
pub const IOCTL_FINI_BO: u32 = ioc(WRITE, 0x43, size_of::<FiniBo>());
/// Number of `DRM_IOCTL_ROCKET_PREP_BO_RANGES`.
pub const IOCTL_PREP_BO_RANGES: u32 = ioc(WRITE, 0x44, size_of::<PrepBoRanges>());
/// Number of `DRM_IOCTL_ROCKET_FINI_BO_RANGES`.
pub const IOCTL_FINI_BO_RANGES: u32 = ioc(WRITE, 0x45, size_of::<FiniBoRanges>());

// The table of kernel-and-uapi A.2, independent of the types above.
const _: () = {
    assert!(IOCTL_VERSION == 0xc040_6400);
    assert!(IOCTL_GEM_CLOSE == 0x4008_6409);
    assert!(IOCTL_CREATE_BO == 0xc018_6440);
    assert!(IOCTL_SUBMIT == 0x4018_6441);
    assert!(IOCTL_PREP_BO == 0x4010_6442);
    assert!(IOCTL_FINI_BO == 0x4008_6443);
    assert!(IOCTL_PREP_BO_RANGES == 0x4020_6444);
    assert!(IOCTL_FINI_BO_RANGES == 0x4018_6445);
    assert!(offset_of!(PrepBoRanges, ranges) == 8 && offset_of!(PrepBoRanges, timeout_ns) == 16);
    assert!(offset_of!(FiniBoRanges, ranges) == 8 && offset_of!(FiniBoRanges, reserved) == 16);
    assert!(size_of::<Task>() == 8 && size_of::<Job>() == 48 && size_of::<Submit>() == 24);
    assert!(offset_of!(CreateBo, handle) == 4 && offset_of!(CreateBo, dma_address) == 8);
    assert!(offset_of!(CreateBo, offset) == 16);
    assert!(offset_of!(PrepBo, timeout_ns) == 8);
    assert!(offset_of!(Job, in_bo_handles) == 8 && offset_of!(Job, out_bo_handles) == 16);
    assert!(offset_of!(Job, task_count) == 24 && offset_of!(Job, task_struct_size) == 28);
    assert!(offset_of!(Job, in_bo_handle_count) == 32);
    assert!(offset_of!(Job, out_bo_handle_count) == 36);
    assert!(offset_of!(Job, flags) == 40 && offset_of!(Job, reserved) == 44);
    assert!(offset_of!(Submit, job_count) == 8 && offset_of!(Submit, job_struct_size) == 12);
    assert!(offset_of!(Submit, reserved) == 16);
};
