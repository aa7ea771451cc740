//! Taking the overlay away: by the journal byte for byte, else what is there of it.

use super::loader::{self, Target};
use super::{PLAN, diff};
use crate::change::{How, Options, Plan, Step};
use crate::ui::{Globals, print, print_json};
use crate::withdraw::{Withdrawn, by_journal, by_plan};
use anyhow::{Result, bail};
use rocket_runtime::board::Root;
use serde_json::json;
use std::io::Write;
use std::process::ExitCode;

pub fn run(root: &Root, how: &How, globals: &Globals) -> Result<ExitCode> {
    let options = Options { dry_run: how.dry_run, yes: how.yes, emit: None };
    let done = remove(root, &options, globals, &mut how.said(globals))?;
    let gone = done == Withdrawn::Gone;
    if globals.json {
        let next = if gone { vec!["sudo reboot"] } else { vec![] };
        let (schema, version) = (crate::doctor::SCHEMA, env!("CARGO_PKG_VERSION"));
        print_json(&json!({"schema": schema, "tool": "rocketctl", "version": version,
            "exit": done.exit(), "removed": gone, "next": next}))?;
    } else if gone {
        print("From the next start on the board's own device tree counts: sudo reboot\n")?;
    }
    Ok(ExitCode::from(done.exit()))
}

fn remove(
    root: &Root,
    options: &Options,
    globals: &Globals,
    out: &mut dyn Write,
) -> Result<Withdrawn> {
    if let Some(done) = by_journal(&globals.root, PLAN, options, out)? {
        return Ok(done);
    }
    let Some(target) = loader::find(root)? else {
        writeln!(
            out,
            "Nothing to take away: {} were looked for.",
            loader::looked_for().join(", ")
        )?;
        return Ok(Withdrawn::Nothing);
    };
    let plan = plan(root, &target, out)?;
    by_plan(&globals.root, &plan, options, out)
}

/// Takes the overlay out of what the boot loader is told now; what changes there is shown.
fn plan(root: &Root, target: &Target, out: &mut dyn Write) -> Result<Plan> {
    let title = "the overlay, and where the boot loader is told of it";
    let mut step = Step::new("overlay", title, "It is no more wanted.");
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
    let undo = "sudo rocketctl overlay install";
    Ok(Plan::new("overlay-remove", "Take the overlay away", undo).step(step))
}
