//! Taking away what a subcommand has put in: by the journal, byte for byte; where that has nothing, or somebody changed
//! the files since, by a plan that takes away what is ours.

use crate::change::{End, Options, Plan, UndoOptions, carry_out, undo};
use anyhow::Result;
use std::io::Write;
use std::path::Path;

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawn {
    /// It is gone.
    Gone,
    /// It was not there, or this was shown alone.
    Nothing,
    /// It is there yet: somebody did not want it to go, or something is in the way.
    Not,
}

impl Withdrawn {
    /// The exit status by the rules for every answer (operator-tools).
    pub fn exit(self) -> u8 {
        u8::from(self == Withdrawn::Not)
    }
}

/// By the journal's runs of the plan `name`; nothing where the journal cannot do it, after saying why.
///
/// # Errors
/// A file cannot be read or written.
pub fn by_journal(
    root: &Path,
    name: &str,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Option<Withdrawn>> {
    let asked = |dry_run: bool, yes: bool| UndoOptions {
        plan: Some(name.to_owned()),
        dry_run,
        yes,
        force: false,
        unfinished: false,
    };
    // Looked at alone, and in silence: what it says of an empty journal is of no interest.
    match undo(root, &asked(true, true), &mut std::io::sink()) {
        Ok(there) if !there.shown_only => return Ok(None),
        Ok(_) => {}
        Err(e) => {
            writeln!(out, "{e:#}\nSo what is there of it is taken away by itself.\n")?;
            return Ok(None);
        }
    }
    let undone = undo(root, &asked(options.dry_run, options.yes), out)?;
    if undone.shown_only {
        return Ok(Some(if options.dry_run { Withdrawn::Nothing } else { Withdrawn::Not }));
    }
    write!(out, "{}", undone.words())?;
    Ok(Some(if undone.failed.is_empty() { Withdrawn::Gone } else { Withdrawn::Not }))
}

/// By a plan.
///
/// # Errors
/// A file cannot be read or written.
pub fn by_plan(
    root: &Path,
    plan: &Plan,
    options: &Options,
    out: &mut dyn Write,
) -> Result<Withdrawn> {
    Ok(match carry_out(root, plan, options, out)?.end {
        End::Done => Withdrawn::Gone,
        End::NothingToDo | End::DryRun | End::Emitted => Withdrawn::Nothing,
        End::Declined | End::Blocked => Withdrawn::Not,
    })
}
