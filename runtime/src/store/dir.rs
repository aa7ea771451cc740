//! The directory: fit to keep weights in, its lock, what lies in it, and making room.

use crate::{Error, Result};
use nix::unistd::{AccessFlags, eaccess, geteuid};
use std::collections::HashSet;
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

/// Names of files that are being written begin so.
pub(super) const TEMP: &str = ".tmp-";
/// The directory's lock is held for a listing and some unlinks.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// What a failed call in `path` means to the user.
pub(super) fn error(path: &Path, e: &io::Error) -> Error {
    let fix = match e.kind() {
        ErrorKind::PermissionDenied => "give this user the right to write there (`chmod u+rwx`)",
        ErrorKind::ReadOnlyFilesystem => "name a directory on a file system that can be written",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "free some space there, or name a directory elsewhere"
        }
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "something else has the name of a directory: remove it, or name another directory"
        }
        ErrorKind::NotFound => "start again to have it created, or name another directory",
        ErrorKind::Unsupported => "name a directory on a local file system",
        _ => "name another directory",
    };
    Error::Store { path: path.into(), found: e.to_string(), fix: fix.into() }
}

/// Locks `file` within `wait`; false when somebody holds it all that time.
pub(super) fn lock_within(file: &File, exclusive: bool, wait: Duration) -> io::Result<bool> {
    let until = Instant::now() + wait;
    loop {
        match if exclusive { file.try_lock() } else { file.try_lock_shared() } {
            Ok(()) => return Ok(true),
            Err(TryLockError::Error(e)) => return Err(e),
            Err(TryLockError::WouldBlock) if Instant::now() >= until => return Ok(false),
            Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

/// Creates `path`, or finds it fit; its absolute path.
pub(super) fn prepare(path: &Path) -> Result<PathBuf> {
    let refuse = |found: String, fix: String| Err(Error::Store { path: path.into(), found, fix });
    match DirBuilder::new().recursive(true).mode(0o700).create(path) {
        // What is there is looked at below.
        Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(error(path, &e)),
        _ => {}
    }
    let meta = path.metadata().map_err(|e| error(path, &e))?;
    if !meta.is_dir() {
        return Err(error(path, &io::Error::from(ErrorKind::NotADirectory)));
    }
    let user = geteuid().as_raw();
    if meta.uid() != user {
        return refuse(
            format!("it belongs to user {}, this process runs as user {user}", meta.uid()),
            "name a directory of this user's own: weights that others can change are not used"
                .into(),
        );
    }
    if meta.mode() & 0o022 != 0 {
        return refuse(
            format!("others may write to it (mode {:04o})", meta.mode() & 0o7777),
            format!("`chmod 700 {}`", path.display()),
        );
    }
    let all = AccessFlags::R_OK | AccessFlags::W_OK | AccessFlags::X_OK;
    eaccess(path, all).map_err(|e| error(path, &e.into()))?;
    path.canonicalize().map_err(|e| error(path, &e))
}

/// The lock of the directory. Temporary files are created and swept, and room is made, under it.
#[derive(Debug)]
pub(super) struct Locked<'a> {
    path: &'a Path,
    _file: File,
}

/// Locks the directory; `None` when another process holds it for seconds.
pub(super) fn lock(path: &Path) -> io::Result<Option<Locked<'_>>> {
    // A descriptor of its own for each caller: flock does not tell threads apart.
    let file = File::open(path)?;
    Ok(lock_within(&file, true, LOCK_WAIT)?.then_some(Locked { path, _file: file }))
}

/// A file that counts: an image of any version, or one that is being written.
#[derive(Debug)]
struct Entry {
    used: SystemTime,
    name: String,
    bytes: u64,
}

/// Whether this module gives such names to finished files, of this version or another.
fn is_image(name: &str) -> bool {
    name.split_once(".rkw").is_some_and(|(hash, version)| {
        hash.len() == 32
            && hash.bytes().all(|b| b.is_ascii_hexdigit())
            && !version.is_empty()
            && version.bytes().all(|b| b.is_ascii_digit())
    })
}

impl Locked<'_> {
    /// Regular files whose name satisfies `which`. Others are none of this module's.
    fn entries(&self, which: impl Fn(&str) -> bool) -> io::Result<Vec<Entry>> {
        let mut found = Vec::new();
        for entry in self.path.read_dir()? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            if !which(&name) {
                continue;
            }
            // It may be gone by now: eviction elsewhere, or a rename.
            let Ok(meta) = entry.metadata() else { continue };
            if meta.is_file() {
                let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                found.push(Entry { used, name, bytes: meta.len() });
            }
        }
        Ok(found)
    }

    /// The file of that name, if nobody holds it.
    fn claim(&self, name: &str) -> Option<File> {
        let file = File::open(self.path.join(name)).ok()?;
        file.try_lock().ok().map(|()| file)
    }

    fn unlink(&self, name: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path.join(name)) {
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(()),
            done => done,
        }
    }

    /// Removes temporary files whose writer is dead: a live one holds a lock, from before this
    /// lock was given up.
    pub(super) fn sweep(&self) -> io::Result<()> {
        for entry in self.entries(|name| name.starts_with(TEMP))? {
            if let Some(_held) = self.claim(&entry.name) {
                self.unlink(&entry.name)?;
            }
        }
        Ok(())
    }

    /// Removes the longest unused images until `bytes` more fit below `limit`; none at all if
    /// that is not enough, or if the disk would be left with less than `reserve`. Images in
    /// `keep` and images that are mapped anywhere stay.
    pub(super) fn make_room(
        &self,
        bytes: u64,
        limit: u64,
        reserve: u64,
        keep: &HashSet<String>,
    ) -> io::Result<Result<(), String>> {
        let mut entries = self.entries(|name| is_image(name) || name.starts_with(TEMP))?;
        let held: u64 = entries.iter().map(|e| e.bytes).sum();
        let mut over = held.saturating_add(bytes).saturating_sub(limit);
        entries.retain(|e| is_image(&e.name) && !keep.contains(&e.name));
        entries.sort_by(|a, b| (a.used, &a.name).cmp(&(b.used, &b.name)));
        let mut going = Vec::new();
        for entry in entries {
            if over == 0 {
                break;
            }
            if let Some(file) = self.claim(&entry.name) {
                over = over.saturating_sub(entry.bytes);
                going.push((entry, file));
            }
        }
        if over > 0 {
            return Ok(Err(format!(
                "{bytes} bytes more are over the limit of {limit}: {held} are held, by images \
                 that are in use or were used since this store was opened"
            )));
        }
        let freed: u64 = going.iter().map(|(e, _)| e.bytes).sum();
        let free = free(self.path)?.saturating_add(freed);
        if free < bytes.saturating_add(reserve) {
            return Ok(Err(format!(
                "the disk has {free} bytes: {bytes} are needed, and {reserve} are left to others"
            )));
        }
        for (entry, _file) in &going {
            self.unlink(&entry.name)?;
            tracing::debug!("removed the packed weights {}: not used for longest", entry.name);
        }
        Ok(Ok(()))
    }
}

/// Bytes this user may still write to the file system of `path`.
pub(super) fn free(path: &Path) -> io::Result<u64> {
    let fs = nix::sys::statvfs::statvfs(path)?;
    Ok(fs.blocks_available().saturating_mul(fs.fragment_size()))
}
