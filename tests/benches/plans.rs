//! Ours against the reference, by what the simulated board counts.
//!
//! `scripts/compare-plans` builds and runs this; `--help` says what can be chosen. Nothing is
//! asserted here: small shapes have their gate in `tests/tests/compare.rs`.

use clap::Parser;
use rocket_sim::DriverProfile;
use rocket_tests::compare::rows::{KINDS, SHAPES, recorded};
use rocket_tests::compare::{Row, Setting, measure, table};
use rocket_tests::reference::{Kind, Residency, Waits};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// Prints "ours against the reference" for GEMMs on the simulated RK3588 NPU: bytes, submits,
/// jobs and modelled times of each product, by the simulator's exact counters, and their ratios.
#[derive(Debug, Parser)]
#[command(name = "compare-plans")]
struct Arguments {
    /// Worker files of ours, 1 to 8; the reference has its default of 5.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u8).range(1..=8))]
    workers: u8,
    /// Driver of ours: stock, patched (the full patch series) or a version such as 1.1; the
    /// reference runs on a stock one.
    #[arg(long, default_value = "stock", value_parser = driver)]
    driver: DriverProfile,
    /// Pack weights in the call, on both sides, instead of before it.
    #[arg(long)]
    streaming: bool,
    /// The reference queues its K steps at once and waits for the last, which is better than what
    /// the notes say of it.
    #[arg(long)]
    queued: bool,
    /// Only this kind: fp16, int8, int8-g128, int4, int4-exact, int4-g128, bf16, tf32, or others
    /// of their form. Can be given several times.
    #[arg(long = "dtype")]
    kinds: Vec<Kind>,
    /// Only this shape, MxKxN. Can be given several times.
    #[arg(long = "shape", value_parser = shape)]
    shapes: Vec<Shape>,
    /// Only the summary.
    #[arg(long)]
    summary: bool,
    /// Folder of the golden vectors, for the recorded runs.
    #[arg(long, env = "ROCKET_VECTORS")]
    vectors: Option<PathBuf>,
    /// Given by cargo.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Shape([usize; 3]);

fn shape(s: &str) -> Result<Shape, String> {
    let parts: Vec<usize> = s.split('x').filter_map(|p| p.parse().ok()).collect();
    match parts[..] {
        [m, k, n] if m * k * n > 0 => Ok(Shape([m, k, n])),
        _ => Err(format!("'{s}' is not MxKxN")),
    }
}

fn driver(s: &str) -> Result<DriverProfile, String> {
    if s == "patched" { Ok(DriverProfile::Full) } else { s.parse() }
}

/// Recorded runs, then each kind's shapes.
fn rows(a: &Arguments) -> Result<Vec<Row>, String> {
    let beside = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors"));
    let folder = a.vectors.clone().or_else(|| beside.is_dir().then_some(beside));
    let mut rows = Vec::new();
    if let Some(folder) = folder.filter(|_| a.shapes.is_empty()) {
        rows = recorded(&folder.join("rk3588-matmul"))?;
        rows.retain(|r| a.kinds.is_empty() || a.kinds.contains(&r.kind));
    } else if a.shapes.is_empty() {
        eprintln!("no golden vectors (--vectors): the recorded runs are left out");
    }
    let kinds = if a.kinds.is_empty() { &KINDS[..] } else { &a.kinds };
    for &kind in kinds {
        if a.shapes.is_empty() {
            rows.extend(SHAPES.iter().map(|(shape, _)| Row::of(*shape, kind)));
        } else {
            rows.extend(a.shapes.iter().map(|s| Row::of(s.0, kind)));
        }
    }
    Ok(rows)
}

fn run(a: &Arguments) -> Result<(), String> {
    let setting = Setting {
        residency: if a.streaming { Residency::Streaming } else { Residency::Resident },
        waits: if a.queued { Waits::Last } else { Waits::Each },
        driver: a.driver,
        workers: a.workers.into(),
    };
    let start = Instant::now();
    let mut done = Vec::new();
    if !a.summary {
        println!("{}\n", table::LEGEND);
        print!("{}", table::head());
    }
    for row in rows(a)? {
        let Some(pair) = measure(&row, setting)? else {
            println!("{row}: the reference refuses it");
            continue;
        };
        if !a.summary {
            print!("{}", table::lines(&row, &pair));
        }
        done.push((row, pair));
    }
    println!(
        "\n{} weights; ours: {} workers, {} driver; the reference: 5 workers, stock driver, K \
         steps {}",
        if a.streaming { "streamed" } else { "resident" },
        a.workers,
        a.driver.name(),
        if a.queued { "queued at once" } else { "waited for one by one" },
    );
    print!("{}", table::summary(&done));
    eprintln!("took {:.0} s", start.elapsed().as_secs_f64());
    Ok(())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}
