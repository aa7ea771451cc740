//! What a driver of kernel-and-uapi A may answer, and what must hold of its handles and
//! addresses.

use super::user::User;
use rocket_runtime::uapi::{self, BoRange, CreateBo, Submit};
use rocket_sim::{Call, DriverProfile, Errno, Fault};
use std::collections::BTreeMap;

/// What one file has, as its calls told.
#[derive(Default)]
pub struct Model {
    /// Address and bytes by handle; an imported buffer has no address here.
    live: BTreeMap<u32, Option<(u64, u64)>>,
    /// Calls whose answer did not reach the caller.
    pub blurred: bool,
}

impl Model {
    /// GEM gives out the lowest free handle.
    fn lowest(&self) -> u32 {
        (1..).find(|h| !self.live.contains_key(h)).unwrap_or(0)
    }

    pub fn created(&mut self, bo: &CreateBo) {
        let (start, bytes) = (bo.dma_address, u64::from(bo.size).next_multiple_of(4096));
        assert!(bytes > 0 && start % 4096 == 0 && start + bytes <= 1 << 32, "{bo:?}");
        assert!(bo.offset >= 1 << 32 && bo.offset.is_multiple_of(4096), "{bo:?}");
        for (handle, other) in &self.live {
            let Some((at, len)) = *other else { continue };
            assert!(start + bytes <= at || at + len <= start, "{bo:?} overlaps handle {handle}");
        }
        assert!(self.blurred || bo.handle == self.lowest(), "{bo:?}");
        assert!(self.live.insert(bo.handle, Some((start, bytes))).is_none(), "{bo:?}");
    }

    pub fn imported(&mut self, handle: u32) {
        if !self.live.contains_key(&handle) {
            assert!(self.blurred || handle == self.lowest());
            self.live.insert(handle, None);
        }
    }

    pub fn closed(&mut self, handle: u32, ok: bool) {
        let known = self.live.remove(&handle).is_some();
        assert!(self.blurred || known == ok, "GEM_CLOSE of handle {handle}");
    }

    /// Whether ranges fit the buffer (A.4); nothing is known of a handle without a size.
    pub fn fits(&self, handle: u32, ranges: &[BoRange]) -> Option<bool> {
        let (_, bytes) = (*self.live.get(&handle)?)?;
        let apart = ranges.windows(2).all(|w| w[0].offset + w[0].size <= w[1].offset);
        let inside = ranges.iter().all(|r| r.size > 0 && r.offset + r.size <= bytes);
        (!self.blurred).then_some(apart && inside)
    }

    /// Whether a call named a handle that exists.
    pub fn knows(&self, handle: u32) -> Option<bool> {
        (!self.blurred).then(|| self.live.contains_key(&handle))
    }
}

/// Faults that make calls fail with errnos of their own.
#[derive(Default)]
pub struct Injected {
    pub errnos: Vec<Errno>,
    pub any: bool,
}

impl Injected {
    pub fn add(&mut self, fault: Fault) {
        match fault {
            Fault::Fail { errno, .. } | Fault::Refuse { errno, .. } => self.errnos.push(errno),
            Fault::Vanish(_) => self.errnos.push(Errno::ENODEV),
            Fault::StructSkew => self.errnos.push(Errno::EINVAL),
            Fault::Seeded { .. } => {
                use Errno::{EBUSY, EINTR, EINVAL, ENODEV, ENOMEM, ENOSPC};
                self.errnos.extend([EBUSY, EINTR, EINVAL, ENODEV, ENOMEM, ENOSPC]);
            }
            // Of jobs: a driver that reports them says EINVAL, which SUBMIT may say anyway.
            _ => return,
        }
        self.any = true;
    }
}

/// Every errno that an ioctl may give (kernel-and-uapi A.3 to A.5).
pub fn allowed(nr: u32) -> &'static [Errno] {
    use Errno::{
        E2BIG, EALREADY, EBADF, EBUSY, EFAULT, EINTR, EINVAL, ENOENT, ENOMEM, ENOSPC, EOPNOTSUPP,
        ETIMEDOUT,
    };
    match nr {
        0x40 => &[EFAULT, ENOMEM, ENOSPC],
        0x41 => &[E2BIG, EALREADY, EFAULT, EINVAL, ENOENT, ENOMEM],
        0x42 | 0x44 => &[EBUSY, EFAULT, EINTR, EINVAL, ENOENT, ETIMEDOUT],
        0x43 | 0x45 => &[EFAULT, EINVAL, ENOENT],
        0x00 | 0x01 => &[EFAULT],
        0x0c => &[EFAULT, EOPNOTSUPP],
        0x2d => &[EFAULT, EINVAL, ENOENT],
        0x2e => &[EBADF, EFAULT, EINVAL],
        // GEM_CLOSE and what does not exist.
        _ => &[EFAULT, EINVAL],
    }
}

/// The most one array may take here; the kernel's allocator gives up a little later.
const MOST_BYTES: u64 = 1 << 28;

/// What a stock SUBMIT says, which is about the call alone and never about a job.
pub fn stock_submit(a: &Submit, user: &mut User<'_>) -> Result<(), Errno> {
    let bytes = u64::from(a.job_count) * u64::from(a.job_struct_size);
    if a.job_count == 0 {
        Ok(())
    } else if a.job_struct_size < 40 || a.reserved != 0 {
        Err(Errno::EINVAL)
    } else if bytes > MOST_BYTES {
        Err(Errno::ENOMEM)
    } else if user.peek(a.jobs, bytes as usize).is_none() {
        Err(Errno::EFAULT)
    } else {
        Ok(())
    }
}

/// Whether a driver has that call at all.
pub fn exists(nr: u32, profile: DriverProfile) -> bool {
    match nr {
        0x44 | 0x45 => profile.version() >= (1, 5),
        0x00 | 0x01 | 0x09 | 0x0c | 0x2d | 0x2e | 0x40..=0x43 => true,
        _ => false,
    }
}

/// Numbers worth calling.
pub const NUMBERS: &[u32] = &[
    uapi::IOCTL_CREATE_BO,
    uapi::IOCTL_SUBMIT,
    uapi::IOCTL_PREP_BO,
    uapi::IOCTL_FINI_BO,
    uapi::IOCTL_PREP_BO_RANGES,
    uapi::IOCTL_FINI_BO_RANGES,
    uapi::IOCTL_GEM_CLOSE,
    uapi::IOCTL_VERSION,
    0xc010_6401,
    0xc010_640c,
    0xc00c_642d,
    0xc00c_642e,
];

pub const CALLS: &[Call] = &Call::ALL;
