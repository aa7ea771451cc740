//! `rocketctl`: what an operator of a Rockchip NPU needs. So far: what is wrong with a board, the kernel's
//! patches, and the simulated board.

//!
//! A library so that fuzz targets and other programs reach its parsers; [`main`] is the program.

#![forbid(unsafe_code)]

mod change;
mod clock;
mod detect;
mod doctor;
mod elf;
#[doc(hidden)]
pub mod fuzz;
mod load_test;
mod overlay;
mod patch;
mod report;
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
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(flatten)]
    globals: ui::Globals,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// What this machine is: board, driver, interface, clock, and what else bears on the NPU.
    ///
    /// Every value comes with where it was read, or why it is not known.
    Detect,
    /// What is wrong with this board, and the command that mends it.
    ///
    /// Looks at the machine or, with --root, at a tree that was taken from one; changes nothing. Exit status: 0
    /// good, 1 something to do, 2 an error, 3 too little can be seen.
    Doctor(doctor::Arguments),
    /// What a check of the doctor is about.
    Explain {
        /// As the doctor prints it.
        id: String,
    },
    /// The device-tree overlay for a board whose NPU nodes are disabled.
    Overlay(overlay::Arguments),
    /// Load a plugin as a host would, and say what came of it.
    ///
    /// In a process of its own, which may crash or hang. Exit status: 0 it loads, 1 it does not, 2 an error, 3 not
    /// known.
    LoadTest(load_test::Arguments),
    /// The patches for the kernel's driver: what they are, and which a source has.
    Patch(patch::Arguments),
    /// Writes what the doctor and detect read to a file that may be shown to others; --root reads it.
    Report(report::Arguments),
    /// From a fresh board to a working NPU; --undo brings back what was before.
    ///
    /// Shows a plan, asks once, and stops at the first failure with the system as it was. Exit status: 0 the NPU is
    /// ready, 1 something is left to do, 2 an error, 3 too little can be seen.
    Setup(setup::Arguments),
    /// Rules for the node's group and the cores' delay: look at them, install them, take them away.
    Udev(udev::Arguments),
    /// The NPU's clock: look at it, raise it the one safe way.
    Clock(clock::Arguments),
    /// A board in software: run programs on it, look at it, break it.
    Sim(sim::Arguments),
    /// What a server's unit or container needs to use the NPU.
    Unit(unit::Arguments),
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
        globals.root.clone_from(&report.tree);
    }
    match command {
        Command::Detect => detect::run(&globals),
        Command::Doctor(arguments) => doctor::run(&arguments, &globals),
        Command::Explain { id } => doctor::explain(&id).map(|()| ExitCode::SUCCESS),
        Command::Overlay(arguments) => overlay::run(&arguments, &globals),
        Command::LoadTest(arguments) => load_test::run(&arguments, &globals),
        Command::Patch(arguments) => patch::run(arguments, &globals),
        Command::Report(arguments) => report::run(&arguments, &globals),
        Command::Udev(arguments) => udev::run(arguments, &globals),
        Command::Clock(arguments) => clock::run(arguments, &globals),
        Command::Setup(arguments) => setup::run(&arguments, &globals),
        Command::Sim(arguments) => sim::run(arguments, &globals),
        Command::Unit(arguments) => unit::run(&arguments, &globals),
    }
}

/// Help and usage errors. `sim run` returns its program's status, so an error of ours has the one
/// that `env` and `timeout` use.
fn usage(e: &clap::Error) -> ExitCode {
    // Nobody to tell when that is closed as well.
    let _ = e.print();
    let runs = std::env::args().skip(1).take(2).eq(["sim", "run"]);
    match (e.use_stderr(), runs) {
        (false, _) => ExitCode::SUCCESS,
        (true, true) => ExitCode::from(sim::RUN_FAILED),
        (true, false) => ExitCode::from(FAILED),
    }
}
