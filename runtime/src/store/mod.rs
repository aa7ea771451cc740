//! Packed weights kept on disk: packed once, they are mapped at the next start of the process and
//! only copied.
//!
//! A [`Store`] is a directory. An image is one file in it, named by a hash of its [`Key`]; it has
//! one part for each file of the NPU that a worker holds. Files are written under a temporary
//! name, synced and renamed, never changed; they are read through a mapping, and every byte is
//! checked before the first is handed out. Anything unfit (cut short, edited, of another version,
//! key or owner, writable by others) is taken away with a warning and packed again by the caller.
//!
//! # File format, version 1
//!
//! All numbers are little-endian. `P` is the number of parts, `L` the length of the key, `H` the
//! length of the header: 48 + 32 `P` + `L`, rounded up to 4096, at most 1 MiB.
//!
//! | Offset | Bytes | What |
//! |---|---|---|
//! | 0 | 8 | magic, `rocketPW` |
//! | 8 | 4 | version of the format, 1 |
//! | 12 | 4 | `H` |
//! | 16 | 8 | length of the file |
//! | 24 | 4 | `P` |
//! | 28 | 4 | `L` |
//! | 32 | 32 `P` | table of parts: offset (8), length (8), xxh3-128 of its bytes (16) each |
//! | 32 + 32 `P` | `L` | key: content (16), N (8), K (8), length of format (8), length of plan (8), format, plan |
//! | ... | | zeros |
//! | `H` - 16 | 16 | xxh3-128 of the `H` - 16 bytes before it |
//! | `H` | | the parts in their order, each at the next multiple of 4096, zeros between and after |
//!
//! The length is a multiple of 4096. A file's name is the xxh3-128 of its key in hexadecimal digits and
//! `.rkw` with the version: `0123456789abcdef0123456789abcdef.rkw1`.
//!
//! # Locks
//!
//! All are `flock`, so they end with their process. The directory: exclusive while a temporary
//! file is created, dead ones are swept and room is made. A temporary file: exclusive as long as
//! it is written. A finished file: shared as long as it is mapped ([`Packed`]), exclusive while it
//! is evicted.

mod dir;
mod format;
mod image;
mod key;
mod map;
#[cfg(test)]
mod tests;
mod write;

use crate::Result;
use image::Missing;
pub use image::Packed;
pub use key::{Content, Key, content};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
pub use write::{Saved, Writer};

/// Bytes of the disk that are left to others: a full disk breaks more than a slow start does.
const RESERVE: u64 = 256 << 20;

/// Where packed weights are kept between runs. Clones are the same store.
///
/// Several stores, in this process and in others, may share a directory.
#[derive(Debug, Clone)]
pub struct Store {
    shared: Arc<Shared>,
    limit: u64,
    reserve: u64,
}

#[derive(Debug)]
struct Shared {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Names loaded or saved since the store was opened. They are not evicted: a model larger
    /// than the limit would else drive out, image by image, what its next start asks for first.
    used: HashSet<String>,
    /// Names that a warning was given for and that are still there.
    warned: HashSet<String>,
}

impl Store {
    /// Opens the directory, creating it with mode 0700 if it is not there, and removes what
    /// writers left that were killed. `limit` is the most bytes that its files may take together;
    /// `None` leaves only the disk as the limit. For more, the longest unused images go, but none
    /// that was loaded or saved since the store was opened: for another model, open it anew.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when it is no directory, belongs to another user, may be written by
    /// others, may not be written by this user, or is on a read-only file system or one without
    /// locks.
    pub fn open(dir: &Path, limit: Option<u64>) -> Result<Store> {
        let path = dir::prepare(dir)?;
        let swept = dir::lock(&path).and_then(|lock| lock.map_or(Ok(()), |lock| lock.sweep()));
        swept.map_err(|e| dir::error(&path, &e))?;
        let shared = Arc::new(Shared { path, state: Mutex::default() });
        Ok(Store { shared, limit: limit.unwrap_or(u64::MAX), reserve: RESERVE })
    }

    /// With another number of bytes that stay free on the disk; it is 256 MiB else.
    #[must_use]
    pub fn with_reserve(self, reserve: u64) -> Store {
        Store { reserve, ..self }
    }

    /// Bytes of the disk that this user may still fill.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when the file system does not say.
    pub fn free(&self) -> Result<u64> {
        dir::free(self.path()).map_err(|e| dir::error(self.path(), &e))
    }

    /// The directory, absolute.
    pub fn path(&self) -> &Path {
        &self.shared.path
    }

    /// The image of `key`, `None` if there is none that is fit for use. One that is not is removed, and a
    /// warning says why.
    ///
    /// The whole file is read once, for its checksums.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when the directory itself may not be searched any more.
    pub fn load(&self, key: &Key) -> Result<Option<Packed>> {
        let name = key.file_name();
        let path = self.path().join(&name);
        let (why, removed) = match image::open(&path, &key.bytes()) {
            Ok(packed) => {
                self.in_use(name);
                return Ok(Some(packed));
            }
            Err(Missing::Absent) => return Ok(None),
            Err(Missing::Mend(e)) => return Err(e),
            Err(Missing::Now(why)) => (why, None),
            Err(Missing::Bad(why, id)) => (why, Some(image::remove(&path, id))),
        };
        let path = path.display();
        match removed {
            Some(Ok(())) => {
                tracing::warn!("packed weights {path} were refused and removed: {why}");
            }
            // It stays, and would be warned of at every load.
            _ if !self.state().warned.insert(name) => {}
            Some(Err(e)) => {
                tracing::warn!(
                    "packed weights {path} are refused: {why}; remove them by hand: {e}"
                );
            }
            None => tracing::warn!("packed weights {path} are not used this time: {why}"),
        }
        Ok(None)
    }

    /// Writes the image of `key`, in place of an earlier one.
    ///
    /// # Errors
    /// As [`Writer`] says.
    pub fn save(&self, key: &Key, parts: &[&[u8]]) -> Result<Saved> {
        let lens: Vec<u64> = parts.iter().map(|p| p.len() as u64).collect();
        let mut writer = self.writer(key, &lens)?;
        for (i, part) in parts.iter().enumerate() {
            writer.part(i, part)?;
        }
        writer.commit()
    }

    /// A writer for the image of `key` with parts of `lens` bytes: for parts that are not in
    /// memory all at once. Room is made here.
    ///
    /// # Errors
    /// [`Error::Store`](crate::Error::Store) when the directory or the disk fails, or when the key and the table of
    /// parts need more than 1 MiB. No room is no error: see [`Writer::refused`].
    pub fn writer(&self, key: &Key, lens: &[u64]) -> Result<Writer> {
        Writer::new(self, key.file_name(), key.bytes(), lens)
    }

    fn limit(&self) -> u64 {
        self.limit
    }

    fn reserve(&self) -> u64 {
        self.reserve
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Sets of names are whole at any time.
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_use(&self, name: String) {
        self.state().used.insert(name);
    }

    fn used(&self) -> HashSet<String> {
        self.state().used.clone()
    }
}
