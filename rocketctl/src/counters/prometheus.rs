//! The text format of Prometheus (version 0.0.4): one HELP and one TYPE a metric, then its samples.

#[cfg(test)]
mod tests;

use super::{Counters, id_of};
use rocket_runtime::telemetry::{Life, Place, Row, Snapshot, Total, TotalKind};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// A metric: its type, its help, and a value for each set of labels.
#[derive(Debug)]
struct Family {
    kind: &'static str,
    help: String,
    /// In the order of first appearance of a process; one value a set of labels.
    samples: BTreeMap<String, String>,
}

type Families = BTreeMap<String, Family>;

/// All counters.
pub fn text(found: &Counters) -> String {
    let mut families = Families::new();
    let readable = found.shown.len().to_string();
    let mut add = |name: &str, kind, help: &str, labels: &[(&str, &str)], value: String| {
        insert(&mut families, name, kind, help, labels, value);
    };
    add("rocket_processes", "gauge", "Processes whose counters can be read.", &[], readable);
    let refused = found.refused.len().to_string();
    add("rocket_files_refused", "gauge", "Files of counters that cannot be read.", &[], refused);
    for (_, s) in &found.shown {
        process(&mut families, found, s);
    }
    let mut out = String::new();
    for (name, family) in &families {
        let _ = writeln!(out, "# HELP {name} {}", family.help);
        let _ = writeln!(out, "# TYPE {name} {}", family.kind);
        for (labels, value) in &family.samples {
            let _ = writeln!(out, "{name}{labels} {value}");
        }
    }
    out
}

fn process(families: &mut Families, found: &Counters, s: &Snapshot) {
    let (pid, id) = (s.process.pid.to_string(), id_of(s));
    let own = [("pid", pid.as_str()), ("process", id.as_str())];
    let fact = |key| s.fact(key).unwrap_or_default();
    let info: Vec<(&str, &str)> = own
        .into_iter()
        .chain(["program", "models", "plugin", "host", "device", "driver"].map(|k| (k, fact(k))))
        .collect();
    let help = "What a process is; always 1.";
    insert(families, "rocket_process_info", "gauge", help, &info, "1".into());
    // Unknown is no sample, and not 0.
    let up = match s.life {
        Life::Alive => Some("1"),
        Life::Dead => Some("0"),
        Life::Unknown(_) => None,
    };
    if let Some(up) = up {
        let help = "Whether the process runs.";
        insert(families, "rocket_process_up", "gauge", help, &own, up.into());
    }
    if let Some(ms) = found.age_ms(s) {
        let help = "Time since the figures were written.";
        let value = (ms as f64 / 1e3).to_string();
        insert(families, "rocket_counters_age_seconds", "gauge", help, &own, value);
    }
    for t in &s.totals {
        total(families, &own, t);
    }
    for r in &s.rows {
        row(families, &own, r);
    }
}

/// `ops.fp16` is `rocket_ops_total{route="fp16"}`, `time.pack` in ns `rocket_pack_seconds_total`.
fn total(families: &mut Families, own: &[(&str, &str)], t: &Total) {
    let mut labels = own.to_vec();
    let (base, help) = if let Some(route) = t.name.strip_prefix("ops.") {
        labels.push(("route", route));
        (
            "ops".to_owned(),
            "Operations that were taken, by route; cpu: computed by the CPU after all.",
        )
    } else if let Some(reason) = t.name.strip_prefix("redo.") {
        labels.push(("reason", reason));
        ("redone".to_owned(), "Operations that the CPU computed after all.")
    } else {
        // The unit's word comes last, and is not said twice.
        let base = t.name.trim_start_matches("time.").trim_start_matches("bytes.");
        (base.replace('.', "_"), "See docs/counters.md.")
    };
    let (unit, value) = match t.unit.as_str() {
        "ns" => ("_seconds", (t.value as f64 / 1e9).to_string()),
        "B" => ("_bytes", t.value.to_string()),
        _ => ("", t.value.to_string()),
    };
    let (kind, end) = match t.kind {
        TotalKind::Counter => ("counter", "_total"),
        TotalKind::Gauge => ("gauge", ""),
    };
    insert(families, &format!("rocket_{base}{unit}{end}"), kind, help, &labels, value);
}

fn row(families: &mut Families, own: &[(&str, &str)], r: &Row) {
    let place = match r.place {
        Place::Npu => "npu",
        Place::Declined => "declined",
        Place::Redone => "redone",
        Place::Other => "other",
    };
    let [k, n, from, to] =
        [r.k, r.n, r.rows[0].into(), r.rows[1].into()].map(|x: u64| x.to_string());
    let mut labels = own.to_vec();
    labels.extend([
        ("place", place),
        ("op", &r.op),
        ("weight", &r.weight),
        ("k", &k),
        ("n", &n),
        ("rows_from", &from),
        ("rows_to", &to),
        ("outcome", &r.outcome),
    ]);
    let help =
        "Operations by kind, shape and outcome; of place declined, how often the host asked.";
    insert(families, "rocket_row_calls_total", "counter", help, &labels, r.calls.to_string());
    let help = "Multiply-accumulates of these.";
    insert(families, "rocket_row_macs_total", "counter", help, &labels, r.macs.to_string());
    if r.place != Place::Declined {
        let help = "What the host waited for these.";
        let seconds = (r.ns as f64 / 1e9).to_string();
        insert(families, "rocket_row_seconds_total", "counter", help, &labels, seconds);
    }
}

/// Adds a sample. A set of labels has one value, and a name one type: what contradicts that is left out, as a
/// page with it would not be read at all.
fn insert(
    families: &mut Families,
    name: &str,
    kind: &'static str,
    help: &str,
    labels: &[(&str, &str)],
    value: String,
) {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '_' };
    let name: String = name.chars().map(plain).collect();
    let family = families.entry(name).or_insert_with(|| Family {
        kind,
        help: escape(help, false),
        samples: BTreeMap::new(),
    });
    if family.kind != kind {
        return;
    }
    let pairs: Vec<String> =
        labels.iter().map(|(key, text)| format!("{key}=\"{}\"", escape(text, true))).collect();
    let labels = if pairs.is_empty() { String::new() } else { format!("{{{}}}", pairs.join(",")) };
    family.samples.entry(labels).or_insert(value);
}

/// A backslash and a line end are written as two characters, and so is a quote within a label.
fn escape(text: &str, label: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if label => out.push_str("\\\""),
            c => out.push(c),
        }
    }
    out
}
