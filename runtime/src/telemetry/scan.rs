//! Finding every process's file, and removing those of the dead.

use super::place::{UNFINISHED, pid_of};
use super::reader::{Life, Refused, read};
use super::snapshot::Snapshot;
use std::collections::HashSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Entries of one directory that are looked at: a directory that others fill must not keep a tool.
const MOST: usize = 16_384;
/// A file without its final name is being made; after this long, by nobody any more.
const MAKING: Duration = Duration::from_secs(60);

/// A file, and what is in it.
#[derive(Debug)]
pub struct Found {
    /// It.
    pub path: PathBuf,
    /// Its figures, or why they are not shown.
    pub figures: Result<Snapshot, Refused>,
}

/// What of the dead is kept for a while: their last figures are worth a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// So long after their last copy,
    pub age: Duration,
    /// and so many of a directory, the newest.
    pub most: usize,
}

impl Keep {
    /// Nothing.
    pub const NOTHING: Keep = Keep { age: Duration::ZERO, most: 0 };
}

impl Default for Keep {
    /// Sixteen, for ten minutes.
    fn default() -> Keep {
        Keep { age: Duration::from_secs(600), most: 16 }
    }
}

/// What [`clean`] did.
#[derive(Debug, Default)]
pub struct Cleaned {
    /// Gone.
    pub removed: Vec<PathBuf>,
    /// Of dead processes, and not to be removed by this user, with the reason.
    pub refused: Vec<(PathBuf, io::Error)>,
}

/// Every directory below `root` that writers may use and this user can see. The runtime
/// directories of all users are looked for where systemd has them; `own` is this user's.
pub fn directories(root: &Path, own: Option<&Path>) -> Vec<PathBuf> {
    let mut found = vec![root.join("run/rocket"), root.join("dev/shm")];
    if let Ok(users) = root.join("run/user").read_dir() {
        let users = users.take(MOST).filter_map(|u| Some(u.ok()?.path().join("rocket")));
        found.extend(users);
    }
    found.extend(own.map(|dir| dir.join("rocket")));
    found.retain(|d| d.is_dir());
    found.sort();
    found.dedup();
    found
}

/// Names of finished files, or of unfinished ones.
fn names(directory: &Path, prefix: &str) -> io::Result<Vec<String>> {
    let entries = directory.read_dir()?.take(MOST);
    let names = entries.filter_map(|e| e.ok()?.file_name().into_string().ok());
    let fits = |n: &String| n.strip_prefix(prefix).and_then(pid_of).is_some();
    Ok(names.filter(fits).collect())
}

/// The counters in these directories, each once, by path. One that cannot be listed has none.
pub fn scan(directories: &[PathBuf]) -> Vec<Found> {
    let mut paths: Vec<PathBuf> = directories
        .iter()
        .flat_map(|d| names(d, "").unwrap_or_default().into_iter().map(|n| d.join(n)))
        .collect();
    paths.sort();
    let mut seen = HashSet::new();
    let once = |p: &PathBuf| match p.symlink_metadata() {
        Ok(m) => seen.insert((m.dev(), m.ino())),
        // It is gone.
        Err(_) => false,
    };
    paths.retain(once);
    paths
        .into_iter()
        .map(|path| Found { figures: read(&path), path })
        // It went while it was looked at.
        .filter(
            |f| !matches!(&f.figures, Err(Refused::Io(e)) if e.kind() == io::ErrorKind::NotFound),
        )
        .collect()
}

/// Removes the files of dead processes from these directories but for those to keep. What this
/// user may not remove stays, as does whatever is no file of counters.
pub fn clean(directories: &[PathBuf], keep: &Keep) -> Cleaned {
    let mut all = Cleaned::default();
    for directory in directories {
        if let Ok(one) = clean_directory(directory, keep) {
            all.removed.extend(one.removed);
            all.refused.extend(one.refused);
        }
    }
    all
}

pub(super) fn clean_directory(directory: &Path, keep: &Keep) -> io::Result<Cleaned> {
    let own = std::process::id();
    let mut dead: Vec<(SystemTime, PathBuf)> = Vec::new();
    for name in names(directory, "")? {
        // A process's own locks do not show; another one of this number is left to the next.
        if pid_of(&name) == Some(own) {
            continue;
        }
        let path = directory.join(name);
        let Ok(meta) = path.symlink_metadata() else { continue };
        if is_dead(&path) {
            dead.push((meta.modified().unwrap_or(SystemTime::UNIX_EPOCH), path));
        }
    }
    dead.sort_by(|a, b| b.cmp(a));
    let old = |time: &SystemTime| time.elapsed().is_ok_and(|age| age >= keep.age);
    let going = dead.into_iter().enumerate().filter(|(i, (time, _))| *i >= keep.most || old(time));
    let mut paths: Vec<PathBuf> = going.map(|(_, (_, path))| path).collect();
    for name in names(directory, UNFINISHED)? {
        let path = directory.join(name);
        let made = path.symlink_metadata().ok().filter(|m| m.is_file());
        let made = made.and_then(|m| m.modified().ok());
        if made.and_then(|t| t.elapsed().ok()).is_some_and(|age| age >= MAKING) {
            paths.push(path);
        }
    }
    let mut cleaned = Cleaned::default();
    for path in paths {
        match std::fs::remove_file(&path) {
            Ok(()) => cleaned.removed.push(path),
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => cleaned.refused.push((path, e)),
        }
    }
    Ok(cleaned)
}

/// A file of counters whose lock nobody holds, of this version or another. Names are random, so
/// what has this name now has it until it is removed.
fn is_dead(path: &Path) -> bool {
    match read(path) {
        Ok(snapshot) => snapshot.life == Life::Dead,
        Err(
            Refused::Version { .. } | Refused::Size { .. } | Refused::Damaged | Refused::Foreign,
        ) => super::reader::is_unlocked(path),
        Err(_) => false,
    }
}
