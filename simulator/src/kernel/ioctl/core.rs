//! What DRM itself answers on an accel node: identity, capabilities, handles (kernel-and-uapi A.1
//! to A.3).

use super::{COPIES_IN, COPIES_OUT, Caller, Known, Outcome, head, ok};
use crate::SimFile;
use nix::errno::Errno;
use rocket_runtime::device::Node;
use rocket_runtime::uapi::{self, DrmVersion, GemClose};

const BOTH: u32 = COPIES_IN | COPIES_OUT;

/// The DRM calls that make sense on a compute device without a display.
pub static DRM: [Known; 5] = [
    Known { nr: 0x00, size: size_of::<DrmVersion>(), directions: BOTH, run: version },
    Known { nr: 0x01, size: 16, directions: BOTH, run: unique },
    Known { nr: 0x0c, size: 16, directions: BOTH, run: capability },
    Known { nr: 0x2d, size: 12, directions: BOTH, run: handle_to_fd },
    Known { nr: 0x2e, size: 12, directions: BOTH, run: fd_to_handle },
];

/// Copies a string into the caller's buffer as far as it fits and says how long it is.
fn give(caller: &mut dyn Caller, text: &str, at: u64, len: &mut u64) -> Result<(), Errno> {
    let fits = text.len().min(usize::try_from(*len).unwrap_or(usize::MAX));
    *len = text.len() as u64;
    if fits > 0 && at != 0 { caller.write(at, &text.as_bytes()[..fits]) } else { Ok(()) }
}

fn version(file: &SimFile, arg: &mut [u8], caller: &mut dyn Caller) -> Result<Outcome, Errno> {
    let mut a: DrmVersion = head(arg);
    let version = file.version()?;
    (a.major, a.minor, a.patch) = (version.major as i32, version.minor as i32, 0);
    let (mut name, mut date, mut desc) = (a.name_len, a.date_len, a.desc_len);
    give(caller, uapi::DRIVER_NAME, a.name, &mut name)?;
    give(caller, "0", a.date, &mut date)?;
    give(caller, "rocket DRM", a.desc, &mut desc)?;
    (a.name_len, a.date_len, a.desc_len) = (name, date, desc);
    arg[..size_of_val(&a)].copy_from_slice(bytemuck::bytes_of(&a));
    Ok(Outcome::default())
}

/// The facade device's name.
fn unique(_: &SimFile, arg: &mut [u8], caller: &mut dyn Caller) -> Result<Outcome, Errno> {
    let [mut len, at]: [u64; 2] = head(arg);
    // Unlike the version's strings, this one comes whole or not at all.
    if len >= UNIQUE.len() as u64 {
        caller.write(at, UNIQUE.as_bytes())?;
    }
    len = UNIQUE.len() as u64;
    arg[..8].copy_from_slice(&len.to_le_bytes());
    Ok(Outcome::default())
}

const UNIQUE: &str = "rknn";

fn capability(_: &SimFile, arg: &mut [u8], _: &mut dyn Caller) -> Result<Outcome, Errno> {
    let [wanted, _]: [u64; 2] = head(arg);
    let value: u64 = match wanted {
        // PRIME: export and import.
        0x5 => 3,
        // Monotonic timestamps.
        0x6 => 1,
        // No syncobj, no timelines.
        0x13 | 0x14 => 0,
        // Everything else is about displays.
        _ => return Err(Errno::EOPNOTSUPP),
    };
    arg[8..16].copy_from_slice(&value.to_le_bytes());
    Ok(Outcome::default())
}

pub fn gem_close(file: &SimFile, arg: &mut [u8], _: &mut dyn Caller) -> Result<Outcome, Errno> {
    let a: GemClose = head(arg);
    ok(file.close_bo(a.handle))
}

fn handle_to_fd(file: &SimFile, arg: &mut [u8], _: &mut dyn Caller) -> Result<Outcome, Errno> {
    let [handle, flags, _]: [u32; 3] = head(arg);
    // DRM_CLOEXEC and DRM_RDWR.
    if flags & !0o2_000_002 != 0 {
        return Err(Errno::EINVAL);
    }
    Ok(Outcome { value: 0, file: Some(file.export(handle)?) })
}

fn fd_to_handle(file: &SimFile, arg: &mut [u8], caller: &mut dyn Caller) -> Result<Outcome, Errno> {
    let passed = caller.passed_file().ok_or(Errno::EBADF)?;
    let handle = file.import(&passed)?;
    arg[..4].copy_from_slice(&handle.to_le_bytes());
    Ok(Outcome::default())
}
