//! Having a boot loader apply the overlay.

use super::board::{Overlay, Verdict};
use super::loader::{self, Target};
use super::{
    BY_HAND, Install, PLAN, UNDO, VERIFY, already, diff, dtbo, dts, examine, paragraph, said,
};
use crate::change::{End, Options, Outcome, Plan, State, Step, carry_out};
use crate::ui::{Globals, print, print_json};
use anyhow::{Result, bail};
use rocket_runtime::board::Root;
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;

/// What became of it, as JSON has it.
#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    /// Why nothing can be done; nothing where something can.
    why: Option<String>,
    diff: String,
    #[serde(flatten)]
    outcome: Option<Outcome>,
    next: Vec<String>,
}

pub fn run(root: &Root, asked: &Install, globals: &Globals) -> Result<ExitCode> {
    let report = match prepared(root, asked) {
        Ok(Ready::Nothing(why)) => report(0, Some(why), String::new(), None),
        Ok(Ready::Go(overlay, target)) => {
            let mut out = asked.how.said(globals);
            let diff = difference(root, &target);
            out.write_all(diff.as_bytes())?;
            let (dry_run, yes, emit) = (asked.how.dry_run, asked.how.yes, asked.emit.clone());
            let options = Options { dry_run, yes, emit };
            let outcome = carry_out(&globals.root, &plan(&overlay, &target), &options, &mut out)?;
            report(outcome.exit(), None, diff, Some(outcome))
        }
        Err(why) => report(BY_HAND, Some(format!("{why:#}")), String::new(), None),
    };
    match globals.json {
        true => print_json(&report)?,
        false => print(&words(&report))?,
    }
    Ok(ExitCode::from(report.exit))
}

enum Ready {
    Nothing(String),
    Go(Box<Overlay>, Box<Target>),
}

/// Whether all that an installation needs is known.
fn prepared(root: &Root, asked: &Install) -> Result<Ready> {
    let overlay = match examine(root, &asked.board) {
        Verdict::Needs(overlay) => overlay,
        Verdict::Nothing => return Ok(Ready::Nothing(already(None))),
        Verdict::Useless(why) => bail!(why),
    };
    if !overlay.missing.is_empty() {
        bail!(
            "the running tree has no {}: a boot loader that is given an overlay for a node that is not there may \
             not boot, so nothing was changed",
            overlay.missing.join(" and no ")
        );
    }
    if overlay.unsupplied && !asked.without_supply {
        bail!(
            "{}. Without its supply the NPU may have no power and hang, so nothing was changed; \
             --without-supply goes on all the same",
            overlay.notes.join("; ")
        );
    }
    match loader::find(root) {
        Ok(Some(target)) => Ok(Ready::Go(Box::new(overlay), Box::new(target))),
        Ok(None) => bail!(by_hand(root, &overlay)),
        Err(e) => bail!("{e:#}\n\n{}", text_for(&overlay)),
    }
}

/// What to do where no boot loader is known.
fn by_hand(root: &Root, overlay: &Overlay) -> String {
    let efi = match root.exists("sys/firmware/efi") {
        Ok(true) => {
            " The firmware is UEFI: EDK2 for the RK3588 takes overlays from the folder dtb/overlays of the EFI \
             partition."
        }
        _ => "",
    };
    let looked = loader::looked_for().join(", ");
    let head = format!(
        "No boot loader's configuration was found (looked for {looked}).{efi} Compile the text below (dtc -I dts -O \
         dtb -o {name}.dtbo {name}.dts) and have your boot loader apply it, or change the tree that it loads: \
         fdtoverlay -i OLD.dtb -o NEW.dtb {name}.dtbo",
        name = loader::NAME
    );
    format!("{}\n{}", paragraph(&head), text_for(overlay))
}

fn text_for(overlay: &Overlay) -> String {
    super::comment(&said(overlay)) + &dts::text(overlay)
}

/// The file first: a list must not name what is not there.
pub fn plan(overlay: &Overlay, target: &Target) -> Plan {
    let title = format!("Have {} apply an overlay that turns the NPU on", target.name());
    let mut why = "The board's device tree leaves the NPU off; the boot loader changes that in memory at each \
                   start, and no tree on the disk."
        .to_owned();
    for note in &overlay.notes {
        why += &format!(" Note: {note}.");
    }
    let mut step =
        Step::new("overlay", "the overlay, and where the boot loader is told of it", why);
    if let Some(command) = target.command {
        step = step.at_undo(&[command]);
    }
    step = step.write(&target.file, dtbo::bytes(overlay), 0o644);
    if let Some(config) = &target.config {
        let edit = target.clone();
        let new = move |old: Option<&str>| match old {
            Some(old) => edit.add(old),
            None => bail!("it is gone"),
        };
        step = step.edit(config, new);
    }
    if let Some(command) = target.command {
        step = step.run(&[command], Some(&[command]));
    }
    if let Some(why) = &target.shut {
        step = step.given(State::Cannot(why.clone()));
    }
    Plan::new(PLAN, title, UNDO).step(step)
}

/// What changes in the boot loader's configuration.
fn difference(root: &Root, target: &Target) -> String {
    let Some(config) = &target.config else { return String::new() };
    let old = root.bytes(config).ok().and_then(|b| String::from_utf8(b).ok());
    let new = old.as_ref().and_then(|old| target.add(old).ok());
    match (&old, &new) {
        (Some(old), Some(new)) => diff::lines(config, Some(old), Some(new)),
        _ => String::new(),
    }
}

fn report(exit: u8, why: Option<String>, diff: String, outcome: Option<Outcome>) -> Report {
    let next = match outcome.as_ref().map(|o| &o.end) {
        Some(End::Done | End::NothingToDo) => vec!["sudo reboot".to_owned(), VERIFY.to_owned()],
        Some(End::DryRun) => vec!["sudo rocketctl overlay install".to_owned()],
        _ => Vec::new(),
    };
    let (tool, version) = ("rocketctl", env!("CARGO_PKG_VERSION"));
    Report { schema: crate::doctor::SCHEMA, tool, version, exit, why, diff, outcome, next }
}

/// The last lines of the text.
fn words(report: &Report) -> String {
    let end = report.outcome.as_ref().map(|o| &o.end);
    match (end, &report.why) {
        (_, Some(why)) if why.contains('\n') => why.clone(),
        (_, Some(why)) => paragraph(why),
        (Some(End::Done), _) => format!(
            "It counts from the next start on: sudo reboot\nverify then: {VERIFY}\nundo:        {UNDO}\n\
             If the board does not start: from a rescue system, with this one at /mnt,\n\
             \x20   rocketctl --root /mnt overlay remove\n"
        ),
        (Some(End::NothingToDo), _) => {
            format!(
                "It is installed, and counts from the next start on: sudo reboot\nverify then: {VERIFY}\n"
            )
        }
        _ => report.outcome.as_ref().map(|o| paragraph(&o.words())).unwrap_or_default(),
    }
}
