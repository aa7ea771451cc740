//! `rocketctl sim`: the simulated board.

mod board;
mod explain;
mod library;
mod prepare;
mod report;
mod run;
mod serve;
mod target;

use crate::ui::Globals;
use clap::{Args, Subcommand};
use rocket_sim::serve::Place;
use rocket_sim::{Arithmetic, CORES, Config, DriverProfile, Fault};
use std::process::ExitCode;

pub use run::OURS as RUN_FAILED;

#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a program on a simulated board and return its exit status.
    ///
    /// Every process of the program that opens /dev/accel/accel0 through libc meets the board. What
    /// breaks a rule of the hardware is told on stderr. Exit status: the program's; 125 for an
    /// error of rocketctl, 126 and 127 when the program cannot be started.
    Run(run::Arguments),
    /// Keep a board running for programs that name it, until interrupted.
    Serve(serve::Arguments),
    /// Say what a running board did and holds.
    Status(board::Named),
    /// Make something go wrong on a running board.
    Inject(board::Inject),
    /// List driver profiles and the faults that can be injected.
    Board,
    /// Decode a register program and list the rules it breaks.
    Explain(explain::Arguments),
    /// List every rule that programs and drivers are held to.
    Rules(explain::Rules),
    /// Show how well modelled times fit the figures published for silicon.
    Fit,
}

pub fn run(arguments: Arguments, globals: &Globals) -> anyhow::Result<ExitCode> {
    let json = globals.json;
    match arguments.command {
        Command::Run(a) => Ok(run::run(&a)),
        Command::Serve(a) => serve::run(&a),
        Command::Status(a) => board::status(&a, json),
        Command::Inject(a) => board::inject(&a),
        Command::Board => board::list(json),
        Command::Explain(a) => explain::run(&a, json),
        Command::Rules(a) => explain::rules(&a, json),
        Command::Fit => explain::fit(),
    }
}

/// What kind of board.
#[derive(Debug, Clone, Args)]
pub struct BoardOptions {
    /// The driver: see `rocketctl sim board`.
    #[arg(long, default_value_t, value_name = "PROFILE")]
    driver: DriverProfile,
    /// Something that goes wrong: see `rocketctl sim board`. May be given several times.
    #[arg(long, value_name = "FAULT")]
    fault: Vec<Fault>,
    /// Compute as exactly as silicon's widest accumulators, not as fast as this machine can.
    #[arg(long)]
    exact: bool,
    /// NPU clock in MHz, for modelled times.
    #[arg(long, default_value_t = 600, value_name = "MHZ", value_parser = clap::value_parser!(u64).range(1..=2000))]
    clock: u64,
    /// NPU cores.
    #[arg(long, default_value_t = CORES as u64, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=CORES as u64))]
    cores: u64,
    /// Fill what a task is to store with this byte before it runs, so that what it does not store
    /// is seen.
    #[arg(long, value_name = "BYTE")]
    poison: Option<u8>,
    /// Let deadlines expire although the board still computes. Without this they are put off, as
    /// silicon would have been done.
    #[arg(long)]
    impatient: bool,
    /// Time after which the driver gives a hanging job up, in ms.
    #[arg(long, default_value_t = 500, value_name = "MS")]
    timeout: u64,
}

impl Default for BoardOptions {
    /// As on a command line that names none.
    fn default() -> BoardOptions {
        #[derive(clap::Parser)]
        struct Alone {
            #[command(flatten)]
            options: BoardOptions,
        }
        <Alone as clap::Parser>::parse_from(["rocketctl"]).options
    }
}

impl BoardOptions {
    /// Whether exact results were asked for.
    pub fn is_exact(&self) -> bool {
        self.exact
    }

    /// The board.
    pub fn config(&self) -> Config {
        Config {
            profile: self.driver,
            arithmetic: if self.exact { Arithmetic::Exact } else { Arithmetic::Fast },
            faults: self.fault.clone(),
            clock_hz: self.clock * 1_000_000,
            cores: self.cores as usize,
            timeout: std::time::Duration::from_millis(self.timeout),
            poison: self.poison,
            patient: !self.impatient,
            ..Config::default()
        }
    }

    /// As arguments for another process.
    pub fn as_arguments(&self) -> Vec<String> {
        let mut list = vec![
            format!("--driver={}", self.driver),
            format!("--clock={}", self.clock),
            format!("--cores={}", self.cores),
            format!("--timeout={}", self.timeout),
        ];
        list.extend(self.fault.iter().map(|f| format!("--fault={f}")));
        list.extend(self.poison.map(|b| format!("--poison={b}")));
        list.extend(self.impatient.then(|| "--impatient".to_owned()));
        list.extend(self.exact.then(|| "--exact".to_owned()));
        list
    }
}

/// The place of a board by its name.
fn place(name: &str) -> anyhow::Result<Place> {
    Ok(Place::named(name)?)
}
