//! The driver's ioctls as bytes: sizes, copies from the caller's memory, and which errno comes
//! first (kernel-and-uapi A.2 to A.6).

mod core;
mod submit;

use super::fence::Fence;
use crate::SimFile;
use crate::fault::Call;
use nix::errno::Errno;
use rocket_runtime::device::{Deadline, Node};
use rocket_runtime::uapi::{self, BoRange};
use std::fs::File;
use std::ops::Range;
use std::slice::from_ref;
use std::sync::Arc;

/// The process that makes a call.
pub trait Caller {
    /// Copies from the caller's memory.
    ///
    /// # Errors
    /// EFAULT when it is not readable.
    fn read(&mut self, at: u64, to: &mut [u8]) -> Result<(), Errno>;

    /// Copies to the caller's memory.
    ///
    /// # Errors
    /// EFAULT when it is not writable.
    fn write(&mut self, at: u64, from: &[u8]) -> Result<(), Errno>;

    /// Waits for a fence that has not signalled yet, until a deadline that lies ahead.
    ///
    /// # Errors
    /// ETIMEDOUT, or EINTR when the caller got a signal.
    fn wait(&mut self, fence: &Arc<Fence>, deadline: Deadline) -> Result<(), Errno> {
        fence.wait(deadline)
    }

    /// The open file that an argument names, for PRIME_FD_TO_HANDLE.
    fn passed_file(&mut self) -> Option<File> {
        None
    }
}

/// What a successful ioctl returns.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The call's return value.
    pub value: i32,
    /// A file that the caller gets; its number belongs at byte 8 of the argument.
    pub file: Option<File>,
}

/// Direction bits of an ioctl number, as seen by the caller.
const COPIES_IN: u32 = 1 << 30;
const COPIES_OUT: u32 = 1 << 31;

/// One ioctl that is known: its number within DRM, its struct's size and its directions.
struct Known {
    nr: u32,
    size: usize,
    directions: u32,
    run: Handler,
}

type Handler = fn(&SimFile, &mut [u8], &mut dyn Caller) -> Result<Outcome, Errno>;

const fn driver(number: u32, run: Handler) -> Known {
    let (nr, size) = (number & 0xff, (number >> 16 & 0x3fff) as usize);
    Known { nr, size, directions: number & (COPIES_IN | COPIES_OUT), run }
}

/// What every driver has.
static BASE: [Known; 5] = [
    driver(uapi::IOCTL_CREATE_BO, create_bo),
    driver(uapi::IOCTL_SUBMIT, submit::run),
    driver(uapi::IOCTL_PREP_BO, prep_bo),
    driver(uapi::IOCTL_FINI_BO, fini_bo),
    driver(uapi::IOCTL_GEM_CLOSE, core::gem_close),
];

/// The interface from 1.5 on.
static RANGED: [Known; 2] = [
    driver(uapi::IOCTL_PREP_BO_RANGES, prep_bo_ranges),
    driver(uapi::IOCTL_FINI_BO_RANGES, fini_bo_ranges),
];

impl SimFile {
    /// Runs the ioctl `number` with the argument at `arg` in the caller's memory.
    ///
    /// # Errors
    /// As the driver: see kernel-and-uapi A.3 to A.5.
    pub fn ioctl(&self, number: u32, arg: u64, caller: &mut dyn Caller) -> Result<Outcome, Errno> {
        let nr = number & 0xff;
        let ranged = RANGED.iter().filter(|_| self.profile().has_ranges());
        // DRM looks at the number alone; size and directions only rule the copies.
        let known = BASE.iter().chain(&core::DRM).chain(ranged).find(|k| k.nr == nr);
        let Some(known) = known else {
            tracing::debug!("ioctl 0x{number:08x} is not one of this driver's");
            return Err(Errno::EINVAL);
        };
        let size = (number >> 16 & 0x3fff) as usize;
        let copied = |direction| number & known.directions & direction != 0;
        // Zero-extended or cut, so that structs may grow at their tail (A.2).
        let mut bytes = vec![0; size.max(known.size)];
        if copied(COPIES_IN) {
            caller.read(arg, &mut bytes[..size])?;
        }
        let done = (known.run)(self, &mut bytes, caller);
        if copied(COPIES_OUT) {
            caller.write(arg, &bytes[..size])?;
        }
        done
    }
}

/// The struct at the head of an argument; arguments are at least as long.
fn head<T: bytemuck::Pod>(bytes: &[u8]) -> T {
    bytemuck::pod_read_unaligned(&bytes[..size_of::<T>()])
}

