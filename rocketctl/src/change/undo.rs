//! Taking back what the journal has, the newest first.

use super::back::{Found, take_back};
use super::command::quoted;
use super::disk::{Disk, Real};
use super::journal::{Deed, Journal, What};
use super::place::Place;
use super::runs::{Runs, leave_nothing};
use super::show::{confirmed, needs_root};
use anyhow::{Result, bail};
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
