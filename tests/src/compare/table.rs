//! The comparison in print: a table of at most 120 columns that is Markdown, and a summary.

use super::{Origin, Pair, Row};
use crate::meter::Cost;
use std::fmt::Write;

/// Below this share of the reference's DMA bytes a row counts as clearly better.
const CLEARLY: f64 = 0.85;

/// Names, widths and decimals of the columns, with where their values are.
struct Column {
    name: &'static str,
    width: usize,
    decimals: usize,
    value: fn(&Cost) -> f64,
}

const COLUMNS: [Column; 8] = [
    column("DMA MB", 8, 2, |c| c.dma() as f64 / 1e6),
    column("cmd MB", 6, 2, |c| c.counters.dma_read_regcmd as f64 / 1e6),
    column("sync MB", 8, 2, |c| c.counters.cpu_sync as f64 / 1e6),
    column("submit", 6, 0, |c| c.counters.submits as f64),
    column("jobs", 5, 0, |c| c.counters.jobs as f64),
    column("tasks", 6, 0, |c| c.counters.tasks as f64),
    column("long ms", 7, 2, |c| c.longest_job_ns as f64 / 1e6),
    column("time ms", 7, 2, |c| c.busiest_core_ns as f64 / 1e6),
];

const fn column(
    name: &'static str,
    width: usize,
    decimals: usize,
    value: fn(&Cost) -> f64,
) -> Column {
    Column { name, width, decimals, value }
}

/// What the columns mean, for people.
pub const LEGEND: &str = "\
DMA: features, weights, operands and results moved by the cores; cmd: programs; sync: bytes copied
by PREP and FINI; long: the longest job, modelled at 200 MHz; time: the busiest core, modelled at
600 MHz, host time not counted. rec: the reference's recorded run, replayed on one file; spec: its
run reconstructed from npu-rk3588 7, see the docs of rocket_tests::reference for what is assumed.
int4 alone may let sums saturate in the reference; ours never does, with weights as a normal
distribution gives them.";

/// The two lines above the rows.
pub fn head() -> String {
    let mut names = format!("| {:<14} | {:<10} | {:<5}", "M x K x N", "dtype", "who");
    let mut rule = format!("|{:-<16}|{:-<12}|{:-<7}", "", "", "");
    for c in &COLUMNS {
        let _ = write!(names, " | {:>1$}", c.name, c.width);
        let _ = write!(rule, "|{:->1$}:", "", c.width + 1);
    }
    format!("{names} |\n{rule}|\n")
}

/// The reference's line of a row, ours, and ours in units of the reference's.
pub fn lines(row: &Row, pair: &Pair) -> String {
    let shape = row.to_string();
    let shape = shape.split(' ').next().unwrap_or_default();
    let who = if matches!(row.origin, Origin::Recorded(_)) { "rec" } else { "spec" };
    let line = |who: &str, value: &dyn Fn(&Column) -> String| {
        let mut line = format!("| {shape:<14} | {:<10} | {who:<5}", row.kind.to_string());
        for c in &COLUMNS {
            let _ = write!(line, " | {:>1$}", value(c), c.width);
        }
        line + " |\n"
    };
    let mut out = line(who, &|c| format!("{:.1$}", (c.value)(&pair.reference), c.decimals));
    if let Some(ours) = &pair.ours {
        out += &line("ours", &|c| format!("{:.1$}", (c.value)(ours), c.decimals));
        out += &line("ratio", &|c| format!("{:.2}", (c.value)(ours) / (c.value)(&pair.reference)));
    }
    out
}

/// What is counted over all rows that have both sides.
pub fn summary(rows: &[(Row, Pair)]) -> String {
    let both: Vec<(&Row, &Cost, &Cost)> =
        rows.iter().filter_map(|(r, p)| p.ours.as_ref().map(|o| (r, o, &p.reference))).collect();
    let mut out = format!("{} rows, {} with both sides\n", rows.len(), both.len());
    if both.is_empty() {
        return out;
    }
    for c in &COLUMNS {
        let ratio = |ours: &Cost, reference: &Cost| (c.value)(ours) / (c.value)(reference);
        let met = both.iter().filter(|(_, o, r)| ratio(o, r) <= 1.0).count();
        let logs: f64 = both.iter().map(|(_, o, r)| ratio(o, r).ln()).sum();
        let mean = (logs / both.len() as f64).exp();
        let worst = both.iter().max_by(|a, b| ratio(a.1, a.2).total_cmp(&ratio(b.1, b.2)));
        let (worst, at) = worst.map_or((f64::NAN, String::new()), |(r, o, reference)| {
            (ratio(o, reference), r.to_string())
        });
        let _ = writeln!(
            out,
            "{:<8} at or below the reference in {met:>3} of {}; mean ratio {mean:.3}, worst {worst:.3} ({at})",
            c.name,
            both.len()
        );
    }
    let clearly =
        both.iter().filter(|(_, o, r)| (o.dma() as f64) < CLEARLY * r.dma() as f64).count();
    let _ = writeln!(out, "DMA MB   below {CLEARLY} of it in {clearly:>3} of {}", both.len());
    out
}
