//! A disk that fails once, or whose power goes, at a chosen operation.

use super::super::disk::{Disk, Entry, Kind, Real};
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// What happens at the chosen operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails, once.
    Fail,
    /// The power goes in the middle of it; all before is on the disk.
    Cut,
    /// The power goes, and what was not synced is lost.
    CutUnsynced,
}

/// What a restart finds undone unless the key, a file or a folder, was synced.
#[derive(Debug)]
enum Pending {
    Length(PathBuf, u64),
    Made(PathBuf),
    Renamed { from: PathBuf, to: PathBuf, old: Option<(Vec<u8>, u32)> },
    Unlinked(PathBuf, Vec<u8>, u32),
    Rmdir(PathBuf, u32),
}

#[derive(Debug)]
pub struct Faulty {
    /// Operations so far that change something.
    pub count: usize,
    at: usize,
    fault: Fault,
    dead: bool,
    pending: Vec<(PathBuf, Pending)>,
    /// Commands that were run.
    pub ran: Vec<String>,
    /// The command that fails.
    pub fails: Option<&'static str>,
}

impl Faulty {
    /// With the fault at the operation of that number, from 1 on.
    pub fn new(at: usize, fault: Fault) -> Faulty {
        let (pending, ran) = (Vec::new(), Vec::new());
        Faulty { count: 0, at, fault, dead: false, pending, ran, fails: None }
    }

    /// One that has none.
    pub fn sound() -> Faulty {
        Faulty::new(usize::MAX, Fault::Fail)
    }

    fn alive(&self) -> io::Result<()> {
        if self.dead { Err(io::Error::other("no power")) } else { Ok(()) }
    }

    /// Whether the power goes in this operation.
    fn tick(&mut self) -> io::Result<bool> {
        self.alive()?;
        self.count += 1;
        match (self.count == self.at, self.fault) {
            (false, _) => Ok(false),
            (true, Fault::Fail) => Err(io::Error::other("planted failure")),
            (true, _) => Ok(true),
        }
    }

    fn power_off<T>(&mut self) -> io::Result<T> {
        self.dead = true;
        if self.fault == Fault::CutUnsynced {
            for (_, lost) in self.pending.drain(..).rev() {
                lost.happen();
            }
        }
        Err(io::Error::other("no power"))
    }

    fn folder(&mut self, of: &Path, what: Pending) {
        self.pending.push((of.parent().unwrap().to_path_buf(), what));
    }
}

fn stat(path: &Path) -> io::Result<u32> {
    Ok(fs::symlink_metadata(path)?.mode() & 0o7777)
}

impl Pending {
    fn happen(self) {
        let write = |path: &Path, bytes: &[u8], mode: u32| {
            fs::write(path, bytes).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        match self {
            Pending::Length(path, length) => {
                let file = fs::OpenOptions::new().write(true).open(path).unwrap();
                file.set_len(length).unwrap();
            }
            Pending::Made(path) if path.is_dir() => fs::remove_dir(path).unwrap(),
            Pending::Made(path) => fs::remove_file(path).unwrap(),
            Pending::Renamed { from, to, old } => {
                fs::rename(&to, from).unwrap();
                if let Some((bytes, mode)) = old {
                    write(&to, &bytes, mode);
                }
            }
            Pending::Unlinked(path, bytes, mode) => write(&path, &bytes, mode),
            Pending::Rmdir(path, mode) => Real.mkdir(&path, mode).unwrap(),
        }
    }
}

impl Disk for Faulty {
    fn look(&mut self, path: &Path) -> io::Result<Option<Entry>> {
        self.alive()?;
        Real.look(path)
    }

    fn read(&mut self, path: &Path) -> io::Result<Vec<u8>> {
        self.alive()?;
        Real.read(path)
    }

    fn link(&mut self, path: &Path) -> io::Result<PathBuf> {
        self.alive()?;
        Real.link(path)
    }

    fn names(&mut self, path: &Path) -> io::Result<Vec<String>> {
        self.alive()?;
        Real.names(path)
    }

    fn write(
        &mut self,
        path: &Path,
        bytes: &[u8],
        mode: u32,
        owner: Option<(u32, u32)>,
    ) -> io::Result<()> {
        let cut = self.tick()?;
        let bytes = if cut { &bytes[..bytes.len() / 2] } else { bytes };
        Real.write(path, bytes, mode, owner)?;
        self.folder(path, Pending::Made(path.to_path_buf()));
        self.pending.push((path.to_path_buf(), Pending::Length(path.to_path_buf(), 0)));
        if cut { self.power_off() } else { Ok(()) }
    }

