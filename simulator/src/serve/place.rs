use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A folder that a served board lives in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    dir: PathBuf,
}

/// Why a board cannot live there.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// A name that is no plain file name.
    #[error(
        "'{0}' cannot name a board: use letters, digits, '-', '_' and '.', at most 40, and begin \
         with a letter or a digit"
    )]
    Name(String),
    /// The folder of all boards is not ours alone.
    #[error(
        "{path} belongs to someone else or others may write to it; set XDG_RUNTIME_DIR to a \
         folder of your own"
    )]
    Foreign {
        /// The folder.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("{path}: {source}")]
    Io {
        /// What was touched.
        path: PathBuf,
        /// How it failed.
        source: io::Error,
    },
}

impl Place {
    /// The place of the board with that name, for every process of this user.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn named(name: &str) -> Result<Place, PlaceError> {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let begins = name.starts_with(|c: char| c.is_ascii_alphanumeric());
        if name.len() > 40 || !begins || !name.chars().all(plain) {
            return Err(PlaceError::Name(name.to_owned()));
        }
        Ok(Place { dir: base()?.join(name) })
    }

    /// A new place of its own, for one board that is not shared by name.
    ///
    /// # Errors
    /// [`PlaceError`].
    pub fn private() -> Result<Place, PlaceError> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let base = base()?;
        loop {
            let n = NEXT.fetch_add(1, Relaxed);
            let dir = base.join(format!("private-{}-{n}", std::process::id()));
            match std::fs::DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(Place { dir }),
                // A killed process had this one's number and could not clean up.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(source) => return Err(PlaceError::Io { path: dir, source }),
            }
        }
    }

    /// A folder given by the caller.
    pub fn at(dir: &Path) -> Place {
        Place { dir: dir.to_owned() }
    }

    /// The folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What stands for `/`.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The node's socket.
    pub fn node(&self) -> PathBuf {
        self.root().join(rocket_sim_wire::NODE.trim_start_matches('/'))
    }

    pub(super) fn remove(&self) {
        // Another server may have been quicker; what is left is a few empty files.
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// The folder of all boards of this user.
fn base() -> Result<PathBuf, PlaceError> {
    let uid = rustix::process::geteuid().as_raw();
    let dir = match std::env::var_os("XDG_RUNTIME_DIR").filter(|d| !d.is_empty()) {
        Some(run) => PathBuf::from(run).join("rocket-sim"),
        None => std::env::temp_dir().join(format!("rocket-sim-{uid}")),
    };
    let io = |source| PlaceError::Io { path: dir.clone(), source };
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&dir).map_err(io)?;
    let is = std::fs::symlink_metadata(&dir).map_err(io)?;
    if !is.is_dir() || is.uid() != uid || is.mode() & 0o022 != 0 {
        return Err(PlaceError::Foreign { path: dir });
    }
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_inside_the_folder() {
        for name in ["", ".", "..", "a/b", "-x", ".x", "a b", &"x".repeat(41)] {
            assert!(matches!(Place::named(name), Err(PlaceError::Name(_))), "{name}");
        }
        let place = Place::named("ci-1.x_y").unwrap();
        assert!(place.node().ends_with("ci-1.x_y/root/dev/accel/accel0"));
    }

    #[test]
    fn what_a_killed_process_left_is_in_nobodys_way() {
        let name = |n| format!("private-{}-{n}", std::process::id());
        let left: Vec<PathBuf> = (0..3).map(|n| base().unwrap().join(name(n))).collect();
        left.iter().for_each(|dir| std::fs::create_dir_all(dir.join("root")).unwrap());
        let new = Place::private().unwrap();
        assert!(!left.contains(&new.dir), "{new:?}");
        assert!(new.dir.is_dir() && !new.root().exists());
        new.remove();
        left.iter().for_each(|dir| std::fs::remove_dir_all(dir).unwrap());
    }
}
