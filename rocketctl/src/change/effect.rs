//! What a change comes to on the system as it is: nothing, a concrete deed, or what stands in its way.

use super::disk::{Disk, Entry, Kind};
use super::journal::Print;
use super::place::{Place, parent};
use super::{Change, Step};
use anyhow::{Context, Result, bail};
use serde::Serialize;

/// Of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", content = "why", rename_all = "snake_case")]
pub enum State {
    Done,
    ToDo,
    Cannot(String),
}

/// A file's bytes, mode and owner.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    pub bytes: Vec<u8>,
    pub mode: u32,
    pub owner: Option<(u32, u32)>,
}

impl Whole {
    pub fn print(&self) -> Print {
        Print::of(&self.bytes, self.mode, self.owner)
    }
}

/// A change that is not yet made, at a path without links.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    File { path: String, old: Option<Whole>, new: Option<Whole> },
    Folder { path: String, mode: u32 },
    Set { path: String, old: String, new: String },
    Run { argv: Vec<String>, undo: Option<Vec<String>> },
}

impl Step {
    /// How far it is on this system.
    pub fn state(&self, disk: &mut dyn Disk, place: &Place) -> State {
        if let Some(given @ (State::Done | State::Cannot(_))) = &self.given {
            return given.clone();
        }
        let mut open = self.is_commands();
        for change in self.changes.iter().filter(|c| !matches!(c, Change::Run { .. })) {
            match effect(disk, place, change) {
                Ok(found) => open |= found.is_some(),
                Err(e) => return State::Cannot(format!("{e:#}")),
            }
        }
        match open || self.given == Some(State::ToDo) {
            true => State::ToDo,
            false => State::Done,
        }
    }
}

/// What there is to do for a change; nothing where the system is as it wants it.
pub fn effect(disk: &mut dyn Disk, place: &Place, change: &Change) -> Result<Option<Effect>> {
    let found = match change {
        Change::Write { path, bytes, mode } => {
            let path = place.resolved(disk, path)?;
            let old = whole(disk, place, &path)?;
            let owner = old.as_ref().and_then(|o| o.owner);
            let new = Some(Whole { bytes: bytes.clone(), mode: *mode, owner });
            Effect::File { path, old, new }
        }
        Change::Edit { path, how } => {
            let path = place.resolved(disk, path)?;
            let old = whole(disk, place, &path)?;
            let text = old.as_ref().map(|o| std::str::from_utf8(&o.bytes)).transpose();
            let text = text.with_context(|| format!("{path} is no text"))?;
            let bytes = how.0(text)?.into_bytes();
            let (mode, owner) = old.as_ref().map_or((0o644, None), |o| (o.mode, o.owner));
            Effect::File { path, old, new: Some(Whole { bytes, mode, owner }) }
        }
        Change::Remove { path } => {
            let path = place.resolved(disk, path)?;
            let old = whole(disk, place, &path)?;
            Effect::File { path, old, new: None }
        }
        Change::Folder { path, mode } => {
            let path = place.resolved(disk, path)?;
            match disk.look(&place.real(&path))? {
                Some(Entry { kind: Kind::Folder, .. }) => return Ok(None),
                Some(_) => bail!("{path} is no folder"),
                None => Effect::Folder { path, mode: *mode },
            }
        }
        Change::Set { path, value } => {
            let path = place.resolved(disk, path)?;
            let Some(old) = whole(disk, place, &path)? else { bail!("no {path}") };
            let old = String::from_utf8_lossy(&old.bytes).trim_end().to_owned();
            Effect::Set { path, old, new: value.clone() }
        }
        Change::Run { argv, undo } => Effect::Run { argv: argv.clone(), undo: undo.clone() },
    };
    Ok(match &found {
        Effect::File { old, new, .. } if old == new => None,
        Effect::Set { old, new, .. } if old == new => None,
        _ => Some(found),
    })
}

/// The file at a path without links.
pub fn whole(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<Option<Whole>> {
    let real = place.real(path);
    match disk.look(&real).with_context(|| path.to_owned())? {
        None => Ok(None),
        Some(Entry { kind: Kind::File, mode, uid, gid }) => {
            let bytes = disk.read(&real).with_context(|| format!("{path} cannot be read"))?;
            Ok(Some(Whole { bytes, mode, owner: Some((uid, gid)) }))
        }
        Some(_) => bail!("{path} is no file"),
    }
}

/// Folders of a path that are missing, the outermost first.
pub fn missing_folders(disk: &mut dyn Disk, place: &Place, path: &str) -> Result<Vec<String>> {
    let (mut missing, mut at) = (Vec::new(), parent(path));
    while at != "/" {
        match disk.look(&place.real(at)).with_context(|| at.to_owned())? {
            None => missing.push(at.to_owned()),
            Some(Entry { kind: Kind::Folder, .. }) => break,
            Some(_) => bail!("{at} is no folder"),
        }
        at = parent(at);
    }
    missing.reverse();
    Ok(missing)
}