    fn append(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let cut = self.tick()?;
        let before = fs::metadata(path)?.len();
        let bytes = if cut { &bytes[..bytes.len() / 2] } else { bytes };
        Real.append(path, bytes)?;
        self.pending.push((path.to_path_buf(), Pending::Length(path.to_path_buf(), before)));
        if cut { self.power_off() } else { Ok(()) }
    }

    fn set(&mut self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        if self.tick()? {
            return self.power_off();
        }
        Real.set(path, bytes)
    }

    fn sync(&mut self, path: &Path) -> io::Result<()> {
        if self.tick()? {
            return self.power_off();
        }
        // Nothing comes back in a folder that is gone for good.
        let gone: Vec<PathBuf> = self
            .pending
            .iter()
            .filter(|(key, _)| key == path)
            .filter_map(|(_, p)| match p {
                Pending::Rmdir(folder, _) => Some(folder.clone()),
                _ => None,
            })
            .collect();
        self.pending.retain(|(key, _)| key != path && !gone.contains(key));
        // Tests make thousands of them; what is lost without is in `pending`.
        self.look(path)?.map(drop).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    fn rename(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        if self.tick()? {
            return self.power_off();
        }
        let old = match fs::read(to) {
            Ok(bytes) => Some((bytes, stat(to)?)),
            Err(_) => None,
        };
        Real.rename(from, to)?;
        // Whatever was pending of the file is now pending of it under its new name.
        for (key, what) in &mut self.pending {
            match what {
                Pending::Length(path, _) if path == from => {
                    (*key, *path) = (to.to_path_buf(), to.to_path_buf());
                }
                _ => {}
            }
        }
        let (from, to) = (from.to_path_buf(), to.to_path_buf());
        self.folder(&to.clone(), Pending::Renamed { from, to, old });
        Ok(())
    }

    fn mkdir(&mut self, path: &Path, mode: u32) -> io::Result<()> {
        let cut = self.tick()?;
        Real.mkdir(path, mode)?;
        self.folder(path, Pending::Made(path.to_path_buf()));
        if cut { self.power_off() } else { Ok(()) }
    }

    fn unlink(&mut self, path: &Path) -> io::Result<()> {
        if self.tick()? {
            return self.power_off();
        }
        let (bytes, mode) = (fs::read(path)?, stat(path)?);
        Real.unlink(path)?;
        // What never was on the disk under this name cannot come back.
        let made = |p: &(PathBuf, Pending)| matches!(&p.1, Pending::Made(m) if m == path);
        match self.pending.iter().any(made) {
            true => self.pending.retain(|(key, what)| {
                key != path && !matches!(what, Pending::Made(m) if m == path)
            }),
            false => self.folder(path, Pending::Unlinked(path.to_path_buf(), bytes, mode)),
        }
        Ok(())
    }

    fn rmdir(&mut self, path: &Path) -> io::Result<()> {
        if self.tick()? {
            return self.power_off();
        }
        let mode = stat(path)?;
        Real.rmdir(path)?;
        let made = |p: &(PathBuf, Pending)| matches!(&p.1, Pending::Made(m) if m == path);
        match self.pending.iter().any(made) {
            true => self.pending.retain(|(key, what)| {
                key != path && !matches!(what, Pending::Made(m) if m == path)
            }),
            false => self.folder(path, Pending::Rmdir(path.to_path_buf(), mode)),
        }
        Ok(())
    }

    fn run(&mut self, argv: &[String]) -> io::Result<()> {
        let cut = self.tick()?;
        self.ran.push(argv.join(" "));
        if cut {
            return self.power_off();
        }
        match self.fails.is_some_and(|f| argv[0] == f) {
            true => Err(io::Error::other("exit status: 1: no")),
            false => Ok(()),
        }
    }
}

/// Names, kinds, modes and bytes of a tree.
pub fn digest(dir: &Path) -> String {
    let mut all = String::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(folder) = open.pop() {
        let mut names: Vec<_> =
            fs::read_dir(&folder).unwrap().flatten().map(|e| e.path()).collect();
        names.sort();
        for path in names {
            let entry = Real.look(&path).unwrap().unwrap();
            let name = path.strip_prefix(dir).unwrap().display();
            let what = match entry.kind {
                Kind::File => format!("{:?}", String::from_utf8_lossy(&fs::read(&path).unwrap())),
                Kind::Link => format!("{:?}", fs::read_link(&path).unwrap()),
                _ => String::new(),
            };
            all += &format!("{name} {:?} {:o} {what}\n", entry.kind, entry.mode);
            if entry.kind == Kind::Folder {
                open.push(path);
            }
        }
    }
    all
}
