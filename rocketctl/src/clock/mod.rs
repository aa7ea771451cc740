//! `rocketctl clock`: the NPU's clock, by the patched driver's parameter and in no other way. A rate that is set
//! while the power domain is off hangs the firmware, so never by debugfs (kernel-and-uapi B.3).

pub mod options;
pub mod rate;
#[cfg(test)]
mod tests;

use crate::change::{self, How, Options, Plan, State, Step};
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use rocket_runtime::board::{Absent, Facts, Reading, Root, Why};
use serde::Serialize;
use std::process::ExitCode;

/// See [`Command`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// The rate now, the one that the driver was told, and the one of the next start.
    ///
    /// Exit status: 0 known, 3 where neither rate can be seen.
    Get,
    /// Tell the driver a rate: 600MHz, or 'default' for the boot's.
    ///
    /// Only rates at which boards have been run are taken. Exit status: 0 done, 1 this driver cannot, 2 a rate that
    /// is none or is refused.
    Set {
        rate: String,
        /// From the next start on as well.
        #[arg(long)]
        keep: bool,
        #[command(flatten)]
        how: How,
    },
    /// Bring back what was there before `set`.
    Undo {
        #[command(flatten)]
        how: How,
        /// Also over what somebody changed since.
        #[arg(long)]
        force: bool,
    },
}

impl Arguments {
    /// Whether the system is to be changed.
    pub fn changes(&self) -> bool {
        match &self.command {
            Command::Set { how, .. } | Command::Undo { how, .. } => how.changes(None),
            Command::Get => false,
        }
    }
}

pub const PARAMETER: &str = "rocket_npu_clk_hz";
/// What brings modprobe's options into the initramfs.
pub const UPDATE_INITRAMFS: &[&str] = &["update-initramfs", "-u"];
const PLAN: &str = "clock";
const NOW: &str = "/sys/kernel/debug/clk/scmi_clk_npu/clk_rate";

/// Where a loaded driver has it.
pub fn parameter_path() -> String {
    format!("/sys/module/rocket/parameters/{PARAMETER}")
}

/// A reading, in the shape that they have everywhere.
#[derive(Debug, Serialize)]
struct Shown {
    value: Option<u64>,
    unit: &'static str,
    source: String,
    why: Option<String>,
    age_ms: u64,
}

/// What `get` prints.
#[derive(Debug, Serialize)]
struct Clock {
    schema: u32,
    now: Shown,
    wanted: Shown,
    next_start: Shown,
}

/// Runs a subcommand.
///
/// # Errors
/// A rate that is none or is refused, or a change that failed.
pub fn run(arguments: Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
    match arguments.command {
        Command::Get => get(&root, globals),
        Command::Set { rate, keep, how } => set(&root, &rate, keep, &how, globals),
        Command::Undo { how, force } => {
            change::undo(&globals.root, &how.undo(PLAN, force), &mut how.said(globals))?
                .ended(globals)
        }
    }
}

fn get(root: &Root, globals: &Globals) -> Result<ExitCode> {
    let facts = Facts::read(root);
    let shown = |source: &str, read: &Reading<u64>| Shown {
        value: read.as_ref().ok().copied(),
        unit: "Hz",
        source: source.to_owned(),
        why: read.as_ref().err().map(ToString::to_string),
        age_ms: 0,
    };
    let kept = kept(root);
    let source = kept.as_ref().map_or("modprobe.d", |(path, _)| path.as_str());
    let none =
        Absent { path: "/etc/modprobe.d".into(), why: Why::Malformed("no option sets it".into()) };
    let clock = Clock {
        schema: crate::doctor::SCHEMA,
        now: shown(NOW, &facts.clock_hz),
        wanted: shown(&parameter_path(), &facts.wanted_hz),
        next_start: shown(source, &kept.as_ref().map(|(_, hz)| *hz).ok_or(none)),
    };
    match globals.json {
        true => print_json(&clock)?,
        false => print(&text(&clock, &facts))?,
    }
    let unknown = clock.now.value.is_none() && clock.wanted.value.is_none();
    Ok(ExitCode::from(if unknown { 3 } else { 0 }))
}

/// The option of the next start: the last file has the last word.
fn kept(root: &Root) -> Option<(String, u64)> {
    let (path, value) = options::found(root, PARAMETER).pop()?;
    Some((path, value.parse().ok()?))
}

fn text(clock: &Clock, facts: &Facts) -> String {
    let line = |name: &str, shown: &Shown, zero: &str| {
        let value = match (shown.value, &shown.why) {
            (Some(0), _) => zero.to_owned(),
            (Some(hz), _) => rate::shown(hz),
            (None, why) => format!("unknown: {}", why.as_deref().unwrap_or("not said")),
        };
        let head = format!("{name:<12}");
        let mut out = String::new();
        for (at, part) in crate::doctor::wrapped(&value, 68).into_iter().enumerate() {
            out += &format!("{}{part}\n", if at == 0 { head.as_str() } else { "            " });
        }
        out
    };
    let mut out = line("now", &clock.now, "stopped");
    out += &match (&clock.wanted.value, driver(facts)) {
        (None, Driver::Stock) => "driver      cannot raise it (mainline's own)\n".to_owned(),
        _ => line("driver", &clock.wanted, "was told nothing: the boot's, 200 MHz"),
    };
    out + &match clock.next_start.value {
        None if matches!(driver(facts), Driver::Absent | Driver::Unknown) => String::new(),
        None => "next start  the boot's, 200 MHz\n".to_owned(),
        _ => line("next start", &clock.next_start, "the boot's, 200 MHz"),
    }
}

