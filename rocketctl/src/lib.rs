//! `rocketctl`: what an operator of a Rockchip NPU needs: what a board is and what is wrong with it, bringing it to
//! work and back (driver, overlay, rules, clock, units), what a model would run on the NPU and what a host does run,
//! whether the NPU computes rightly and how fast, and a simulated board for all of that.
//!
//! A library so that fuzz targets and other programs reach its parsers; [`main`] is the program.

#![forbid(unsafe_code)]

mod bench;
mod change;
mod clock;
mod counters;
mod detect;
mod doctor;
mod elf;
mod explain;
mod forecast;
#[doc(hidden)]
pub mod fuzz;
mod generate;
mod knobs;
mod load_test;
mod model;
mod npu;
mod overlay;
mod patch;
mod report;
mod run;
mod selftest;
mod setup;
mod sim;
mod udev;
mod ui;
mod unit;
mod withdraw;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Operator command line for Rockchip NPUs on mainline Linux.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true, after_help = "Begin with: rocketctl doctor")]
struct Arguments {
    #[command(flatten)]
    globals: ui::Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What is wrong with this board, and the command that mends it.
    ///
    /// Looks at the machine or, with --root, at a tree that was taken from one; changes nothing. Exit status: 0
    /// good, 1 something to do, 2 an error, 3 too little can be seen.
    Doctor(doctor::Arguments),
    /// What this machine is: board, driver, interface, clock, and what else bears on the NPU.
    ///
    /// Every value comes with where it was read, or why it is not known.
    Detect,
    /// From a fresh board to a working NPU; --undo brings back what was before.
    ///
    /// Shows a plan, asks once, and stops at the first failure with the system as it was. Exit status: 0 the NPU is
    /// ready, 1 something is left to do, 2 an error, 3 too little can be seen.
    Setup(setup::Arguments),
    /// Does the NPU compute rightly: every number format, several jobs at once, each core.
    ///
    /// Runs on the NPU, or with --sim on a simulated board. Changes nothing. Exit status: 0 good, 1 a test
    /// failed or there is no NPU, 2 an error, 3 too little could be tested.
    Selftest(selftest::Arguments),
    /// What of a model would run on the NPU, from its header alone.
    ///
    /// Asks the plugin's own rules; reads no weights and no board. Exit status: 0, or 2 for an error.
    Forecast(forecast::Arguments),
    /// Run a host with the plugin, on the NPU or a simulated one.
    ///
    /// Becomes the host, so signals and its exit status are its own. Findings that keep the NPU from working are
    /// told first, a line each; the host runs all the same, on the CPU. Exit status: the host's; 125 for an error
    /// of rocketctl, 126 and 127 when the host cannot be started.
    Run(run::Arguments),
    /// Which operations of a host ran on the NPU, which did not, and why.
    ///
    /// Reads the live counters (docs/counters.md) of running and just finished hosts. Exit status: 0 good, 2 an
    /// error, 3 no host has counters.
    Why(counters::why::Arguments),
    /// Every live counter of running and just finished hosts, as JSON or for Prometheus.
    ///
    /// Exit status: 0 good, 2 an error, 3 no host has counters.
    Stats(counters::stats::Arguments),
    /// Every setting of the plugin: its value in effect, and where that comes from.
    ///
    /// Exit status: 0 good, 1 a setting is unknown or malformed, 2 an error.
    Knobs(knobs::Arguments),
    /// What a finding, a test, a reason, a route, a setting or a patch is about.
    Explain(explain::Arguments),
    /// Load a plugin as a host would, and say what came of it.
    ///
    /// In a process of its own, which may crash or hang. Exit status: 0 it loads, 1 it does not, 2 an error, 3 not
    /// known.
    LoadTest(load_test::Arguments),
    /// How fast the NPU is: products by format and shape, a job's latency, the host's packing.
    ///
    /// Runs on the NPU, or with --sim on a simulated board, whose times are modelled. Changes nothing. Exit status:
    /// 0 good, 1 there is no NPU, 2 an error.
    Bench(bench::Arguments),
    /// The NPU's clock: look at it, raise it the one safe way.
    Clock(clock::Arguments),
    /// Rules for the node's group and the cores' delay: look at them, install them, take them away.
    Udev(udev::Arguments),
    /// The device-tree overlay for a board whose NPU nodes are disabled.
    Overlay(overlay::Arguments),
    /// What a server's unit or container needs to use the NPU.
    Unit(unit::Arguments),
    /// The patches for the kernel's driver: what they are, and which a source has.
    Patch(patch::Arguments),
    /// Writes what the doctor and detect read to a file that may be shown to others; --root reads it.
    Report(report::Arguments),
    /// A board in software: run programs on it, look at it, break it.
    Sim(sim::Arguments),
    /// Write man pages into a folder.
    #[command(hide = true)]
    Man(generate::Man),
    /// Print completions for a shell.
    Completions(generate::Completions),
}

