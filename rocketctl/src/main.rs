//! `rocketctl`: what an operator of a Rockchip NPU needs. So far: the simulated board.

#![forbid(unsafe_code)]

mod sim;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Operator command line for Rockchip NPUs on mainline Linux.
#[derive(Debug, Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// A board in software: run programs on it, look at it, break it.
    Sim(sim::Arguments),
}

/// Usage and internal errors, in every subcommand.
const FAILED: u8 = 2;

fn main() -> ExitCode {
    let Arguments { command } = Arguments::parse();
    let done = match command {
        Command::Sim(arguments) => sim::run(arguments),
    };
    done.unwrap_or_else(|e| {
        eprintln!("rocketctl: {e:#}");
        ExitCode::from(FAILED)
    })
}
