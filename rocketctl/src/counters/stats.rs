//! `rocketctl stats`: every counter, as JSON or in the text format of Prometheus.

use super::{Choice, Counters, Process, Reading, prometheus, read};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use clap::Args;
use rocket_runtime::telemetry::{Snapshot, TotalKind};
use serde::Serialize;
use std::collections::BTreeMap;
use std::process::ExitCode;

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Print the text format that Prometheus scrapes, as for a textfile collector.
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

#[derive(Debug, Serialize)]
struct Event<'a> {
    number: u64,
    /// Since the machine's start.
    ns: u64,
    code: &'a str,
    text: &'a str,
}

#[derive(Debug, Serialize)]
struct Host<'a> {
    #[serde(flatten)]
    process: Process<'a>,
    counters: BTreeMap<&'a str, Reading>,
    gauges: BTreeMap<&'a str, Reading>,
    events: Vec<Event<'a>>,
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    processes: Vec<Host<'a>>,
    refused: Vec<[String; 2]>,
}

/// Prints the counters.
///
/// # Errors
/// A root that is not there.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let found = read(&globals.root, &arguments.choice)?;
    if arguments.prometheus {
        // For what collects it, no process is an answer.
        print(&prometheus::text(&found))?;
        return Ok(ExitCode::SUCCESS);
    }
    let exit = if found.shown.is_empty() { 3 } else { 0 };
    print_json(&output(&found, exit))?;
    Ok(ExitCode::from(exit))
}

fn output(found: &Counters, exit: u8) -> Output<'_> {
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
                counters: totals(found, s, TotalKind::Counter),
                gauges: totals(found, s, TotalKind::Gauge),
                events: s.events.iter().map(event).collect(),
            })
            .collect(),
        refused: found.refused_in_words(),
    }
}

fn event(e: &rocket_runtime::telemetry::Event) -> Event<'_> {
    Event { number: e.number, ns: e.time, code: &e.code, text: &e.text }
}

fn totals<'a>(found: &Counters, s: &'a Snapshot, kind: TotalKind) -> BTreeMap<&'a str, Reading> {
    let of = s.totals.iter().filter(|t| t.kind == kind);
    let reading = |value, unit: &str| Reading {
        value: Some(value),
        unit: unit.to_owned(),
        source: "counters",
        why: None,
        age_ms: found.age_ms(s),
    };
    of.map(|t| (t.name.as_str(), reading(t.value, &t.unit))).collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{ALL, tree, typical};
    use super::*;

    #[test]
    fn every_total_with_its_unit() {
        let (dir, _writer) = tree(|image| {
            typical(image);
            image.event(7, "job_lost", "a job \"was\" lost");
        });
        let found = read(dir.path(), &ALL).unwrap();
        let json = serde_json::to_value(output(&found, 0)).unwrap();
        let host = &json["processes"][0];
        assert_eq!((&json["schema"], &host["pid"]), (&1.into(), &std::process::id().into()));
        assert_eq!(host["counters"]["time.pack"]["value"], 1_500_000_000);
        assert_eq!(host["counters"]["time.pack"]["unit"], "ns");
        assert_eq!(host["gauges"]["bytes.resident"]["value"], 25_165_824);
        assert!(host["counters"]["npu.jobs"].is_null(), "what was never counted is not 0");
        assert_eq!(host["events"][0]["code"], "job_lost");
        assert_eq!(host["state"], "running");
        assert!(host["age"]["value"].is_null() && host["age"]["why"].is_string());
    }
}