fn ok(result: Result<(), Errno>) -> Result<Outcome, Errno> {
    result.map(|()| Outcome::default())
}

fn create_bo(file: &SimFile, arg: &mut [u8], _: &mut dyn Caller) -> Result<Outcome, Errno> {
    let mut a: uapi::CreateBo = head(arg);
    let bo = file.create_bo(a.size)?;
    (a.handle, a.dma_address, a.offset) = (bo.handle, bo.iova, bo.mmap_offset);
    arg[..size_of_val(&a)].copy_from_slice(bytemuck::bytes_of(&a));
    Ok(Outcome::default())
}

fn prep_bo(file: &SimFile, arg: &mut [u8], caller: &mut dyn Caller) -> Result<Outcome, Errno> {
    let a: uapi::PrepBo = head(arg);
    file.machine().enter(Call::PrepBo)?;
    if a.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    prepare(file, a.handle, None, Deadline(a.timeout_ns), caller)
}

fn prep_bo_ranges(
    file: &SimFile,
    arg: &mut [u8],
    caller: &mut dyn Caller,
) -> Result<Outcome, Errno> {
    let a: uapi::PrepBoRanges = head(arg);
    file.machine().enter(Call::PrepBo)?;
    if a.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let given = Some((a.ranges, a.range_count));
    prepare(file, a.handle, given, Deadline(a.timeout_ns), caller)
}

fn prepare(
    file: &SimFile,
    handle: u32,
    given: Option<(u64, u32)>,
    deadline: Deadline,
    caller: &mut dyn Caller,
) -> Result<Outcome, Errno> {
    let bo = file.bo(handle)?;
    let ranges = ranges(given, bo.size(), caller)?;
    file.prep(&bo, &ranges, deadline, |fence, until| caller.wait(fence, until))?;
    // 6.18 and 6.19 return the jiffies that were left, at least the one that they round up,
    // whether or not there was anything to wait for.
    let leak = file.profile().leaks_remaining_time();
    let left = deadline.0.saturating_sub(Deadline::now().0).max(0) / JIFFY_NS + 1;
    let value = if leak { i32::try_from(left).unwrap_or(i32::MAX) } else { 0 };
    Ok(Outcome { value, file: None })
}

/// A jiffy of a kernel with CONFIG_HZ=250.
const JIFFY_NS: i64 = 4_000_000;

fn fini_bo(file: &SimFile, arg: &mut [u8], _: &mut dyn Caller) -> Result<Outcome, Errno> {
    let a: uapi::FiniBo = head(arg);
    file.machine().enter(Call::FiniBo)?;
    if a.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let bo = file.bo(a.handle)?;
    file.fini(&bo, from_ref(&bo.whole()));
    Ok(Outcome::default())
}

fn fini_bo_ranges(
    file: &SimFile,
    arg: &mut [u8],
    caller: &mut dyn Caller,
) -> Result<Outcome, Errno> {
    let a: uapi::FiniBoRanges = head(arg);
    file.machine().enter(Call::FiniBo)?;
    if a.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    let bo = file.bo(a.handle)?;
    let ranges = ranges(Some((a.ranges, a.range_count)), bo.size(), caller)?;
    file.fini(&bo, &ranges);
    Ok(Outcome::default())
}

/// Ascending, disjoint, non-empty ranges inside the object, at most 1024; none given means all of
/// it (A.4).
fn ranges(
    given: Option<(u64, u32)>,
    size: u64,
    caller: &mut dyn Caller,
) -> Result<Vec<Range<u64>>, Errno> {
    let Some((at, count @ 1..)) = given else {
        return Ok(std::iter::once(0..size).collect());
    };
    if count > uapi::MAX_RANGES {
        return Err(Errno::EINVAL);
    }
    if at == 0 {
        return Err(Errno::EFAULT);
    }
    let mut list = vec![BoRange::default(); count as usize];
    caller.read(at, bytemuck::cast_slice_mut(&mut list))?;
    in_order(&list, size)
}

/// Ranges that the driver accepts for an object of `size` bytes.
pub(crate) fn in_order(list: &[BoRange], size: u64) -> Result<Vec<Range<u64>>, Errno> {
    let mut end = 0;
    let mut ranges = Vec::with_capacity(list.len());
    for r in list {
        let stop = r.offset.checked_add(r.size).filter(|stop| *stop <= size);
        let stop = stop.filter(|_| r.size > 0 && r.offset >= end).ok_or(Errno::EINVAL)?;
        ranges.push(r.offset..stop);
        end = stop;
    }
    Ok(ranges)
}
