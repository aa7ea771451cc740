//! A ggml host of our own: it loads a real ggml by its real loader, the plugin through that, and
//! builds the graphs that no stock program builds. Exit status 0 is a verdict "right", 1 "wrong".

mod attention;
mod cases;
mod experts;
mod faults;
mod ggml;
mod memory;
mod model;
mod ops;
mod report;
mod supports_op;
mod threads;
mod values;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use ggml::{Device, Host};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Parser)]
#[command(about, version)]
struct Arguments {
    /// Folder of the host: libggml-base.so, libggml.so and its CPU backend.
    #[arg(long, value_name = "DIR")]
    host: PathBuf,
    /// The plugin, libggml_rocket.so.
    #[arg(long, value_name = "FILE")]
    plugin: PathBuf,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Products that ggml's own tests lack, each against double precision.
    Ops {
        /// Fewer and smaller ones, for sanitizers.
        #[arg(long)]
        small: bool,
        /// A line for each product.
        #[arg(long)]
        list: bool,
    },
    /// Flash attention in every form, each against double precision and beside the host's CPU.
    Attention {
        /// A line for each.
        #[arg(long)]
        list: bool,
    },
    /// Products with experts in every form, each against double precision.
    Experts(experts::Arguments),
    /// Which products with experts are taken in the mode that ROCKET_MOE says.
    ExpertsPlacement(experts::PlacementArguments),
    /// Models that come and go: memory returns, and no result belongs to another model.
    Memory {
        /// Models one after another.
        #[arg(long, default_value_t = 20)]
        rounds: usize,
        /// Smaller ones, and no bound on memory: a sanitizer keeps freed memory.
        #[arg(long)]
        small: bool,
    },
    /// Contexts that compute at once, while others come, go and ask.
    Threads {
        /// Fewer and smaller ones, for sanitizers.
        #[arg(long)]
        small: bool,
    },
    /// How long the plugin takes to say whether it takes an op.
    SupportsOp,
    /// Every driver call fails once: the result stays right.
    Faults(faults::Arguments),
    /// Mistakes that a sanitizer must report; no result means anything.
    #[command(hide = true)]
    Control,
    /// A small graph on whatever NPU there is; what `faults` runs.
    Once {
        /// The plugin must offer no device, or must.
        #[arg(long, hide = true)]
        expect_npu: bool,
        /// With experts instead of plain products.
        #[arg(long, hide = true)]
        experts: bool,
    },
}

/// What every subcommand works with.
#[derive(Debug)]
pub struct Setup {
    host: &'static Host,
    /// `None` when the plugin offers none.
    device: Option<Device>,
    report: PathBuf,
    /// Removed at the end.
    _scratch: tempfile::TempDir,
}

impl Setup {
    /// `defaults` are variables that the environment may set otherwise.
    fn new(
        host: &Path,
        plugin: &Path,
        device: Option<&str>,
        defaults: &[(&str, &str)],
    ) -> Result<Setup> {
        let scratch = tempfile::tempdir().context("a folder for the report")?;
        let report = scratch.path().join("report.json");
        let name = report.to_str().context("the temporary folder's name is no text")?;
        let defaults = defaults.iter().filter(|(name, _)| std::env::var_os(name).is_none());
        let defaults: Vec<_> = defaults.map(|(name, value)| (*name, Some(*value))).collect();
        let counters = std::env::var("ROCKET_COUNTERS").ok();
        ggml::set_environment(&defaults);
        ggml::set_environment(&[
            ("ROCKET_DEVICE", device),
            ("ROCKET_REPORT", Some(name)),
            // Not among those of the machine's own processes.
            ("ROCKET_COUNTERS", counters.as_deref().or(scratch.path().to_str())),
            // The fewest rows that are ever accepted.
            ("ROCKET_MIN_M", Some("8")),
            ("ROCKET_MIN_M_QUANT", Some("8")),
            ("ROCKET_FLASH_ATTN_MIN_KV", Some("1")),
            ("ROCKET_FLASH_ATTN_MIN_T", Some("1")),
            // Nothing of this machine's settings, nothing measured.
            ("ROCKET_CONFIG", Some("none")),
            ("ROCKET_CALIBRATE", Some("0")),
            ("GGML_BACKEND_PATH", None),
            // Threads that spin while they wait would starve the simulator.
            ("OMP_NUM_THREADS", Some("1")),
            ("OMP_WAIT_POLICY", Some("passive")),
        ]);
        let ggml = Host::load(host)?;
        let device = ggml.plugin(plugin)?;
        println!("host: ggml {}", ggml.version());
        Ok(Setup { host: ggml, device, report, _scratch: scratch })
    }

    fn device(&self) -> Result<Device> {
        self.device.context("the plugin offers no device")
    }
}

fn run(arguments: &Arguments) -> Result<bool> {
    let (host, plugin) = (&arguments.host, &arguments.plugin);
    let setup = |device, defaults| Setup::new(host, plugin, device, defaults);
    let simulated = || setup(Some("sim"), &[]);
    let with_experts = || setup(Some("sim"), experts::DEFAULTS);
    match &arguments.command {
        Command::Ops { small, list } => ops::run(&simulated()?, *small, *list),
        Command::Attention { list } => attention::run(&simulated()?, *list),
        Command::Experts(arguments) => experts::run(&with_experts()?, arguments),
        Command::ExpertsPlacement(arguments) => {
            experts::placement(&setup(Some("sim"), &[("ROCKET_PACKED_DIR", "0")])?, arguments)
        }
        Command::Memory { rounds, small } => memory::run(&simulated()?, *rounds, *small),
        Command::Threads { small } => threads::run(&simulated()?, *small),
        Command::SupportsOp => supports_op::run(&simulated()?),
        Command::Faults(arguments) => faults::run(host, plugin, arguments),
        Command::Control => {
            println!("{}", ggml::do_wrong());
            Ok(true)
        }
        Command::Once { expect_npu, experts } => match experts {
            true => faults::once_with_experts(&setup(None, experts::DEFAULTS)?),
            false => faults::once(&setup(None, &[])?, *expect_npu),
        },
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(right) => {
            println!("verdict: {}", if right { "right" } else { "WRONG" });
            if right { ExitCode::SUCCESS } else { ExitCode::from(1) }
        }
        Err(e) => {
            eprintln!("rocket-minihost: {e:#}");
            ExitCode::from(2)
        }
    }
}
