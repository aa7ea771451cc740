//! Taking the deeds of one run back.

use super::command::quoted;
use super::disk::{Disk, Entry, Kind};
use super::effect::{Whole, whole};
use super::file::{temp, write_file};
use super::journal::{Deed, Print, What};
use super::place::{Place, parent};
use super::runs::Runs;
use super::undo::Undone;
use anyhow::{Context, Result, bail};
use std::path::Path;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    Nothing,
    File(Print),
    Folder,
    /// A link, or what no run of ours makes.
    Other,
}

impl Found {
    pub fn of(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<Found> {
        in_place(disk, place, path)?;
        Ok(match disk.look(&place.real(path))?.map(|e| e.kind) {
            None => Found::Nothing,
            Some(Kind::Folder) => Found::Folder,
            Some(Kind::File) => match whole(disk, place, path)? {
                Some(file) => Found::File(file.print()),
                None => Found::Nothing,
            },
            Some(Kind::Link | Kind::Other) => Found::Other,
        })
    }

    pub fn is(&self, print: &Option<Print>) -> bool {
        match (self, print) {
            (Found::File(a), Some(b)) => a.is(b),
            (Found::Nothing, None) => true,
            _ => false,
        }
    }
}

/// Whether the path is still the one that was written down.
///
/// # Errors
/// A folder on the way is a link now: it might lead anywhere, and below another root to this machine's own files.
fn in_place(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<()> {
    let folder = parent(path);
    if folder != "/" && place.resolved(disk, folder)? != folder {
        bail!("{folder} leads elsewhere now; put it back as it was, and take this back then");
    }
    Ok(())
}

/// Takes deeds of one run back, the last first. Each is safe to be taken back again.
pub fn take_back(
    disk: &mut dyn Disk,
    place: &Place,
    journal: &Runs,
    number: u32,
    deeds: &[Deed],
    undone: &mut Undone,
) -> Result<()> {
    // What was changed several times goes back at once: what it was between may have been in a folder that an earlier
    // try has taken away.
    let first = |path: &str| {
        let of_it = |d: &&Deed| matches!(&d.what, What::File { path: p, .. } if p == path);
        deeds.iter().find(of_it).map(|d| d.n)
    };
    for deed in deeds.iter().rev() {
        match &deed.what {
            What::File { path, .. } if first(path) != Some(deed.n) => {}
            What::File { path, old, .. } => {
                let saved = journal.save(number, deed.n);
                restore(disk, place, path, old.as_ref(), &saved).with_context(|| path.clone())?;
                undone.restored.push(path.clone());
            }
            What::Folder { path } => match remove_folder(disk, place, path)? {
                true => undone.restored.push(path.clone()),
                false => undone.left.push(format!("{path}: it is not empty")),
            },
            What::Set { path, old, new } => reset(disk, place, path, old, new, undone)?,
            What::Run { undo: None, .. } => {}
            What::Run { undo: Some(argv), .. } if place.is_live() => {
                // What a command could not take back is no reason to leave the files as they are.
                if let Err(e) = disk.run(argv) {
                    undone.failed.push(format!("{}: {e}", quoted(argv)));
                }
            }
            What::Run { undo: Some(argv), .. } => undone.commands.push(quoted(argv)),
        }
    }
    Ok(())
}

fn restore(
    disk: &mut dyn Disk,
    place: &Place,
    path: &str,
    old: Option<&Print>,
    saved: &Path,
) -> Result<()> {
    let real = place.real(path);
    if disk.look(&real.with_file_name(temp(path)))?.is_some() {
        disk.unlink(&real.with_file_name(temp(path)))?;
        disk.sync(&place.real(parent(path)))?;
    }
    let old = old.cloned();
    match Found::of(disk, place, path)? {
        now if now.is(&old) => return Ok(()),
        // Only by --force.
        Found::Other => {
            disk.unlink(&real)?;
            disk.sync(&place.real(parent(path)))?;
        }
        Found::Folder => bail!("a folder is in its place, and not empty"),
        Found::File(_) | Found::Nothing => {}
    }
    match old {
        Some(old) => {
            let bytes = disk.read(saved).with_context(|| saved.display().to_string())?;
            if !Print::of(&bytes, old.mode, None).is(&old) {
                bail!("{} is damaged; restore it from a backup", saved.display());
            }
            write_file(disk, place, path, &Whole { bytes, mode: old.mode, owner: old.owner })
        }
        None if disk.look(&real)?.is_none() => Ok(()),
        None => {
            disk.unlink(&real)?;
            Ok(disk.sync(&place.real(parent(path)))?)
        }
    }
}

fn remove_folder(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<bool> {
    in_place(disk, place, path)?;
    let real = place.real(path);
    match disk.look(&real)? {
        Some(Entry { kind: Kind::Folder, .. }) if disk.names(&real)?.is_empty() => {
            disk.rmdir(&real).with_context(|| path.to_owned())?;
            disk.sync(&place.real(parent(path)))?;
            Ok(true)
        }
        Some(Entry { kind: Kind::Folder, .. }) => Ok(false),
        // Before it there was a file, which an earlier try has brought back.
        Some(_) | None => Ok(true),
    }
}

/// A parameter's old value, where it still has ours: after a restart it has neither, which is right.
fn reset(
    disk: &mut dyn Disk,
    place: &Place,
    path: &str,
    old: &str,
    new: &str,
    undone: &mut Undone,
) -> Result<()> {
    let Some(now) = whole(disk, place, path)? else { return Ok(()) };
    let now = String::from_utf8_lossy(&now.bytes).trim_end().to_owned();
    if now == new {
        disk.set(&place.real(path), format!("{old}\n").as_bytes())?;
        undone.restored.push(path.to_owned());
    } else if now != old {
        undone.left.push(format!("{path}: it is {now} by now"));
    }
    Ok(())
}
