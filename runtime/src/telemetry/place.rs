//! Where the files lie and what they are called.

use std::ffi::OsString;
use std::path::PathBuf;

/// What names of finished files begin with; the PID and random digits follow. In /dev/shm they
/// lie among others'.
pub const NAME_PREFIX: &str = "rocket-counters-";
/// Before that in names of files that are not finished.
pub(super) const UNFINISHED: &str = ".";

/// A directory that a writer tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    /// It.
    pub path: PathBuf,
    /// Whether it is made, for this user alone, when it is not there.
    pub make: bool,
}

impl Directory {
    /// One that has to be there.
    pub fn existing(path: impl Into<PathBuf>) -> Directory {
        Directory { path: path.into(), make: false }
    }
}

/// What a writer tries in turn: the system's, the user's, shared memory. `get` reads a variable.
pub fn writer_directories(get: impl Fn(&str) -> Option<OsString>) -> Vec<Directory> {
    let user = get("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|p| p.is_absolute());
    let user = user.map(|p| Directory { path: p.join("rocket"), make: true });
    let system = Directory::existing("/run/rocket");
    [Some(system), user, Some(Directory::existing("/dev/shm"))].into_iter().flatten().collect()
}

/// The PID in a finished file's name, `None` for other names.
pub(super) fn pid_of(name: &str) -> Option<u32> {
    let (pid, id) = name.strip_prefix(NAME_PREFIX)?.split_once('-')?;
    let digits = id.len() == 16 && id.bytes().all(|b| b.is_ascii_hexdigit());
    let plain = pid.bytes().all(|b| b.is_ascii_digit());
    (digits && plain).then(|| pid.parse().ok())?
}
