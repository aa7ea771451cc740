//! `rocketctl why`: which operations of a host ran on the NPU, which did not, and why.

#[cfg(test)]
mod tests;
mod text;

use super::{Choice, Counters, Process, read};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use clap::{Args, ValueEnum};
use ggml_rocket::exec::redo::Redo;
use ggml_rocket::route::{Reason, reference::ENTRIES};
use rocket_runtime::telemetry::{Place, Row};
use serde::Serialize;
use std::cmp::Reverse;
use std::process::ExitCode;
use text::text;

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// What comes first within each table.
    #[arg(long, value_enum, default_value_t = Sort::Work)]
    sort: Sort,
}

/// Order of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// Most multiply-accumulates, then most calls.
    Work,
    /// Most calls.
    Calls,
    /// Longest time.
    Time,
    /// By name, type and shape.
    Op,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    /// `npu`, `declined`, `redone`, `other`.
    place: &'static str,
    op: &'a str,
    weight: &'a str,
    /// Least and most rows of the class.
    rows: [u32; 2],
    k: u64,
    n: u64,
    /// For what was declined, how often the host asked.
    calls: u64,
    macs: u64,
    /// What the host waited; absent for what was declined.
    ns: Option<u64>,
    /// Route or reason.
    outcome: &'a str,
    meaning: Option<&'static str>,
    /// The doctor's check of what can be mended.
    doctor: Option<&'static str>,
    /// Whether that is as it should be.
    normal: bool,
}

#[derive(Debug, Serialize)]
struct Host<'a> {
    #[serde(flatten)]
    process: Process<'a>,
    rows: Vec<Line<'a>>,
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    processes: Vec<Host<'a>>,
    refused: Vec<[String; 2]>,
    removed: Vec<String>,
}

/// Prints the routing tables.
///
/// # Errors
/// A root that is not there.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let found = read(&globals.root, &arguments.choice)?;
    // Nothing to say anything of.
    let exit = if found.shown.is_empty() { 3 } else { 0 };
    match globals.json {
        true => print_json(&output(&found, arguments.sort, exit))?,
        false => print(&text(&found, arguments.sort, globals))?,
    }
    Ok(ExitCode::from(exit))
}

fn output(found: &Counters, sort: Sort, exit: u8) -> Output<'_> {
    Output {
        schema: SCHEMA,
        tool: "rocketctl",
        version: env!("CARGO_PKG_VERSION"),
        exit,
        processes: found
            .shown
            .iter()
            .map(|(path, s)| Host {
                process: found.process(path, s),
                rows: sorted(&s.rows, sort).into_iter().map(line).collect(),
            })
            .collect(),
        refused: found.refused_in_words(),
        removed: found.removed.iter().map(|p| p.display().to_string()).collect(),
    }
}

fn sorted(rows: &[Row], sort: Sort) -> Vec<&Row> {
    let mut rows: Vec<&Row> = rows.iter().collect();
    // A tie is broken by what the row is, so that the order does not jump between looks.
    rows.sort_by(|a, b| {
        let key = |r: &Row| (r.op.clone(), r.weight.clone(), r.k, r.n, r.rows, r.outcome.clone());
        let first = match sort {
            Sort::Work => {
                (Reverse(a.macs), Reverse(a.calls)).cmp(&(Reverse(b.macs), Reverse(b.calls)))
            }
            Sort::Calls => Reverse(a.calls).cmp(&Reverse(b.calls)),
            Sort::Time => Reverse(a.ns).cmp(&Reverse(b.ns)),
            Sort::Op => std::cmp::Ordering::Equal,
        };
        a.place.cmp(&b.place).then(first).then_with(|| key(a).cmp(&key(b)))
    });
    rows
}

fn line(r: &Row) -> Line<'_> {
    Line {
        place: match r.place {
            Place::Npu => "npu",
            Place::Declined => "declined",
            Place::Redone => "redone",
            Place::Other => "other",
        },
        op: &r.op,
        weight: &r.weight,
        rows: r.rows,
        k: r.k,
        n: r.n,
        calls: r.calls,
        macs: r.macs,
        ns: (r.place != Place::Declined).then_some(r.ns),
        outcome: &r.outcome,
        meaning: meaning(r),
        doctor: doctor(r),
        normal: is_normal(r),
    }
}

/// What a route or a reason says in words.
fn meaning(r: &Row) -> Option<&'static str> {
    let name = r.outcome.as_str();
    match r.place {
        Place::Npu => ENTRIES.iter().find(|e| e.name == name).map(|e| e.how),
        Place::Declined => Reason::named(name).map(Reason::sentence),
        Place::Redone => Redo::named(name).map(Redo::sentence),
        Place::Other => Some("more kinds of rows than the table holds."),
    }
}

/// The doctor's check of a reason that somebody can do something about.
fn doctor(r: &Row) -> Option<&'static str> {
    match r.place {
        Place::Declined => Reason::named(&r.outcome)?.mends(),
        Place::Redone => Redo::named(&r.outcome)?.mends(),
        Place::Npu | Place::Other => None,
    }
}

/// On the NPU, or left to the CPU because that is faster.
fn is_normal(r: &Row) -> bool {
    r.place != Place::Redone && doctor(r).is_none()
}
