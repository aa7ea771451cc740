//! [`Writer`]: an image on its way to the disk.

use super::format::{self, Layout};
use super::key::Content;
use super::{Store, dir};
use crate::{Error, Result};
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::{File, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::time::SystemTime;
use tempfile::NamedTempFile;

/// Whether an image is on disk now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum Saved {
    /// It is, for this process and the next.
    Yes,
    /// It is not, and why: there is no room for it. The weights are packed again at the next
    /// start.
    No(String),
}

/// The places where a process can die with something written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    Created,
    Allocated,
    Part,
    Header,
    Synced,
    Renamed,
}

/// Tests die here.
fn reached(step: Step) {
    #[cfg(test)]
    super::tests::crash::reached(step);
    let _ = step;
}

/// Writes one image, part by part, in any order. Without [`commit`](Writer::commit) nothing
/// stays on the disk.
///
/// When the store has no room, all the same may be called: nothing is written, and `commit` says
/// why. [`refused`](Writer::refused) says so at once.
#[derive(Debug)]
pub struct Writer {
    store: Store,
    name: String,
    key: Vec<u8>,
    layout: Layout,
    progress: Vec<(u64, Content)>,
    temp: Result<NamedTempFile, String>,
}

/// No space left is no fault: it is a reason not to save.
fn is_full(e: &io::Error) -> bool {
    matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

impl Writer {
    pub(super) fn new(store: &Store, name: String, key: Vec<u8>, lens: &[u64]) -> Result<Writer> {
        let layout = format::layout(key.len(), lens).ok_or_else(|| Error::Store {
            path: store.path().into(),
            found: format!("a key of {} bytes and {} parts fit no file", key.len(), lens.len()),
            fix: "keep both together below 1 MiB and the parts below 2^63 bytes".into(),
        })?;
        let temp = match create(store, &name, layout.total) {
            Err(e) if is_full(&e) => Err(e.to_string()),
            temp => temp.map_err(|e| dir::error(store.path(), &e))?,
        };
        let progress = lens.iter().map(|_| (0, Content::new())).collect();
        Ok(Writer { store: store.clone(), name, key, layout, progress, temp })
    }

    /// Why nothing will be saved, if that is already so; `None` as long as there is room.
    pub fn refused(&self) -> Option<&str> {
        self.temp.as_ref().err().map(String::as_str)
    }

    /// Writes the next bytes of part `i`: all of them, or a piece that follows the last one.
    ///
    /// # Errors
    /// [`Error::Store`] when there is no such part or it would become longer than was said, or
    /// when the disk fails.
    pub fn part(&mut self, i: usize, bytes: &[u8]) -> Result<()> {
        let wrong = |found| Error::Store {
            path: self.store.path().into(),
            found,
            fix: "say the true lengths when the writer is made".into(),
        };
        let (Some(range), Some((written, sum))) =
            (self.layout.parts.get(i), self.progress.get_mut(i))
        else {
            return Err(wrong(format!("there is no part {i} of {}", self.layout.parts.len())));
        };
        let at = range.start + *written;
        if bytes.len() as u64 > range.end - at {
            let len = range.end - range.start;
            return Err(wrong(format!("part {i} was to be {len} bytes long and is longer")));
        }
        *written += bytes.len() as u64;
        let Ok(temp) = &self.temp else { return Ok(()) };
        sum.update(bytes);
        let done = temp.as_file().write_all_at(bytes, at);
        reached(Step::Part);
        self.settle(done)
    }

    /// What a failed write means. The temporary file goes with it.
    fn settle(&mut self, done: io::Result<()>) -> Result<()> {
        match done {
            Ok(()) => Ok(()),
            Err(e) => {
                self.temp = Err(e.to_string());
                if is_full(&e) { Ok(()) } else { Err(dir::error(self.store.path(), &e)) }
            }
        }
    }

    /// Completes the file and gives it its name: from here on [`Store::load`] finds it, after a
    /// power cut too.
    ///
    /// # Errors
    /// [`Error::Store`] when a part is not complete, or the disk fails.
    pub fn commit(mut self) -> Result<Saved> {
        let short = |((written, _), range): (&(u64, Content), &std::ops::Range<u64>)| {
            *written != range.end - range.start
        };
        if let Some(i) = self.progress.iter().zip(&self.layout.parts).position(short) {
            return Err(Error::Store {
                path: self.store.path().into(),
                found: format!("part {i} has {} of its bytes", self.progress[i].0),
                fix: "write all parts before they are committed".into(),
            });
        }
        let sums: Vec<u128> = self.progress.iter().map(|(_, sum)| sum.finish()).collect();
        let header = format::header(&self.key, &self.layout, &sums);
        if let Ok(temp) = &self.temp {
            let done = complete(temp.as_file(), &header);
            self.settle(done)?;
        }
        let temp = match self.temp {
            Ok(temp) => temp,
            Err(why) => return Ok(Saved::No(why)),
        };
        let path = self.store.path().join(&self.name);
        // The descriptor goes at once, and the lock with it: loads are waiting.
        match temp.persist(&path).map(drop).map_err(|e| e.error) {
            Ok(()) => {}
            // Nobody may sweep it while it is locked, but somebody may clean up by hand.
            Err(e) if e.kind() == ErrorKind::NotFound => {
                return Ok(Saved::No("the temporary file has been removed".into()));
            }
            Err(e) => return Err(dir::error(&path, &e)),
        }
        reached(Step::Renamed);
        self.store.in_use(self.name);
        let synced = File::open(self.store.path()).and_then(|dir| dir.sync_all());
        synced.map(|()| Saved::Yes).map_err(|e| dir::error(self.store.path(), &e))
    }
}

/// Everything is in the file and on the disk before it has a name that is looked for.
fn complete(file: &File, header: &[u8]) -> io::Result<()> {
    file.write_all_at(header, 0)?;
    reached(Step::Header);
    // The same clock as loading goes by.
    file.set_modified(SystemTime::now())?;
    // Nothing writes to it any more.
    file.set_permissions(Permissions::from_mode(0o400))?;
    file.sync_all()?;
    reached(Step::Synced);
    Ok(())
}

/// A locked temporary file with all its bytes allocated, or why there is no room for it.
fn create(store: &Store, name: &str, total: u64) -> io::Result<Result<NamedTempFile, String>> {
    let (path, limit) = (store.path(), store.limit());
    if total > limit {
        return Ok(Err(format!(
            "an image of {total} bytes is over the limit of {limit} by itself"
        )));
    }
    let target = path.join(name);
    if target.is_dir() && std::fs::remove_dir(&target).is_err() {
        return Ok(Err(format!(
            "a directory with something in it is in the way: remove {}",
            target.display()
        )));
    }
    let Some(lock) = dir::lock(path)? else {
        return Ok(Err("another process keeps the directory locked".into()));
    };
    lock.sweep()?;
    if let Err(why) = lock.make_room(total, limit, store.reserve(), &store.used())? {
        return Ok(Err(why));
    }
    let temp = tempfile::Builder::new()
        .prefix(dir::TEMP)
        .permissions(Permissions::from_mode(0o600))
        .tempfile_in(path)?;
    // It is new and under the directory's lock: nobody else holds it.
    temp.as_file().try_lock()?;
    reached(Step::Created);
    // At once, so that it counts, and so that a full disk shows before anything is written.
    let len = total.try_into().map_err(|_| ErrorKind::FileTooLarge)?;
    match fallocate(temp.as_file(), FallocateFlags::empty(), 0, len) {
        Err(Errno::EOPNOTSUPP) => temp.as_file().set_len(total)?,
        done => done?,
    }
    reached(Step::Allocated);
    Ok(Ok(temp))
}
