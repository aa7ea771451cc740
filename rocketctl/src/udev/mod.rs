//! `rocketctl udev`: rules for the node's group and the cores' delay, and the folder for counters.

mod check;
mod files;
#[cfg(test)]
mod tests;

pub use files::steps;

use crate::change::{self, How, Options, Plan, Step, UndoOptions};
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use files::{FILES, File, RELOAD, needed};
use rocket_runtime::board::{Facts, Root};
use serde::Serialize;
use std::fmt::Write as _;
use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

/// See [`Command`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the files that this machine needs, with their paths.
    Show,
    /// Install them, and bring them into effect.
    Install {
        #[command(flatten)]
        how: How,
        /// Write them to this folder instead, with the commands that go with them.
        #[arg(long, value_name = "DIR")]
        emit: Option<PathBuf>,
    },
    /// Take them away again: what was there before comes back.
    Remove {
        #[command(flatten)]
        how: How,
        /// Also files that somebody changed since.
        #[arg(long)]
        force: bool,
    },
    /// Tell whether they are installed, and whether the system gives what they give.
    ///
    /// Exit status: 0 nothing to do, 1 something to do, 2 an error.
    Check,
}

impl Arguments {
    /// Whether the system is to be changed.
    pub fn changes(&self) -> bool {
        match &self.command {
            Command::Install { how, emit } => how.changes(emit.as_ref()),
            Command::Remove { how, .. } => how.changes(None),
            Command::Show | Command::Check => false,
        }
    }
}

/// The plan's name in the journal.
const PLAN: &str = "udev";
/// Of taking away files of which the journal has nothing.
const REMOVAL: &str = "udev-remove";

#[derive(Debug, Serialize)]
struct Shown {
    path: &'static str,
    mode: &'static str,
    why: &'static str,
    text: &'static str,
}

/// What a finding of `check` is about.
pub fn explain(id: &str) -> Option<String> {
    let file = FILES.iter().find(|f| f.id == id)?;
    Some(format!("{}: {} `rocketctl udev install` writes {}.", file.title, file.why, file.path))
}

/// Its findings.
pub fn ids() -> impl Iterator<Item = &'static str> {
    FILES.iter().map(|f| f.id)
}

/// Runs a subcommand.
///
/// # Errors
/// A root that is not there, or a change that failed.
pub fn run(arguments: Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
    let facts = Facts::read(&root);
    match arguments.command {
        Command::Show => show(&needed(&facts), globals),
        Command::Check => {
            let report = check::check(&root, &facts);
            match globals.json {
                true => print_json(&report)?,
                false => print(&report.text(globals.quiet, globals.colored()))?,
            }
            Ok(ExitCode::from(report.exit))
        }
        Command::Install { how, emit } => {
            let mut plan = Plan::new(PLAN, "udev rules for the NPU", "sudo rocketctl udev remove");
            plan.steps = steps(&root, &facts, emit.is_some());
            let options = Options { dry_run: how.dry_run, yes: how.yes, emit };
            let outcome =
                change::carry_out(&globals.root, &plan, &options, &mut how.said(globals))?;
            outcome.ended(globals)
        }
        Command::Remove { how, force } => remove(&root, &how, force, globals),
    }
}

fn show(files: &[File], globals: &Globals) -> Result<ExitCode> {
    let shown = |f: &File| Shown { path: f.path, mode: "644", why: f.why, text: f.text };
    if globals.json {
        print_json(&files.iter().map(shown).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut out = String::new();
    for file in files {
        let _ = writeln!(out, "{} (mode 644)\n", file.path);
        for line in file.text.lines() {
            let _ = writeln!(out, "    {line}");
        }
        out.push('\n');
    }
    print(&out)?;
    Ok(ExitCode::SUCCESS)
}

/// Takes back what the journal has, and then what some earlier version or `setup` left.
fn remove(root: &Root, how: &How, force: bool, globals: &Globals) -> Result<ExitCode> {
    let mut out = how.said(globals);
    let interrupted = UndoOptions { unfinished: true, ..how.undo(REMOVAL, force) };
    change::undo(&globals.root, &interrupted, &mut io::sink())?;
    let undone = change::undo(&globals.root, &how.undo(PLAN, force), &mut out)?;
    if undone.shown_only {
        return Ok(ExitCode::from(u8::from(!how.dry_run)));
    }
    let mut left = Vec::new();
    for file in &FILES {
        match root.bytes(file.path) {
            Ok(bytes) if bytes == file.text.as_bytes() => left.push(file.path),
            Ok(bytes) if check::is_ours(file, &bytes) && !force => {
                bail!(
                    "{} was changed since, or is of another version; --force removes it",
                    file.path
                )
            }
            Ok(bytes) if check::is_ours(file, &bytes) => left.push(file.path),
            // Not there, or somebody else's.
            Ok(_) | Err(_) => {}
        }
    }
    if left.is_empty() {
        return undone.ended(globals);
    }
    let listens = files::listens(root);
    let mut step = Step::new("udev-remove", "Files of another run", "They are rocketctl's.");
    if listens {
        step = step.at_undo(RELOAD);
    }
    step = left.into_iter().fold(step, Step::remove);
    if listens {
        step = step.run(RELOAD, None);
    }
    let plan =
        Plan::new(REMOVAL, "udev rules for the NPU: away", "sudo rocketctl udev remove").step(step);
    let options = Options { dry_run: how.dry_run, yes: how.yes, emit: None };
    let outcome = change::carry_out(&globals.root, &plan, &options, &mut out)?;
    outcome.ended(globals)
}
