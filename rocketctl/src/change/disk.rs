//! What the engine does to a disk, one operation at a time, so that tests can fail each or cut the power at it.

use super::command;
use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Longest file that is read, written or saved: a plugin has room.
pub const LIMIT: u64 = 256 << 20;

/// What is at a path, links not followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    pub kind: Kind,
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Folder,
    Link,
    Other,
}

/// A disk. Nothing is lasting before `sync` of the file and, for its name, of its folder.
pub trait Disk: Debug {
    fn look(&mut self, path: &Path) -> io::Result<Option<Entry>>;
    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>>;
    fn link(&mut self, path: &Path) -> io::Result<PathBuf>;
    fn names(&mut self, path: &Path) -> io::Result<Vec<String>>;
    /// A new file; there must be none. Without an owner it is the process's.
    fn write(
        &mut self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<()>;
    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    /// In place, of a kernel's parameter, which is no file of a disk.
    fn set(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()>;
    fn sync(&mut self, path: &Path) -> io::Result<()>;
    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()>;
    fn mkdir(&mut self, path: &Path, mode: u32) -> io::Result<()>;
    fn unlink(&mut self, path: &Path) -> io::Result<()>;
    fn rmdir(&mut self, path: &Path) -> io::Result<()>;
    /// A program, to its end. Not one that succeeds is an error with the end of its output.
    fn run(&mut self, argv: &[String]) -> io::Result<()>;
}

/// The one of this machine.
#[derive(Debug)]
pub struct Real;

impl Disk for Real {
    fn look(&mut self, path: &Path) -> io::Result<Option<Entry>> {
        let meta = match fs::symlink_metadata(path) {
            Ok(meta) => meta,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(e) => return Err(e),
        };
        let kind = match meta.file_type() {
            t if t.is_file() => Kind::File,
            t if t.is_dir() => Kind::Folder,
            t if t.is_symlink() => Kind::Link,
            _ => Kind::Other,
        };
        Ok(Some(Entry { kind, mode: meta.mode() & 0o7777, uid: meta.uid(), gid: meta.gid() }))
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        File::open(path)?.take(LIMIT + 1).read_to_end(&mut bytes)?;
        match bytes.len() as u64 > LIMIT {
            true => Err(io::Error::other(format!("longer than {} MiB", LIMIT >> 20))),
            false => Ok(bytes),
        }
    }

    fn link(&mut self, path: &Path) -> io::Result<PathBuf> {
        fs::read_link(path)
    }

    fn names(&mut self, path: &Path) -> io::Result<Vec<String>> {
        let name = |e: io::Result<fs::DirEntry>| Ok(e?.file_name().to_string_lossy().into_owned());
        fs::read_dir(path)?.map(name).collect()
    }

    fn write(
        &mut self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        file.write_all(bytes)?;
        let made = file.metadata()?;
        if let Some((uid, gid)) = owner.filter(|o| *o != (made.uid(), made.gid())) {
            fchown(&file, Some(uid), Some(gid))?;
        }
        // After the owner: a change of that takes set-user-id bits away.
        file.set_permissions(fs::Permissions::from_mode(mode))
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(path)?.write_all(bytes)
    }

    fn set(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        OpenOptions::new().write(true).truncate(true).open(path)?.write_all(bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn mkdir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        fs::DirBuilder::new().mode(mode).create(path)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn rmdir(&mut self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn run(&mut self, argv: &[String]) -> io::Result<()> {
        command::run(argv, command::PATIENCE)
    }
}