/// What the driver is, as far as the clock is concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Driver {
    /// It has the parameter.
    Patched,
    /// It is loaded and has none.
    Stock,
    /// There is none.
    Absent,
    Unknown,
}

pub fn driver(facts: &Facts) -> Driver {
    match (&facts.wanted_hz, &facts.loaded) {
        (Ok(_), _) => Driver::Patched,
        (Err(Absent { why: Why::Missing, .. }), Ok(true)) => Driver::Stock,
        (Err(Absent { why: Why::Missing, .. }), Ok(false)) => Driver::Absent,
        _ => Driver::Unknown,
    }
}

fn set(root: &Root, rate: &str, keep: bool, how: &How, globals: &Globals) -> Result<ExitCode> {
    let hz = rate::parse(rate).map_err(anyhow::Error::msg)?;
    rate::allowed(hz).map_err(anyhow::Error::msg)?;
    let facts = Facts::read(root);
    if let Some(why) = refusal(driver(&facts), hz) {
        return refused(why, driver(&facts), globals);
    }
    let mut plan =
        Plan::new(PLAN, format!("the NPU's clock: {}", named(hz)), "sudo rocketctl clock undo");
    if facts.wanted_hz.is_ok() {
        let why = "It takes the rate as each core is switched on the next time.";
        let step = Step::new("clock-now", "Tell the driver", why);
        plan = plan.step(step.set(parameter_path(), hz.to_string()));
    }
    if keep {
        plan = plan.step(keep_step(root, &facts, hz)?);
    }
    let options = Options { dry_run: how.dry_run, yes: how.yes, emit: None };
    let outcome = change::carry_out(&globals.root, &plan, &options, &mut how.said(globals))?;
    outcome.ended(globals)
}

fn named(hz: u64) -> String {
    match hz {
        0 => "the boot's".to_owned(),
        hz => rate::shown(hz),
    }
}

/// Why this driver cannot be told a rate, with what can be done.
fn refusal(driver: Driver, hz: u64) -> Option<&'static str> {
    match (driver, hz) {
        // Mainline's own leaves the clock at the boot's already.
        (Driver::Patched, _) | (Driver::Stock, 0) => None,
        (Driver::Stock, _) => Some(
            "the driver is mainline's own and has no parameter for it: it leaves the clock at the boot's 200 MHz. \
             There is no other safe way: a rate that is set from outside while the NPU is off hangs the power \
             firmware. With the patched driver it can be raised (sudo apt install ./rocket-npu-dkms_*_all.deb; \
             kernel-patches/README.md)",
        ),
        (Driver::Absent, _) => Some("no driver is loaded; `rocketctl doctor` says why"),
        (Driver::Unknown, _) => Some("whether the driver can be told cannot be seen; try as root"),
    }
}

#[derive(Debug, Serialize)]
struct Refused {
    schema: u32,
    end: &'static str,
    why: &'static str,
}

fn refused(why: &'static str, driver: Driver, globals: &Globals) -> Result<ExitCode> {
    match globals.json {
        true => print_json(&Refused { schema: crate::doctor::SCHEMA, end: "refused", why })?,
        false => {
            let words = format!("Nothing was changed: {why}.");
            print(&format!("{}\n", crate::doctor::wrapped(&words, 80).join("\n")))?;
        }
    }
    Ok(ExitCode::from(if driver == Driver::Unknown { 3 } else { 1 }))
}

/// The option for the next start.
///
/// # Errors
/// A file of the system's packages has another value, which is not ours to change.
pub fn keep_step(root: &Root, facts: &Facts, hz: u64) -> Result<Step> {
    let value = (hz != 0).then(|| hz.to_string());
    let others = options::found(root, PARAMETER);
    let path = match others.iter().find(|(path, _)| path != options::FILE) {
        Some((path, old)) if path.starts_with("/usr/") && value.as_deref() != Some(old) => {
            bail!("{path} sets {PARAMETER}={old}; remove its line there, or the package it is of")
        }
        Some((path, _)) if path.starts_with("/etc/") => path.clone(),
        _ => options::FILE.to_owned(),
    };
    let mut step = Step::new(
        "clock-keep",
        "From the next start on",
        "An option for modprobe; a driver that does not know it ignores it.",
    );
    // modules.builtin has names alone, modules.dep a colon after each.
    if facts.installed.iter().flatten().any(|line| !line.contains(':')) {
        let why = format!(
            "the driver is built into this kernel, which takes it from its command line: rocket.{PARAMETER}={hz}"
        );
        return Ok(step.given(State::Cannot(why)));
    }
    // A module that is loaded from there never sees the system's files.
    let early = root.text("etc/initramfs-tools/modules").unwrap_or_default();
    let early = early.lines().any(|l| l.split_whitespace().next() == Some("rocket"));
    if early {
        step = step.at_undo(UPDATE_INITRAMFS);
    }
    let old = root.text(&path).unwrap_or_default();
    step = match (&value, root.exists(&path)) {
        (None, Ok(false)) => return Ok(step.given(State::Done)),
        (None, _) if options::with(&old, PARAMETER, None).trim().is_empty() => step.remove(path),
        _ => step.edit(path, move |text| {
            Ok(options::with(text.unwrap_or_default(), PARAMETER, value.as_deref()))
        }),
    };
    Ok(if early { step.run(UPDATE_INITRAMFS, None) } else { step })
}
