//! `rocketctl bench`: how fast the NPU and the host's part of the work are, with everything that is needed to
//! compare two runs. On a simulated board times are the cost model's, and said to be; counts are exact on either.

mod gemm;
mod host;
mod shape;
#[cfg(test)]
mod tests;

use crate::npu::{Choice, Npu as Device, missing};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use clap::Args;
use gemm::{Format, Product};
use rocket_runtime::board::{Facts, Root};
use rocket_runtime::matmul::{Npu, Options};
use rocket_sim::{Arithmetic, Config, SimBoard};
use serde::Serialize;
pub use shape::Shape;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// A shape of the products, as rows x K x N. May be given several times.
    #[arg(long, value_name = "MxKxN", default_values = ["128x2048x2048", "512x2048x2048", "512x4096x4096"])]
    shape: Vec<Shape>,
    /// A format. May be given several times; all without it.
    #[arg(long, value_enum)]
    format: Vec<Format>,
    /// Times that each is measured, after one that is not. Fewer where one takes seconds.
    #[arg(long, value_name = "N", default_value_t = 7, value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: u32,
}

/// What was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spread {
    pub repetitions: usize,
    pub min_ns: u64,
    pub median_ns: u64,
}

impl Spread {
    /// Of times in any order; nothing of none.
    pub fn of(mut times: Vec<u64>) -> Option<Spread> {
        times.sort_unstable();
        let middle = times.len() / 2;
        let median = match times.len() % 2 {
            0 => times.get(middle.checked_sub(1)?)?.midpoint(*times.get(middle)?),
            _ => *times.get(middle)?,
        };
        Some(Spread { repetitions: times.len(), min_ns: *times.first()?, median_ns: median })
    }
}

/// A value, or why there is none.
#[derive(Debug, Serialize)]
struct Reading {
    value: Option<u64>,
    unit: &'static str,
    source: &'static str,
    why: Option<String>,
    age_ms: Option<u64>,
}

/// The NPU's clock while all of it ran.
#[derive(Debug, Serialize)]
struct Clock {
    samples: usize,
    least: Reading,
    most: Reading,
}

#[derive(Debug, Serialize)]
struct Output {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    board: String,
    /// Then times are the cost model's.
    simulated: bool,
    /// The running one's release; what could not be read is null.
    kernel: Option<String>,
    model: Option<String>,
    governor: Option<String>,
    workers: usize,
    clock: Clock,
    products: Vec<Product>,
    submit: Option<gemm::Submit>,
    host: Vec<host::Bandwidth>,
}

/// Measures.
///
/// # Errors
/// Options that do not belong together, and what the NPU does wrong.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let device = match arguments.choice.open(globals)? {
        Ok(device) => quick(device, arguments.choice.options.is_exact()),
        Err(why) => {
            let report = missing(&why, "bench");
            match globals.json {
                true => print_json(&report)?,
                false => print(&report.text(globals.quiet, globals.colored()))?,
            }
            return Ok(ExitCode::from(report.exit));
        }
    };
    let npu = Npu::open(device.board(), Options::default())?;
    let formats = match arguments.format.is_empty() {
        true => Format::ALL.to_vec(),
        false => arguments.format.clone(),
    };
    let repetitions = arguments.repetitions as usize;
    let (measured, clock) = with_clock(&device, || -> Result<_> {
        let mut products = Vec::new();
        for format in &formats {
            for shape in &arguments.shape {
                products.push(gemm::measure(&npu, &device, *format, *shape, repetitions)?);
            }
        }
        let submit = gemm::submit(&device, repetitions)?;
        Ok((products, submit))
    });
    let (products, submit) = measured?;
    let output = describe(&device, &npu, clock, products, submit, host::measure(repetitions));
    match globals.json {
        true => print_json(&output)?,
        false => print(&text(&output))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A simulated board that computes no results, unless exact ones were asked for: its counts and modelled times are
/// the same.
fn quick(device: Device, exact: bool) -> Device {
    match device {
        Device::Sim(board) if !exact => {
            let config = Config { arithmetic: Arithmetic::Count, ..board.config().clone() };
            Device::Sim(SimBoard::new(config))
        }
        other => other,
    }
}

/// How often the clock is looked at.
const SAMPLE: Duration = Duration::from_millis(50);

/// Runs `work` and watches the clock meanwhile.
fn with_clock<R>(device: &Device, work: impl FnOnce() -> R) -> (R, Clock) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watch = scope.spawn(|| {
            let mut samples = vec![clock(device)];
            while !done.load(Ordering::Relaxed) {
                std::thread::sleep(SAMPLE);
                samples.push(clock(device));
            }
            samples
        });
        let result = work();
        done.store(true, Ordering::Relaxed);
        (result, seen(watch.join().unwrap_or_default()))
    })
}

