//! `rocketctl setup`: from a fresh board to a working NPU, and back.

mod module;
mod plugin;
mod steps;
#[cfg(test)]
mod tests;

pub use plugin::{LOCAL, PACKAGED, is_plugin};

use crate::change::{self, End, How, Options, Outcome};
use crate::doctor::{self, Finding, Report, Status, wrapped};
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result};
use clap::{Args, CommandFactory};
use rocket_runtime::board::{Facts, Root};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use steps::Named;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    how: How,
    /// Write the files to this folder instead, with the commands that go with them: for systems that are read-only or
    /// made elsewhere.
    #[arg(long, value_name = "DIR", conflicts_with = "undo")]
    emit: Option<PathBuf>,
    /// The plugin to install. Without, one that lies beside this program.
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// The package with the patched driver. Without, a rocket-npu-dkms_*_all.deb beside this program.
    #[arg(long, value_name = "FILE")]
    driver: Option<PathBuf>,
    /// Who is to use the NPU. Without, who called sudo.
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Bring the system back to before setup; with --root, from a rescue system.
    #[arg(long)]
    undo: bool,
    /// With --undo: also over what somebody changed since.
    #[arg(long, requires = "undo")]
    force: bool,
}

impl Arguments {
    /// Whether the system is to be changed.
    pub fn changes(&self) -> bool {
        self.how.changes(self.emit.as_ref())
    }
}

/// Findings that setup cannot mend, the cause of which has its own way out.
const BEYOND: [&str; 5] =
    ["board.acpi-boot", "board.family", "board.soc", "kernel.dt-nodes", "board.container"];

/// What `--json` prints.
#[derive(Debug, Serialize)]
struct Said<'a> {
    schema: u32,
    setup: &'a Outcome,
    verification: Option<&'a Report>,
    plugin: Option<&'a str>,
}

/// Sets a board up.
///
/// # Errors
/// Why it failed; the system is then as it was, or the message says what to do.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let how = &arguments.how;
    if arguments.undo {
        let options = how.undo("setup", arguments.force);
        return change::undo(&globals.root, &options, &mut how.said(globals))?.ended(globals);
    }
    let root = Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
    let report = doctor::examine(&globals.root)?;
    let facts = Facts::read(&root);
    match (beyond(&report, &facts), &arguments.emit) {
        (Some(cause), None) => return stopped(cause, globals),
        // The files are for another system, or for later.
        (Some(cause), Some(_)) => eprintln!("note: of this machine: {}", cause.title),
        (None, _) => {}
    }
    if !how.dry_run && arguments.emit.is_none() {
        change::needs_root(&globals.root)?;
    }
    let named = Named {
        plugin: arguments.plugin.clone(),
        driver: arguments.driver.clone(),
        user: arguments.user.clone(),
        elsewhere: arguments.emit.is_some(),
    };
    let (plan, path) = steps::plan(&root, &facts, &named)?;
    let options = Options { dry_run: how.dry_run, yes: how.yes, emit: arguments.emit.clone() };
    let outcome = change::carry_out(&globals.root, &plan, &options, &mut how.said(globals))?;
    let verified = match outcome.end {
        End::Done | End::NothingToDo => Some(doctor::examine(&globals.root)?),
        _ => None,
    };
    let exit = verified.as_ref().map_or(outcome.exit(), |r| r.exit);
    if globals.json {
        print_json(&Said {
            schema: doctor::SCHEMA,
            setup: &outcome,
            verification: verified.as_ref(),
            plugin: path,
        })?;
        return Ok(ExitCode::from(exit));
    }
    print(&format!("{}\n", wrapped(&outcome.words(), 80).join("\n")))?;
    let Some(verified) = verified else { return Ok(ExitCode::from(exit)) };
    if let Some(path) = path {
        print(&format!(
            "\nHosts find the plugin by\n    {}\n",
            steps::hosts_line(Path::new(path))
        ))?;
    }
    print(&format!(
        "\nVerification, as by `rocketctl doctor`:\n\n{}",
        verified.text(true, globals.colored())
    ))?;
    let tested = selftest(root.is_live() && verified.exit == 0)?;
    Ok(ExitCode::from(exit.max(tested)))
}

/// The first finding that keeps this board from being set up. A part whose driver works all the same is no reason.
fn beyond<'a>(report: &'a Report, facts: &Facts) -> Option<&'a Finding> {
    let works = facts.bound.as_ref().is_ok_and(|cores| !cores.is_empty());
    report.findings.iter().filter(|f| BEYOND.contains(&f.id)).find(|f| match f.status {
        Status::Fail => !(f.id == "board.soc" && works),
        Status::Unknown => f.id == "board.family",
        _ => false,
    })
}

/// Says what it is, and what to do next.
fn stopped(cause: &Finding, globals: &Globals) -> Result<ExitCode> {
    let report = Report::new(vec![cause.clone()], &[cause.id]);
    let verdict = "setup cannot mend that, and changed nothing".to_owned();
    let report = Report { verdict, ..report };
    match globals.json {
        true => print_json(&report)?,
        false => print(&report.text(globals.quiet, globals.colored()))?,
    }
    Ok(ExitCode::from(report.exit))
}

/// `rocketctl selftest` as a program of its own, where this build has one; its exit status.
fn selftest(wanted: bool) -> Result<u8> {
    let there = crate::Arguments::command().find_subcommand("selftest").is_some();
    match (there, wanted) {
        (false, _) => {
            print("\nNo job was run: this rocketctl has no selftest yet.\n")?;
            Ok(0)
        }
        (true, false) => {
            print("\nOnce the above is right: `rocketctl selftest` runs jobs on the NPU.\n")?;
            Ok(0)
        }
        (true, true) => {
            print("\nJobs on the NPU, as by `rocketctl selftest`:\n\n")?;
            let me = std::env::current_exe()?;
            let status = std::process::Command::new(me).arg("selftest").status()?;
            Ok(status.code().and_then(|c| u8::try_from(c).ok()).unwrap_or(2))
        }
    }
}
