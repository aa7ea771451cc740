//! The runs that the journal has, and writing to one.

use super::disk::{Disk, Entry, Kind};
use super::effect::missing_folders;
use super::journal::{Begin, Deed, FOLDER, Journal, Record, line, parse};
use super::place::{Place, parent};
use anyhow::{Context, Result, anyhow, bail};
use rustix::fs::{FlockOperation, flock};
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// The journal's folder, held by this process alone. Folders above it are made where they are missing.
#[derive(Debug)]
pub struct Runs {
    /// Without links.
    pub path: String,
    /// On this machine.
    folder: PathBuf,
    /// Folders that were made for it.
    pub made: Vec<String>,
    _lock: Lock,
}

/// Held for as long as it lives. It is given back by name: a process that was forked meanwhile, and has not begun its
/// program yet, has it as well.
#[derive(Debug)]
struct Lock(File);

impl Drop for Lock {
    fn drop(&mut self) {
        // The end of the process does the same.
        let _ = flock(&self.0, FlockOperation::Unlock);
    }
}

impl Runs {
    /// For writing. None where there is no folder and none is to be made.
    pub fn open(disk: &mut dyn Disk, place: &Place, make: bool) -> Result<Option<Runs>> {
        let path = place.resolved(disk, FOLDER)?;
        let mut made = Vec::new();
        if make && let Err(e) = make_folders(disk, place, &path, &mut made) {
            // As it was; what cannot be removed is empty, and said by the error.
            made.iter().rev().for_each(|folder| _ = disk.rmdir(&place.real(folder)));
            return Err(e);
        }
        let folder = place.real(&path);
        match disk.look(&folder).with_context(|| path.clone())? {
            None => return Ok(None),
            Some(Entry { kind: Kind::Folder, .. }) => {}
            Some(_) => bail!("{path} is no folder"),
        }
        let lock = File::open(&folder).with_context(|| format!("{path} (try as root)"))?;
        let busy = || anyhow!("another rocketctl is changing this system; wait for its end");
        flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| busy())?;
        // Whoever had it before may have removed it.
        let lock = Lock(lock);
        let now = std::fs::metadata(&folder).map_err(|_| busy())?;
        if now.ino() != lock.0.metadata()?.ino() {
            return Err(busy());
        }
        Ok(Some(Runs { path, folder, made, _lock: lock }))
    }

    /// All runs, the oldest first, and what is left of those that ended between two operations is removed.
    pub fn all(&self, disk: &mut dyn Disk) -> Result<Vec<(u32, Journal)>> {
        let mut runs = Vec::new();
        let names = disk.names(&self.folder)?;
        for number in numbers(&names, ".jsonl") {
            let file = self.file(number);
            let bytes = disk.read(&file)?;
            let read = parse(&bytes).map_err(|e| anyhow!("{}: {e}", file.display()))?;
            match read {
                Some(journal) => runs.push((number, journal)),
                // The power went before its first line was there.
                None => self.forget(disk, number)?,
            }
        }
        let known = numbers(&disk.names(&self.folder)?, ".jsonl");
        for number in numbers(&names, ".d").into_iter().filter(|n| !known.contains(n)) {
            self.forget(disk, number)?;
        }
        Ok(runs)
    }

    /// Begins one.
    pub fn begin(&self, disk: &mut dyn Disk, number: u32, begin: Begin) -> Result<()> {
        disk.mkdir(&self.saves(number), 0o700)?;
        let text = line(&Record::Begin(begin))?;
        disk.write(&self.file(number), text.as_bytes(), 0o600, None)?;
        disk.sync(&self.file(number))?;
        Ok(disk.sync(&self.folder)?)
    }

    /// Writes down what is about to be done, its old bytes first.
    pub fn note(
        &self,
        disk: &mut dyn Disk,
        number: u32,
        deed: &Deed,
        old: Option<&[u8]>,
    ) -> Result<()> {
        if let Some(bytes) = old {
            let save = self.save(number, deed.n);
            disk.write(&save, bytes, 0o600, None)?;
            disk.sync(&save)?;
            disk.sync(&self.saves(number))?;
        }
        self.record(disk, number, &Record::Do(deed.clone()))
    }

    pub fn record(&self, disk: &mut dyn Disk, number: u32, record: &Record) -> Result<()> {
        disk.append(&self.file(number), line(record)?.as_bytes())?;
        Ok(disk.sync(&self.file(number))?)
    }

    /// Removes a run's journal, and then its old bytes.
    pub fn forget(&self, disk: &mut dyn Disk, number: u32) -> Result<()> {
        if disk.look(&self.file(number))?.is_some() {
            disk.unlink(&self.file(number))?;
            disk.sync(&self.folder)?;
        }
        let saves = self.saves(number);
        if disk.look(&saves)?.is_some() {
            for name in disk.names(&saves)? {
                disk.unlink(&saves.join(name))?;
            }
            disk.rmdir(&saves)?;
            disk.sync(&self.folder)?;
        }
        Ok(())
    }

    /// Removes the journal's folders where nothing is in them: its own two, and those above that were made for it.
    pub fn leave(self, disk: &mut dyn Disk, place: &Place, made: &[String]) -> Result<()> {
        let ours = [self.path.as_str(), parent(&self.path)];
        let above = made.iter().rev().map(String::as_str).filter(|m| !ours.contains(m));
        for folder in ours.into_iter().chain(above) {
            if !leave_folder(disk, place, folder)? {
                break;
            }
        }
        Ok(())
    }

    pub fn file(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:04}.jsonl"))
    }

    fn saves(&self, number: u32) -> PathBuf {
        self.folder.join(format!("{number:04}.d"))
    }

    /// The old bytes of a deed.
    pub fn save(&self, number: u32, n: u32) -> PathBuf {
        self.saves(number).join(n.to_string())
    }
}

/// Removes the folder above the journal's where it is empty: the power went before that was made.
pub fn leave_nothing(disk: &mut dyn Disk, place: &Place) -> Result<()> {
    let path = place.resolved(disk, FOLDER)?;
    leave_folder(disk, place, parent(&path)).map(drop)
}

/// Removes a folder if it is empty; whether it is gone.
fn leave_folder(disk: &mut dyn Disk, place: &Place, folder: &str) -> Result<bool> {
    let real = place.real(folder);
    if disk.look(&real)?.is_none_or(|e| e.kind != Kind::Folder) {
        return Ok(true);
    }
    if !disk.names(&real)?.is_empty() {
        return Ok(false);
    }
    disk.rmdir(&real)?;
    disk.sync(&place.real(parent(folder)))?;
    Ok(true)
}

fn make_folders(
    disk: &mut dyn Disk,
    place: &Place,
    path: &str,
    made: &mut Vec<String>,
) -> Result<()> {
    for folder in missing_folders(disk, place, &format!("{path}/x"))? {
        let ours = folder == path || folder == parent(path);
        let mode = if ours { 0o700 } else { 0o755 };
        disk.mkdir(&place.real(&folder), mode).with_context(|| folder.clone())?;
        made.push(folder.clone());
        disk.sync(&place.real(parent(&folder)))?;
    }
    Ok(())
}

fn numbers(names: &[String], end: &str) -> Vec<u32> {
    let number = |n: &String| n.strip_suffix(end)?.parse().ok();
    let mut all: Vec<u32> = names.iter().filter_map(number).collect();
    all.sort_unstable();
    all
}