fn clock(device: &Device) -> std::result::Result<u64, String> {
    if let Some(sim) = device.sim() {
        return Ok(sim.clock_hz());
    }
    let root = Root::open(Path::new("/")).map_err(|e| e.to_string())?;
    root.number("sys/kernel/debug/clk/scmi_clk_npu/clk_rate").map_err(|absent| absent.to_string())
}

/// The least and the most of what was seen; one look that failed makes neither unknown.
fn seen(samples: Vec<std::result::Result<u64, String>>) -> Clock {
    let known: Vec<u64> = samples.iter().filter_map(|s| s.as_ref().ok().copied()).collect();
    let why = samples.into_iter().find_map(std::result::Result::err);
    let why = why.unwrap_or_else(|| "it was not looked at".into());
    let reading = |value: Option<u64>| Reading {
        value,
        unit: "Hz",
        source: "clock",
        why: value.is_none().then(|| why.clone()),
        age_ms: None,
    };
    Clock {
        samples: known.len(),
        least: reading(known.iter().min().copied()),
        most: reading(known.iter().max().copied()),
    }
}

fn describe(
    device: &Device,
    npu: &Npu,
    clock: Clock,
    products: Vec<Product>,
    submit: Option<gemm::Submit>,
    host: Vec<host::Bandwidth>,
) -> Output {
    let root = Root::open(Path::new("/")).ok();
    let facts = root.as_ref().map(Facts::read);
    let governor =
        root.and_then(|r| r.text("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").ok());
    Output {
        schema: SCHEMA,
        tool: "rocketctl",
        version: env!("CARGO_PKG_VERSION"),
        exit: 0,
        board: device.board().describe(),
        simulated: device.sim().is_some(),
        kernel: facts.as_ref().and_then(|f| f.release.clone().ok()),
        model: facts.as_ref().and_then(|f| f.model.clone().ok()),
        governor,
        workers: npu.workers(),
        clock,
        products,
        submit,
        host,
    }
}

fn text(o: &Output) -> String {
    let mut out = format!("{}\n", o.board);
    let mhz = |r: &Reading| match r.value {
        Some(hz) => format!("{} MHz", hz / 1_000_000),
        None => format!("n/a ({})", r.why.as_deref().unwrap_or("unknown")),
    };
    out += &match (o.clock.least.value == o.clock.most.value, o.simulated) {
        (true, _) => format!("NPU clock: {}\n", mhz(&o.clock.least)),
        (false, _) => format!("NPU clock: {} to {}\n", mhz(&o.clock.least), mhz(&o.clock.most)),
    };
    let times = match o.simulated {
        true => "Times of the NPU are modelled: this board is simulated.",
        false => "Times are of whole calls, the host's part included; the median counts.",
    };
    out += &format!("{times}\n\n");
    out += "format     rows x K x N     GOP/s       ms   min ms  jobs SUBMITs  MB by DMA\n";
    for p in &o.products {
        let ms = |ns: Option<u64>| ns.map_or("n/a".into(), |ns| format!("{:.3}", ns as f64 / 1e6));
        let dma = p.dma_bytes.map_or("n/a".into(), |b| format!("{:.1}", b as f64 / 1e6));
        let gops = p.gops.map_or("n/a".into(), |g| format!("{g:.1}"));
        out += &format!(
            "{:<9} {:>16} {gops:>8} {:>8} {:>8} {:>5} {:>7} {dma:>10}\n",
            p.format.name(),
            p.shape.to_string(),
            ms(p.median_ns()),
            ms(p.min_ns()),
            p.jobs,
            p.submits,
        );
    }
    if let Some(submit) = &o.submit {
        let (word, ns) = match (&submit.modelled_ns, &submit.measured) {
            (Some(ns), _) => ("modelled", *ns),
            (None, Some(spread)) => ("median", spread.median_ns),
            (None, None) => ("unknown", 0),
        };
        out += &format!("\nthe smallest job, there and back: {:.1} us ({word})\n", ns as f64 / 1e3);
    }
    out += "\nthis machine's memory, one thread    GB/s   of memcpy\n";
    for b in &o.host {
        out += &format!("{:<34} {:>7.1} {:>9.0} %\n", b.what, b.gb_per_s, 100.0 * b.of_memcpy);
    }
    out
}
