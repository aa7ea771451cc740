//! [`KernelNode`]: the real accel node, through libc so that an interposed board is seen too.

#![allow(unsafe_code)] // one of the design's borders: ioctl and mmap

use super::file::driver;
use super::node::{BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node};
use crate::board::Why;
use crate::soc::{self, Profile};
use crate::{Error, Result, uapi};
use nix::errno::Errno;
use std::ffi::c_void;
use std::fs;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;

/// An open accel file.
#[derive(Debug)]
pub struct KernelNode {
    fd: OwnedFd,
}

/// The board this process runs on.
#[derive(Debug, Clone)]
pub struct KernelBoard {
    path: PathBuf,
    profile: &'static Profile,
    version: DriverVersion,
}

impl KernelBoard {
    /// Finds the accel node of the `rocket` driver by the driver's name: another accel driver may
    /// have taken number 0 (kernel-and-uapi A.1).
    ///
    /// # Errors
    /// [`Error::NoNode`], [`Error::Permission`] when the only candidates cannot be opened, or
    /// [`Error::UnknownSoc`].
    pub fn find() -> Result<KernelBoard> {
        let dir = Path::new("/dev/accel");
        let mut nodes: Vec<PathBuf> = fs::read_dir(dir)
            .map(|entries| entries.flatten().map(|e| e.path()).collect())
            .unwrap_or_default();
        nodes.retain(|p| p.file_name().is_some_and(|n| n.as_encoded_bytes().starts_with(b"accel")));
        nodes.sort();
        let mut refused = None;
        for path in &nodes {
            match KernelBoard::at(path) {
                Ok(board) => return Ok(board),
                Err(Error::NotRocket { .. }) => {}
                Err(e) => refused = refused.or(Some(e)),
            }
        }
        Err(refused.unwrap_or_else(|| Error::NoNode {
            looked: if nodes.is_empty() {
                "there is no /dev/accel/accel* node".into()
            } else {
                format!("none of the {} nodes below /dev/accel belongs to rocket", nodes.len())
            },
        }))
    }

    /// The board behind one node.
    ///
    /// # Errors
    /// As [`KernelBoard::find`], and [`Error::NotRocket`].
    pub fn at(path: &Path) -> Result<KernelBoard> {
        let node = KernelNode::open(path)?;
        let (version, name) = node
            .identity()
            .map_err(|e| driver("DRM_IOCTL_VERSION", e, "asking the driver's name"))?;
        if name != uapi::DRIVER_NAME {
            return Err(Error::NotRocket { path: path.into(), found: name });
        }
        let profile = soc::detect(Path::new("/"))?;
        Ok(KernelBoard { path: path.into(), profile, version })
    }
}

/// A node's interface and the name of its driver, for tools: opened, asked, and closed.
pub(crate) fn identity(path: &Path) -> Result<(DriverVersion, String), Why> {
    let node = KernelNode::open(path).map_err(|e| match e {
        Error::Permission { .. } => Why::Denied,
        Error::NoNode { .. } => Why::Missing,
        e => Why::Malformed(e.to_string()),
    })?;
    node.identity().map_err(|e| Why::Malformed(format!("DRM_IOCTL_VERSION: {e}")))
}

impl Board for KernelBoard {
    fn profile(&self) -> &'static Profile {
        self.profile
    }

    fn describe(&self) -> String {
        let DriverVersion { major, minor } = self.version;
        format!("{} at {} (rocket {major}.{minor})", self.profile.name, self.path.display())
    }

    fn may_batch(&self) -> Option<bool> {
        let text = fs::read_to_string("/sys/module/rocket/parameters/rocket_batch_submit").ok()?;
        // A number or a kernel bool, however it is declared.
        Some(!matches!(text.trim(), "0" | "N" | "n"))
    }

    fn open(&self) -> Result<Arc<dyn Node>> {
        Ok(Arc::new(KernelNode::open(&self.path)?))
    }
}

impl KernelNode {
    /// Opens `path`.
    ///
    /// # Errors
    /// [`Error::Permission`] with the node's mode and group, [`Error::NoNode`], [`Error::Driver`].
    pub fn open(path: &Path) -> Result<KernelNode> {
        use nix::fcntl::{OFlag, open};
        match open(path, OFlag::O_RDWR | OFlag::O_CLOEXEC, nix::sys::stat::Mode::empty()) {
            Ok(fd) => Ok(KernelNode { fd }),
            Err(Errno::EACCES | Errno::EPERM) => Err(permission(path)),
            Err(Errno::ENOENT | Errno::ENODEV | Errno::ENXIO) => {
                Err(Error::NoNode { looked: format!("{} does not exist", path.display()) })
            }
            Err(e) => Err(driver("open", e, &path.display().to_string())),
        }
    }

    /// Version and driver name.
    fn identity(&self) -> Result<(DriverVersion, String), Errno> {
        let mut name = [0u8; 64];
        let mut arg = uapi::DrmVersion {
            name_len: name.len() as u64,
            name: name.as_mut_ptr() as u64,
            ..Default::default()
        };
        // SAFETY: the struct is the one the number names, and its name buffer outlives the call.
        unsafe { self.call(uapi::IOCTL_VERSION, &mut arg) }?;
        let len = name.len().min(arg.name_len as usize);
        let version = DriverVersion {
            major: arg.major.try_into().unwrap_or(0),
            minor: arg.minor.try_into().unwrap_or(0),
        };
        Ok((version, String::from_utf8_lossy(&name[..len]).into_owned()))
    }

