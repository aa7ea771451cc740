//! `rocketctl forecast`: what of a model would run on the NPU, from its header alone and by the plugin's own
//! rules. Everything it says is modelled; nothing is measured.

mod advice;
mod graph;
mod groups;
mod json;
mod plan;
mod repack;
mod resident;
#[cfg(test)]
mod tests;
mod text;

pub use advice::{ALIKE, advise, quoted};
pub use graph::Cut;
pub use plan::{Forecast, Place, Settings, Soc, percent};
pub use repack::Cpu;
pub use text::bytes;

use crate::model;
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, anyhow};
use clap::{Args, ValueEnum};
use ggml_rocket::knobs::Knobs;
use rocket_runtime::board::{self, Memory, Reading, Root};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

/// Most tokens and rows that are asked for.
const MOST: u64 = 1 << 20;
/// What a system without a desktop takes of its memory at most.
const SYSTEM: u64 = 1 << 30;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// A GGUF, any part of a split one, or a whisper.cpp model.
    model: PathBuf,
    /// Tokens of the prompt.
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    prompt: u64,
    /// Tokens of a micro-batch: the host's -ub.
    #[arg(long, visible_alias = "ub", value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u64).range(1..=MOST))]
    ubatch: u64,
    /// Flash attention: the host's -fa.
    #[arg(long, visible_alias = "fa", value_enum, value_name = "WHEN", default_value_t = Switch::On)]
    flash_attn: Switch,
    /// Whether the host packs weights for its CPU alone, as hosts do unless they are told not to (-nr).
    #[arg(long, value_enum, value_name = "WHEN", default_value_t = Switch::On)]
    repack: Switch,
    /// The CPU that the host runs on: which types it packs depends on that.
    #[arg(long, value_enum, value_name = "CPU", default_value_t = Cpu::Dotprod)]
    host_cpu: Cpu,
    /// Memory of the board, such as 16G; else what this machine has available.
    #[arg(long, value_name = "SIZE", value_parser = size)]
    ram: Option<u64>,
    /// The part; else what this machine is, else RK3588.
    #[arg(long, value_enum, value_name = "PART")]
    soc: Option<Soc>,
    /// Rows that whisper's decoder gets at once.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..=64))]
    beams: u64,
}

/// On or off, as hosts have it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

/// Bytes, from a number with a unit.
fn size(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is no size; write it as 16G or 8192M");
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "g" | "gb" | "gib" => 30,
        "m" | "mb" | "mib" => 20,
        _ => return Err(wrong()),
    };
    let number: u64 = number.parse().map_err(|_| wrong())?;
    match number.checked_mul(1 << shift) {
        Some(bytes) if (1 << 28..=1 << 44).contains(&bytes) => Ok(bytes),
        _ => Err(format!("'{text}' is no memory of a board: 256M to 16384G")),
    }
}

/// The memory of a board with so many bytes.
pub fn of_board(total: u64) -> Memory {
    Memory { total, available: total.saturating_sub(SYSTEM).max(total / 2) }
}

/// The plugin's settings in an environment.
pub fn knobs(environment: &Reading<BTreeMap<String, String>>) -> Knobs {
    Knobs::read(|name| environment.as_ref().ok()?.get(name).map(Into::into))
}

/// The part of a machine, where it is one of those that are known.
pub fn soc(root: &Root) -> Option<Soc> {
    let names = root.strings("proc/device-tree/compatible").ok()?;
    let is = |part: &str| names.iter().any(|n| n == part);
    match () {
        () if is("rockchip,rk3576") => Some(Soc::Rk3576),
        () if is("rockchip,rk3588") || is("rockchip,rk3588s") => Some(Soc::Rk3588),
        () => None,
    }
}

/// A forecast of any header, for fuzz targets: its parts add up.
pub fn adds_up(header: &model::Header) {
    let settings = Settings {
        cut: Cut { prompt: 600, ubatch: 512, flash: header.bytes.is_multiple_of(2), beams: 5 },
        repack: header.bytes.is_multiple_of(3),
        cpu: Cpu::Dotprod,
        soc: Soc::Rk3588,
        memory: Some(of_board(8 << 30)),
        knobs: Knobs::read(|_| None),
    };
    let forecast = Forecast::of(header, &settings);
    let [all, npu] = forecast.totals();
    assert!(npu.macs <= all.macs && npu.ops <= all.ops);
    let ops =
        |groups: Vec<groups::Group>| groups.iter().fold(0u64, |n, g| n.saturating_add(g.all.ops));
    assert_eq!(
        [ops(groups::by_op(&forecast)), ops(groups::by_type(header, &forecast))],
        [all.ops; 2]
    );
}

/// Looks at a model.
///
/// # Errors
/// A file that is no model, or a root that is not there.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let shown = arguments.model.display();
    let header = model::open(&arguments.model).map_err(|e| anyhow!("{shown}: {e}"))?;
    let root = Root::open(&globals.root).with_context(|| format!("{}", globals.root.display()))?;
    let cut = Cut {
        prompt: arguments.prompt,
        ubatch: arguments.ubatch,
        flash: arguments.flash_attn == Switch::On,
        beams: arguments.beams,
    };
    let settings = Settings {
        cut,
        repack: arguments.repack == Switch::On,
        cpu: arguments.host_cpu,
        soc: arguments.soc.or_else(|| soc(&root)).unwrap_or(Soc::Rk3588),
        memory: arguments.ram.map(of_board).or_else(|| board::memory(&globals.root)),
        knobs: knobs(&root.environment()),
    };
    let forecast = Forecast::of(&header, &settings);
    let advice = advise(&header, &arguments.model, &settings);
    let source = if arguments.ram.is_some() { "--ram" } else { "/proc/meminfo" };
    let view = text::View {
        path: &arguments.model,
        header: &header,
        settings: &settings,
        forecast: &forecast,
        advice: &advice,
        source,
    };
    match globals.json {
        true => print_json(&json::of(&view))?,
        false => print(&text::of(&view, globals.quiet))?,
    }
    Ok(ExitCode::SUCCESS)
}
