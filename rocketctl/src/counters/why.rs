//! `rocketctl why`: which operations of a host ran on the NPU, which did not, and why.

#[cfg(test)]
mod tests;

use super::{Choice, Counters, Process, read, state};
use crate::doctor::finding::wrapped;
use crate::ui::{Globals, print, print_json};
use anstyle::{AnsiColor, Style};
use anyhow::Result;
use clap::{Args, ValueEnum};
use ggml_rocket::exec::redo::Redo;
use ggml_rocket::route::{Reason, reference::ENTRIES};
use rocket_runtime::telemetry::{Place, Row, Snapshot};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::process::ExitCode;

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
        refused: found
            .refused
            .iter()
            .map(|(p, why)| [p.display().to_string(), why.clone()])
            .collect(),
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

fn text(found: &Counters, sort: Sort, globals: &Globals) -> String {
    let mut out = String::new();
    for (i, (_, s)) in found.shown.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out += &head(found, s);
        out += &tables(s, sort, globals);
    }
    for (path, why) in &found.refused {
        out += &lines(&format!("not shown: {}: {why}", path.display()), 0);
    }
    if !found.removed.is_empty() {
        out +=
            &format!("removed {} left-over files of processes that ended\n", found.removed.len());
    }
    if found.shown.is_empty() {
        out += &lines(&found.nothing(), 0);
    }
    out
}

fn lines(text: &str, indent: usize) -> String {
    let wrap = |line: &str| wrapped(line, 80 - indent);
    text.lines().flat_map(wrap).map(|l| format!("{:indent$}{l}\n", "")).collect()
}

/// Who it is, and how much of its work was taken.
fn head(found: &Counters, s: &Snapshot) -> String {
    let fact = |key| s.fact(key).filter(|f| !f.is_empty());
    let mut words =
        format!("{} (process {}, {}", fact("program").unwrap_or("a host"), s.process.pid, state(s));
    words += &match found.age_ms(s) {
        Some(ms) => format!(", figures of {} ago)", ago(ms)),
        None => ")".to_owned(),
    };
    let models = fact("models").map(|m| format!(", {m}")).unwrap_or_default();
    let device = fact("device").map(|d| format!(", on {d}")).unwrap_or_default();
    let asked = match (s.total("asked.accepted_macs"), s.total("asked.declined_macs")) {
        (Some(yes), Some(no)) if yes.saturating_add(no) > 0 => {
            let share = 100.0 * yes as f64 / yes.saturating_add(no) as f64;
            format!(
                "About {share:.0} % of the work that the host asked about was taken (an estimate)."
            )
        }
        _ => "How much of the work was taken is not known.".to_owned(),
    };
    lines(&format!("{words}{models}{device}\n{asked}"), 0)
}

fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..600_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

fn tables(s: &Snapshot, sort: Sort, globals: &Globals) -> String {
    let mut out = String::new();
    for (place, title, calls) in [
        (Place::Npu, "On the NPU", "calls"),
        (Place::Declined, "Left to the CPU", "asked"),
        (Place::Redone, "Taken, and computed by the CPU after all", "calls"),
        (Place::Other, "Of any kind, beyond what the table holds", "calls"),
    ] {
        let rows = sorted(&s.rows, sort);
        let rows: Vec<&Row> = rows.into_iter().filter(|r| r.place == place).collect();
        let rows: Vec<&Row> =
            rows.into_iter().filter(|r| !globals.quiet || !is_normal(r)).collect();
        if rows.is_empty() {
            continue;
        }
        out += &format!("\n{title}\n");
        let last = if place == Place::Npu { "ms    GOP/s route" } else { "reason" };
        out += &format!("{:<14} {:<7} {:<21} {calls:>6} {last}\n", "op", "type", "rows x K x N");
        for r in &rows {
            out += &row(r, globals.colored());
        }
        let reasons: BTreeSet<&str> = rows.iter().map(|r| r.outcome.as_str()).collect();
        for reason in reasons.into_iter().filter(|_| place != Place::Npu) {
            let Some(r) = rows.iter().find(|r| r.outcome == reason) else { continue };
            let words = meaning(r).unwrap_or("this version does not know the reason.");
            let more = doctor(r).map(|id| format!(" See: rocketctl doctor --only {id}"));
            out += &lines(&format!("{reason}: {words}{}", more.unwrap_or_default()), 2);
        }
    }
    if s.rows.is_empty() {
        out += "No operation was counted yet.\n";
    }
    out
}

fn row(r: &Row, colored: bool) -> String {
    let rows = match r.rows {
        [a, b] if a == b => a.to_string(),
        [a, u32::MAX] => format!("{a}+"),
        [a, b] => format!("{a}-{b}"),
    };
    let shape = format!("{rows}x{}x{}", dimension(r.k), dimension(r.n));
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let head = format!(
        "{:<14} {:<7} {shape:<21} {:>6}",
        cut(&r.op, 14),
        cut(&r.weight, 7),
        number(r.calls as f64, 0)
    );
    let tail = match r.place {
        Place::Npu => {
            // A FLOP count is twice the multiply-accumulates.
            let gops = (r.ns > 0).then(|| number(2.0 * r.macs as f64 / r.ns as f64, 1));
            let gops = gops.unwrap_or_else(|| "n/a".to_owned());
            let ms = number(r.ns as f64 / 1e6, 1);
            format!("{ms:>7} {gops:>6} {}", cut(&r.outcome, 13))
        }
        _ => cut(&r.outcome, 28),
    };
    let style = match (r.place, is_normal(r)) {
        (Place::Npu, _) => Style::new(),
        (_, true) => Style::new().dimmed(),
        (_, false) => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
    };
    match colored {
        true => format!("{style}{head} {tail}{}\n", style.render_reset()),
        false => format!("{head} {tail}\n"),
    }
}

/// In at most six columns.
fn dimension(n: u64) -> String {
    if n < 1_000_000 { n.to_string() } else { number(n as f64, 0) }
}

/// In at most six columns, with so many digits behind the point if there is room.
fn number(x: f64, digits: usize) -> String {
    let exact = format!("{x:.digits$}");
    match exact.len() <= 6 {
        true => exact,
        false if x < 999_999.5 => format!("{x:.0}"),
        false if x < 1e10 => format!("{:.0}M", x / 1e6),
        false => format!("{x:.0e}"),
    }
}