    /// One ioctl. Any value of 0 or more is success: 6.18 and 6.19 leak positive numbers out of
    /// PREP (kernel-and-uapi A.4, F6).
    ///
    /// # Safety
    /// `arg` must be the struct that `request` names, and pointers in it must be valid for what
    /// the driver does with them.
    unsafe fn call<T>(&self, request: u32, arg: &mut T) -> Result<(), Errno> {
        let arg = std::ptr::from_mut(arg).cast::<c_void>();
        // SAFETY: the caller's contract; the descriptor is open as long as self lives.
        let rc = unsafe { libc::ioctl(self.fd.as_raw_fd(), request as libc::Ioctl, arg) };
        if rc < 0 { Err(Errno::last()) } else { Ok(()) }
    }
}

fn permission(path: &Path) -> Error {
    let (mode, gid) =
        fs::metadata(path).map_or((0, 0), |m| (m.permissions().mode() & 0o7777, m.gid()));
    let group = nix::unistd::Group::from_gid(gid.into())
        .ok()
        .flatten()
        .map_or_else(|| gid.to_string(), |g| g.name);
    // Root's own group is not one to join; systemd's rules give the node to `render`.
    let advice = if group == "root" || gid == 0 { "render".into() } else { group.clone() };
    Error::Permission { path: path.into(), mode, group, advice }
}

/// Unmaps on drop.
#[derive(Debug)]
struct Unmap {
    ptr: NonNull<c_void>,
    len: usize,
}

// SAFETY: an address and a length; munmap may run on any thread.
unsafe impl Send for Unmap {}
// SAFETY: as above; nothing is reachable through a shared Unmap.
unsafe impl Sync for Unmap {}

impl Drop for Unmap {
    fn drop(&mut self) {
        // SAFETY: exactly the range that mmap returned, unmapped once, and the Mapping that owns
        // this is gone.
        let _ = unsafe { nix::sys::mman::munmap(self.ptr, self.len) };
    }
}

impl Node for KernelNode {
    fn version(&self) -> Result<DriverVersion, Errno> {
        self.identity().map(|(version, _)| version)
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        let mut arg = uapi::CreateBo { size, ..Default::default() };
        // SAFETY: the struct that the number names; it holds no pointers.
        unsafe { self.call(uapi::IOCTL_CREATE_BO, &mut arg) }?;
        Ok(BoInfo { handle: arg.handle, iova: arg.dma_address, mmap_offset: arg.offset })
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        use nix::sys::mman::{MapFlags, ProtFlags, mmap};
        let length = len.try_into().map_err(|_| Errno::EINVAL)?;
        let offset = bo.mmap_offset.try_into().map_err(|_| Errno::EINVAL)?;
        let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
        // SAFETY: a fresh shared mapping at an address the kernel chooses touches no memory of ours.
        let ptr = unsafe { mmap(None, length, access, MapFlags::MAP_SHARED, &self.fd, offset) }?;
        // SAFETY: the range was just mapped and is unmapped when its owner is dropped.
        Ok(unsafe { Mapping::new(ptr.cast(), len, Unmap { ptr, len }) })
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        let list: Vec<uapi::Job> = jobs
            .iter()
            .map(|j| uapi::Job {
                tasks: j.tasks.as_ptr() as u64,
                in_bo_handles: j.reads.as_ptr() as u64,
                out_bo_handles: j.writes.as_ptr() as u64,
                task_count: j.tasks.len() as u32,
                task_struct_size: size_of::<uapi::Task>() as u32,
                in_bo_handle_count: j.reads.len() as u32,
                out_bo_handle_count: j.writes.len() as u32,
                flags: j.flags,
                reserved: 0,
            })
            .collect();
        let mut arg = uapi::Submit {
            jobs: list.as_ptr() as u64,
            job_count: list.len() as u32,
            job_struct_size: size_of::<uapi::Job>() as u32,
            reserved: 0,
        };
        // SAFETY: the struct that the number names; `list` and the slices it points to outlive
        // the call, which copies them before it returns.
        unsafe { self.call(uapi::IOCTL_SUBMIT, &mut arg) }
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        let mut arg = uapi::PrepBo { handle, reserved: 0, timeout_ns: deadline.0 };
        // SAFETY: the struct that the number names; it holds no pointers.
        unsafe { self.call(uapi::IOCTL_PREP_BO, &mut arg) }
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        let mut arg = uapi::FiniBo { handle, reserved: 0 };
        // SAFETY: the struct that the number names; it holds no pointers.
        unsafe { self.call(uapi::IOCTL_FINI_BO, &mut arg) }
    }

    fn prep_bo_ranges(
        &self,
        handle: u32,
        ranges: &[uapi::BoRange],
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let mut arg = uapi::PrepBoRanges {
            handle,
            range_count: ranges.len().try_into().map_err(|_| Errno::EINVAL)?,
            ranges: ranges.as_ptr() as u64,
            timeout_ns: deadline.0,
            reserved: 0,
        };
        // SAFETY: the struct that the number names; the ranges outlive the call, which copies them.
        unsafe { self.call(uapi::IOCTL_PREP_BO_RANGES, &mut arg) }
    }

    fn fini_bo_ranges(&self, handle: u32, ranges: &[uapi::BoRange]) -> Result<(), Errno> {
        let mut arg = uapi::FiniBoRanges {
            handle,
            range_count: ranges.len().try_into().map_err(|_| Errno::EINVAL)?,
            ranges: ranges.as_ptr() as u64,
            reserved: 0,
        };
        // SAFETY: the struct that the number names; the ranges outlive the call, which copies them.
        unsafe { self.call(uapi::IOCTL_FINI_BO_RANGES, &mut arg) }
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        let mut arg = uapi::GemClose { handle, pad: 0 };
        // SAFETY: the struct that the number names; it holds no pointers.
        unsafe { self.call(uapi::IOCTL_GEM_CLOSE, &mut arg) }
    }
}
