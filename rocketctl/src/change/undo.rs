//! Taking back what the journal has, the newest first.

use super::apply::{temp, write_file};
use super::command::quoted;
use super::disk::{Disk, Entry, Kind, Real};
use super::effect::{Whole, whole};
use super::journal::{Deed, Journal, Print, What};
use super::place::{Place, parent};
use super::runs::{Runs, leave_nothing};
use super::show::{confirmed, needs_root};
use anyhow::{Context, Result, bail};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// See [`undo`].
#[derive(Debug, Clone, Default)]
pub struct UndoOptions {
    /// Runs of this plan alone.
    pub plan: Option<String>,
    pub dry_run: bool,
    pub yes: bool,
    /// Also over what somebody changed since.
    pub force: bool,
    /// Runs that were interrupted alone.
    pub unfinished: bool,
}

/// What was taken back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Undone {
    /// Runs.
    pub runs: usize,
    /// Files and folders that are as they were.
    pub restored: Vec<String>,
    /// What is left, and why.
    pub left: Vec<String>,
    /// Commands that failed, and why.
    pub failed: Vec<String>,
    /// What to run once the system is up, where it is not this one.
    pub commands: Vec<String>,
    /// Whether it was shown alone.
    pub shown_only: bool,
}

impl Undone {
    /// What is left, what failed and what is still to run, a line each.
    pub fn words(&self) -> String {
        let all = [
            ("left", &self.left),
            ("failed", &self.failed),
            ("to run on that system", &self.commands),
        ];
        let lines =
            all.iter().flat_map(|(word, of)| of.iter().map(move |o| format!("{word}: {o}\n")));
        let mut out: String = lines.collect();
        if self.runs > 0 && self.failed.is_empty() {
            out.push_str("What was there before is there again.\n");
        }
        out
    }

    /// The exit status by the rules for every answer (operator-tools).
    pub fn exit(&self) -> u8 {
        u8::from(!self.failed.is_empty())
    }
}

/// Brings back what was there before the runs of a plan.
///
/// # Errors
/// What somebody changed since, without `force`; what cannot be read or written. The journal then stays, and the
/// same again goes on where this stopped.
pub fn undo(root: &Path, options: &UndoOptions, out: &mut dyn Write) -> Result<Undone> {
    let place = Place::new(root)?;
    if !options.dry_run {
        needs_root(root)?;
    }
    undo_on(&mut Real, &place, options, out)
}

pub fn undo_on(
    disk: &mut dyn Disk,
    place: &Place,
    options: &UndoOptions,
    out: &mut dyn Write,
) -> Result<Undone> {
    let Some(journal) = Runs::open(disk, place, false)? else {
        if !options.dry_run {
            leave_nothing(disk, place)?;
        }
        writeln!(out, "Nothing to take back: there is no journal.")?;
        return Ok(Undone::default());
    };
    let all = journal.all(disk)?;
    let ours = |j: &Journal| {
        options.plan.as_deref().is_none_or(|p| p == j.begin.plan)
            && !(options.unfinished && j.ended)
    };
    let mut runs: Vec<_> = all.iter().filter(|(_, j)| ours(j)).collect();
    runs.reverse();
    let made: Vec<String> = all.iter().flat_map(|(_, j)| j.begin.made.clone()).collect();
    if runs.is_empty() {
        writeln!(out, "Nothing to take back: the journal has no such run.")?;
        if all.is_empty() && !options.dry_run {
            journal.leave(disk, place, &made)?;
        }
        return Ok(Undone::default());
    }
    let changed = changed_since(disk, place, &journal, &runs)?;
    if !changed.is_empty() && !options.force {
        bail!(
            "somebody changed since:\n{}\nNothing was taken back; --force goes on and overwrites it.",
            changed.join("\n")
        );
    }
    for (number, j) in &runs {
        writeln!(out, "run {number} ({}):", j.begin.plan)?;
        for told in j.deeds.iter().rev().filter_map(|d| told(&d.what, place.is_live())) {
            writeln!(out, "  {told}")?;
        }
    }
    let mut undone = Undone::default();
    if options.dry_run || !confirmed(options.yes, "Take this back?")? {
        undone.shown_only = true;
        return Ok(undone);
    }
    for (number, j) in &runs {
        take_back(disk, place, &journal, *number, &j.deeds, &mut undone)?;
        journal.forget(disk, *number)?;
        undone.runs += 1;
    }
    if runs.len() == all.len() {
        journal.leave(disk, place, &made)?;
    }
    Ok(undone)
}

fn told(what: &What, live: bool) -> Option<String> {
    Some(match what {
        What::File { path, old: Some(_), .. } => format!("bring back {path}"),
        What::File { path, old: None, .. } => format!("remove {path}"),
        What::Folder { path } => format!("remove {path} if it is empty"),
        What::Set { path, old, .. } => format!("set {path} to {old} if it still has our value"),
        What::Run { undo: Some(argv), .. } if live => format!("run {}", quoted(argv)),
        What::Run { undo: Some(argv), .. } => format!("later: {}", quoted(argv)),
        What::Run { undo: None, .. } => return None,
    })
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Found {
    Nothing,
    File(Print),
    Folder,
    /// A link, or what no run of ours makes.
    Other,
}

impl Found {
    fn of(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<Found> {
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

    fn is(&self, print: &Option<Print>) -> bool {
        match (self, print) {
            (Found::File(a), Some(b)) => a.is(b),
            (Found::Nothing, None) => true,
            _ => false,
        }
    }
}

/// Files that are as no run has left or found them. One that was interrupted, and one that was being taken back when it
/// was, may have left any of its states, as a path may have been changed several times.
fn changed_since(
    disk: &mut dyn Disk,
    place: &Place,
    journal: &Runs,
    runs: &[&(u32, Journal)],
) -> Result<Vec<String>> {
    // The deeds of each path, the newest first.
    let mut paths: BTreeMap<&str, Vec<(u32, &Deed)>> = BTreeMap::new();
    for (number, j) in runs {
        for deed in j.deeds.iter().rev() {
            if let What::File { path, .. } | What::Folder { path } = &deed.what {
                paths.entry(path).or_default().push((*number, deed));
            }
        }
    }
    let mut changed = Vec::new();
    for (path, deeds) in paths {
        let now = Found::of(disk, place, path)?;
        let known = deeds.iter().any(|(_, deed)| match &deed.what {
            What::File { old, new, .. } => now.is(old) || now.is(new),
            _ => matches!(now, Found::Folder | Found::Nothing),
        });
        let last = deeds.iter().find_map(|(number, deed)| match &deed.what {
            What::File { old, .. } => Some((old, journal.save(*number, deed.n))),
            _ => None,
        });
        match last.filter(|_| !known) {
            Some((Some(_), saved)) => {
                changed.push(format!("  {path} (its old bytes: {})", saved.display()));
            }
            Some((None, _)) => changed.push(format!("  {path} (there was no such file)")),
            None => {}
        }
    }
    Ok(changed)
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