impl Command {
    /// Whether it is to change the system that it looks at.
    fn changes(&self) -> bool {
        match self {
            Command::Setup(arguments) => arguments.changes(),
            Command::Udev(arguments) => arguments.changes(),
            Command::Overlay(arguments) => arguments.changes(),
            Command::Clock(arguments) => arguments.changes(),
            Command::Unit(arguments) => arguments.changes(),
            Command::Patch(arguments) => arguments.changes(),
            _ => false,
        }
    }
}

/// Usage and internal errors, in every subcommand.
const FAILED: u8 = 2;

/// The program.
pub fn main() -> ExitCode {
    let Arguments { globals, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(e) => return usage(&e),
    };
    match obey(globals, command) {
        Ok(status) => status,
        Err(e) => {
            eprintln!("rocketctl: {e:#}");
            ExitCode::from(FAILED)
        }
    }
}

/// Whether a command line, whose first word is the program's name, is one of ours: for what tells people to type it.
///
/// # Errors
/// In clap's words.
pub fn parsed<W: AsRef<str>>(words: &[W]) -> Result<(), String> {
    let words = words.iter().map(|w| w.as_ref().to_owned());
    Arguments::try_parse_from(words).map(drop).map_err(|e| e.to_string())
}

fn obey(mut globals: ui::Globals, command: Command) -> anyhow::Result<ExitCode> {
    // A report stands for the tree that it has, until the command is done.
    let report = report::unpacked(&globals.root)?;
    if let Some(report) = &report {
        if command.changes() {
            anyhow::bail!(
                "{} is a report, which is looked at and not changed: it is gone when the command is done; --dry-run \
                 shows what would be done, and on the machine itself it is the same without --root",
                globals.root.display()
            );
        }
        globals.root.clone_from(&report.tree);
    }
    match command {
        Command::Detect => detect::run(&globals),
        Command::Doctor(arguments) => doctor::run(&arguments, &globals),
        Command::Overlay(arguments) => overlay::run(&arguments, &globals),
        Command::Explain(arguments) => {
            explain::run(&arguments, &globals).map(|()| ExitCode::SUCCESS)
        }
        Command::Bench(arguments) => bench::run(&arguments, &globals),
        Command::Knobs(arguments) => knobs::run(&arguments, &globals),
        Command::Run(arguments) => Ok(run::run(&arguments, &globals)),
        Command::Stats(arguments) => counters::stats::run(&arguments, &globals),
        Command::Why(arguments) => counters::why::run(&arguments, &globals),
        Command::Man(arguments) => {
            generate::man(&arguments, command_line()).map(|()| ExitCode::SUCCESS)
        }
        Command::Completions(arguments) => {
            generate::completions(&arguments, command_line()).map(|()| ExitCode::SUCCESS)
        }
        Command::Forecast(arguments) => forecast::run(&arguments, &globals),
        Command::LoadTest(arguments) => load_test::run(&arguments, &globals),
        Command::Patch(arguments) => patch::run(arguments, &globals),
        Command::Selftest(arguments) => selftest::run(&arguments, &globals),
        Command::Report(arguments) => report::run(&arguments, &globals),
        Command::Udev(arguments) => udev::run(arguments, &globals),
        Command::Clock(arguments) => clock::run(arguments, &globals),
        Command::Setup(arguments) => setup::run(&arguments, &globals),
        Command::Sim(arguments) => sim::run(arguments, &globals),
        Command::Unit(arguments) => unit::run(&arguments, &globals),
    }
}

/// The definition of the command line.
fn command_line() -> clap::Command {
    <Arguments as clap::CommandFactory>::command()
}

/// Help and usage errors. `run` and `sim run` return their program's status, so an error of ours has the one
/// that `env` and `timeout` use.
fn usage(e: &clap::Error) -> ExitCode {
    // Nobody to tell when that is closed as well.
    let _ = e.print();
    let words = std::env::args_os()
        .skip(1)
        .filter_map(|w| w.into_string().ok())
        .filter(|w| !w.starts_with('-'));
    let words: Vec<String> = words.take(2).collect();
    let runs = words.first().is_some_and(|w| w == "run") || words == ["sim", "run"];
    match (e.use_stderr(), runs) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(sim::RUN_FAILED),
        (true, false) => ExitCode::from(FAILED),
    }
}
