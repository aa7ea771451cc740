//! Taking the overlay away: by the journal byte for byte, else what is there of it.

use super::loader::{self, Target};
use super::{PLAN, Remove, diff};
use crate::change::{End, Options, Plan, Step, UndoOptions, carry_out, undo};
use crate::ui::{Globals, print, print_json};
use anyhow::{Result, bail};
use rocket_runtime::board::Root;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub fn run(root: &Root, asked: &Remove, globals: &Globals) -> Result<ExitCode> {
    if globals.json && !asked.change.yes && !asked.change.dry_run {
        bail!("with --json nobody is asked: --yes goes on, --dry-run shows alone");
    }
    let mut kept: Vec<u8> = Vec::new();
    let done = match globals.json {
        true => remove(root, asked, globals, &mut kept)?,
        false => remove(root, asked, globals, &mut std::io::stdout())?,
    };
    let exit = u8::from(done == Done::Not);
    if globals.json {
        let text = String::from_utf8_lossy(&kept);
        let next = if done == Done::All { vec!["sudo reboot"] } else { vec![] };
        let version = env!("CARGO_PKG_VERSION");
        let schema = crate::doctor::SCHEMA;
        print_json(
            &json!({"schema": schema, "tool": "rocketctl", "version": version, "exit": exit,
            "done": done == Done::All, "text": text, "next": next}),
        )?;
    } else if done == Done::All {
        print("From the next start on the board's own device tree counts: sudo reboot\n")?;
    }
    Ok(ExitCode::from(exit))
}

/// How far it came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// There was nothing to do, or it was shown alone.
    Nothing,
    /// Somebody did not want it, or something is in the way.
    Not,
}

fn remove(root: &Root, asked: &Remove, globals: &Globals, out: &mut dyn Write) -> Result<Done> {
    let journal = |dry_run: bool, yes: bool| UndoOptions {
        plan: Some(PLAN.to_owned()),
        dry_run,
        yes,
        force: false,
    };
    // What the journal has is looked at first and alone.
    match undo(&globals.root, &journal(true, true), &mut std::io::sink()) {
        Ok(undone) if undone.shown_only => {
            let options = journal(asked.change.dry_run, asked.change.yes);
            let undone = undo(&globals.root, &options, out)?;
            for left in &undone.left {
                writeln!(out, "left: {left}")?;
            }
            for command in &undone.commands {
                writeln!(out, "to run on that system: {command}")?;
            }
            return Ok(match (undone.shown_only, asked.change.dry_run) {
                (false, _) => Done::All,
                (true, true) => Done::Nothing,
                (true, false) => Done::Not,
            });
        }
        Ok(_) => {}
        Err(e) => writeln!(out, "{e:#}\nSo what is there of the overlay is taken away instead.\n")?,
    }
    let Some(target) = loader::find(root)? else {
        writeln!(
            out,
            "Nothing to take away: {} were looked for.",
            loader::looked_for().join(", ")
        )?;
        return Ok(Done::Nothing);
    };
    by_hand(root, &target, asked, globals, out)
}

/// Edits what the boot loader is told now.
fn by_hand(
    root: &Root,
    target: &Target,
    asked: &Remove,
    globals: &Globals,
    out: &mut dyn Write,
) -> Result<Done> {
    let mut step = Step::new(
        "overlay",
        "the overlay, and where the boot loader is told of it",
        "It is no more wanted.",
    );
    if let Some(command) = target.command {
        step = step.at_undo(&[command]);
    }
    if let Some(config) = &target.config {
        let old = root.bytes(config).ok().and_then(|b| String::from_utf8(b).ok());
        let new = old.as_deref().map(|old| target.remove(old));
        write!(out, "{}", diff::lines(config, old.as_deref(), new.as_deref()))?;
        let edit = target.clone();
        step = step.edit(config, move |old| match old {
            Some(old) => Ok(edit.remove(old)),
            None => bail!("it is gone"),
        });
    }
    step = step.remove(&target.file);
    if let Some(command) = target.command {
        step = step.run(&[command], Some(&[command]));
    }
    let plan =
        Plan::new("overlay-remove", "Take the overlay away", "sudo rocketctl overlay install")
            .step(step);
    let options = Options { dry_run: asked.change.dry_run, yes: asked.change.yes, emit: None };
    let outcome = carry_out(&globals.root, &plan, &options, out)?;
    Ok(match outcome.end {
        End::Done => Done::All,
        End::NothingToDo | End::DryRun | End::Emitted => Done::Nothing,
        End::Declined | End::Blocked => Done::Not,
    })
}
