//! Changes to a system: said before they are made, journalled, and taken back byte for byte.
//!
//! A [`Plan`] has [`Step`]s, a step has changes: files, folders, parameters, commands. [`carry_out`] shows the plan,
//! asks, and makes them; each is in a journal on the disk before it is made, with the old bytes beside it, so that
//! [`undo`] brings back what was there after a failure and after a power cut, from a rescue system as well.
//! Everything is below a root path; commands are for the live system alone, and listed for any other.

mod apply;
mod back;
mod cli;
mod command;
mod disk;
mod effect;
mod emit;
mod file;
pub mod journal;
mod outcome;
mod place;
mod runs;
mod show;
#[cfg(test)]
pub mod tests;
mod undo;

pub use apply::{Options, carry_out};
pub use cli::How;
pub use command::{PATIENCE, run as run_program};
pub use effect::State;
pub use outcome::{End, Outcome};
pub use show::needs_root;
pub use undo::{UndoOptions, Undone, undo};

use anyhow::Result;
use std::fmt;

/// What is to be done to a system.
#[derive(Debug)]
pub struct Plan {
    /// As its runs are called in the journal, and by [`UndoOptions`].
    pub name: &'static str,
    /// In words.
    pub title: String,
    /// The command that takes it back.
    pub undo: String,
    /// In their order.
    pub steps: Vec<Step>,
}

impl Plan {
    pub fn new(name: &'static str, title: impl Into<String>, undo: impl Into<String>) -> Plan {
        Plan { name, title: title.into(), undo: undo.into(), steps: Vec::new() }
    }

    pub fn step(mut self, step: Step) -> Plan {
        self.steps.push(step);
        self
    }
}

/// Changes that belong together: all of them are made or none.
#[derive(Debug)]
pub struct Step {
    pub id: &'static str,
    pub title: String,
    /// What it is good for.
    pub why: String,
    pub changes: Vec<Change>,
    /// Of what the files do not show: whether commands have anything to do, and what stands in the way.
    pub given: Option<State>,
    /// Whether the plan goes on without it where it cannot be done.
    pub optional: bool,
}

impl Step {
    pub fn new(id: &'static str, title: impl Into<String>, why: impl Into<String>) -> Step {
        let (title, why) = (title.into(), why.into());
        Step { id, title, why, changes: Vec::new(), given: None, optional: false }
    }

    fn with(mut self, change: Change) -> Step {
        self.changes.push(change);
        self
    }

    /// The whole of a file. Folders that are missing are made.
    pub fn write(self, path: impl Into<String>, bytes: impl Into<Vec<u8>>, mode: u32) -> Step {
        self.with(Change::Write { path: path.into(), bytes: bytes.into(), mode })
    }

    /// A text file's new content by its old one, which is none where there is no file.
    pub fn edit(
        self,
        path: impl Into<String>,
        how: impl Fn(Option<&str>) -> Result<String> + 'static,
    ) -> Step {
        self.with(Change::Edit { path: path.into(), how: Edit(Box::new(how)) })
    }

    pub fn folder(self, path: impl Into<String>, mode: u32) -> Step {
        self.with(Change::Folder { path: path.into(), mode })
    }

    pub fn remove(self, path: impl Into<String>) -> Step {
        self.with(Change::Remove { path: path.into() })
    }

    /// A parameter of the kernel, written in place; a restart loses it.
    pub fn set(self, path: impl Into<String>, value: impl Into<String>) -> Step {
        self.with(Change::Set { path: path.into(), value: value.into() })
    }

    /// A command, where its step is to do, and the one that takes it back, if there is anything to take back; that
    /// must do no harm when run twice.
    pub fn run(self, argv: &[&str], undo: Option<&[&str]>) -> Step {
        self.with(Change::Run { argv: words(argv), undo: undo.map(words) })
    }

    /// A command for taking back what follows, after that was taken back: a daemon that reads files anew.
    pub fn at_undo(self, undo: &[&str]) -> Step {
        self.with(Change::Run { argv: Vec::new(), undo: Some(words(undo)) })
    }

    fn is_commands(&self) -> bool {
        self.changes.iter().all(|c| matches!(c, Change::Run { .. }))
    }

    /// What it runs, as a shell takes it.
    fn commands(&self) -> Vec<String> {
        let argv = |c: &Change| match c {
            Change::Run { argv, .. } if !argv.is_empty() => Some(command::quoted(argv)),
            _ => None,
        };
        self.changes.iter().filter_map(argv).collect()
    }

    pub fn given(mut self, state: State) -> Step {
        self.given = Some(state);
        self
    }

    pub fn optional(mut self) -> Step {
        self.optional = true;
        self
    }
}

fn words(argv: &[&str]) -> Vec<String> {
    argv.iter().map(|&word| word.to_owned()).collect()
}

/// One change.
#[derive(Debug)]
pub enum Change {
    Write { path: String, bytes: Vec<u8>, mode: u32 },
    Edit { path: String, how: Edit },
    Folder { path: String, mode: u32 },
    Remove { path: String },
    Set { path: String, value: String },
    Run { argv: Vec<String>, undo: Option<Vec<String>> },
}

/// New text by old text.
pub struct Edit(Box<NewText>);

type NewText = dyn Fn(Option<&str>) -> Result<String>;

impl fmt::Debug for Edit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Edit")
    }
}
