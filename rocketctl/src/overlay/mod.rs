//! `rocketctl overlay`: a device-tree overlay for boards whose NPU nodes are disabled.

mod blob;
mod board;
mod diff;
mod dtbo;
mod dts;
mod install;
pub mod loader;
mod remove;
#[cfg(test)]
mod tests;
mod tree;
#[cfg(test)]
mod trees;

use crate::change::How;
use crate::doctor::wrapped;
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result};
use board::{Overlay, Verdict};
use clap::{Args, Subcommand};
use loader::Target;
use rocket_runtime::board::{Absent, Root, Why};
use serde::Serialize;
use std::path::PathBuf;
use std::process::ExitCode;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Print the overlay for this board, as dtc takes it; changes nothing.
    Show(Board),
    /// Have the boot loader apply it, from the next start on.
    Install(Install),
    /// Take away what install has added.
    Remove(How),
}

/// What is said of the board.
#[derive(Debug, Args)]
struct Board {
    /// The NPU's regulator, by its regulator-name in the device tree.
    #[arg(long, value_name = "NAME", default_value = board::RAIL)]
    rail: String,
}

#[derive(Debug, Args)]
struct Install {
    #[command(flatten)]
    board: Board,
    /// Go on where the rail cannot be named: the NPU may then be without power.
    #[arg(long)]
    without_supply: bool,
    #[command(flatten)]
    how: How,
    /// Write the files to this new folder in place of the system.
    #[arg(long, value_name = "DIR")]
    emit: Option<PathBuf>,
}

impl Arguments {
    /// Whether the system is to be changed.
    pub fn changes(&self) -> bool {
        match &self.what {
            What::Install(install) => install.how.changes(install.emit.as_ref()),
            What::Remove(how) => how.changes(None),
            What::Show(_) => false,
        }
    }
}

/// The plan's name in the journal.
const PLAN: &str = "overlay";
/// What shows that it worked.
const VERIFY: &str = "rocketctl doctor --only kernel.dt-nodes";
const UNDO: &str = "sudo rocketctl overlay remove";
/// Something is to be done by hand.
const BY_HAND: u8 = 1;

/// Shows, installs or removes the overlay.
///
/// # Errors
/// A root that is not there; what cannot be read or written.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| format!("{}", globals.root.display()))?;
    match &arguments.what {
        What::Show(asked) => show(&root, asked, globals),
        What::Install(asked) => install::run(&root, asked, globals),
        What::Remove(how) => remove::run(&root, how, globals),
    }
}

/// Looks at the running device tree.
fn examine(root: &Root, asked: &Board) -> Verdict {
    match tree::read(root) {
        Ok(tree) => board::look(&tree, &asked.rail),
        Err(Absent { why: Why::Missing, path }) => {
            Verdict::Useless(format!("this system was not started with a device tree (no {path})"))
        }
        Err(absent) => {
            Verdict::Useless(format!("the running device tree cannot be read: {absent}"))
        }
    }
}

/// The overlay as JSON has it.
#[derive(Debug, Serialize)]
struct Shown<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    /// Whether the tree lacks something that an overlay can add.
    needed: bool,
    why: Option<String>,
    dts: Option<String>,
    notes: &'a [String],
    /// Nodes that it wants and the tree has not.
    missing: &'a [String],
    /// What boots here.
    loader: Option<&'static str>,
    /// Where the overlay is or would be.
    file: Option<&'a str>,
    installed: bool,
}

fn show(root: &Root, asked: &Board, globals: &Globals) -> Result<ExitCode> {
    let verdict = examine(root, asked);
    let target = loader::find(root).ok().flatten();
    let installed = target.as_ref().is_some_and(|t| t.installed(root));
    let (overlay, why, exit) = match &verdict {
        Verdict::Needs(overlay) => (Some(overlay), None, 0),
        Verdict::Nothing => (None, Some(already(target.as_ref().filter(|_| installed))), 0),
        Verdict::Useless(why) => (None, Some(why.clone()), BY_HAND),
    };
    if globals.json {
        print_json(&Shown {
            schema: crate::doctor::SCHEMA,
            tool: "rocketctl",
            version: env!("CARGO_PKG_VERSION"),
            needed: overlay.is_some(),
            dts: overlay.map(dts::text),
            notes: overlay.map_or(&[], |o| &o.notes),
            missing: overlay.map_or(&[], |o| &o.missing),
            loader: target.as_ref().map(Target::name),
            file: target.as_ref().map(|t| t.file.as_str()),
            installed,
            why,
        })?;
    } else {
        let comment = overlay.map(|o| comment(&said(o))).unwrap_or_default();
        let text = overlay.map_or(paragraph(why.as_deref().unwrap_or_default()), dts::text);
        print(&(comment + &text))?;
    }
    Ok(ExitCode::from(exit))
}

fn already(installed: Option<&Target>) -> String {
    let with = installed.map(|t| format!(" ({} is installed)", t.file)).unwrap_or_default();
    format!(
        "No overlay is needed: cores, IOMMUs and supplies are in the running device tree{with}."
    )
}

/// What somebody who uses an overlay must know.
fn said(overlay: &Overlay) -> Vec<String> {
    let missing = overlay.missing.iter().map(|path| {
        format!("{path} is not in the running tree: a boot loader refuses an overlay for it")
    });
    overlay.notes.iter().cloned().chain(missing).collect()
}

/// Notes as a comment that no note can end.
fn comment(notes: &[String]) -> String {
    let mut out = String::new();
    for note in notes {
        let note = note.replace("*/", "* /");
        out += &format!("/* {} */\n", wrapped(&note, 74).join("\n   "));
    }
    out
}

fn paragraph(text: &str) -> String {
    wrapped(text, 80).join("\n") + "\n"
}
