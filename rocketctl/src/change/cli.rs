//! What the subcommands that change something share.

use super::{Outcome, UndoOptions, Undone};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use clap::Args;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

/// How something is changed.
#[derive(Debug, Clone, Args)]
pub struct How {
    /// Do not ask.
    #[arg(long, short)]
    pub yes: bool,
    /// Show what would be done, and do nothing.
    #[arg(long)]
    pub dry_run: bool,
}

impl How {
    /// Whether the system is changed, and nothing is shown or written elsewhere alone.
    pub fn changes(&self, emit: Option<&PathBuf>) -> bool {
        !self.dry_run && emit.is_none()
    }

    /// For taking back the runs of a plan.
    pub fn undo(&self, plan: &str, force: bool) -> UndoOptions {
        UndoOptions {
            plan: Some(plan.to_owned()),
            dry_run: self.dry_run,
            yes: self.yes,
            force,
            unfinished: false,
        }
    }

    /// Where words go. What is about to be done is said even to who wants it quiet, unless no question follows.
    pub fn said(&self, globals: &Globals) -> Box<dyn Write> {
        match (globals.json, globals.quiet && self.yes) {
            (_, true) => Box::new(io::sink()),
            (true, _) => Box::new(io::stderr()),
            (false, _) => Box::new(io::stdout()),
        }
    }
}

impl Outcome {
    /// The last words of a plan, and its exit status.
    pub fn ended(&self, globals: &Globals) -> Result<ExitCode> {
        match globals.json {
            true => print_json(self)?,
            false => print(&format!("{}\n", crate::doctor::wrapped(&self.words(), 80).join("\n")))?,
        }
        Ok(ExitCode::from(self.exit()))
    }
}

impl Undone {
    /// What came of taking back, and the exit status.
    pub fn ended(&self, globals: &Globals) -> Result<ExitCode> {
        match globals.json {
            true => print_json(self)?,
            false => print(&self.words())?,
        }
        Ok(ExitCode::from(self.exit()))
    }
}
