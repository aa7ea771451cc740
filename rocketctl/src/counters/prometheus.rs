//! The text format of Prometheus (version 0.0.4): one HELP and one TYPE a metric, then its samples.

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

#[cfg(test)]
mod tests {
    use super::super::read;
    use super::super::tests::{ALL, tree, typical};
    use super::*;
    use proptest::prelude::*;
    use rocket_runtime::telemetry::{Image, RowKey};

    /// A sample as a scraper reads it.
    #[derive(Debug, PartialEq)]
    struct Sample {
        name: String,
        labels: Vec<(String, String)>,
        value: f64,
    }

    /// Reads a page by the format's definition; any breach is an error. Written for the test alone.
    fn parse(page: &str) -> Result<Vec<Sample>, String> {
        let mut samples: Vec<Sample> = Vec::new();
        let (mut typed, mut helped): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
        let mut family = String::new();
        if !page.is_empty() && !page.ends_with('\n') {
            return Err("no line end at the end".into());
        }
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# HELP ") {
                let (name, _) = rest.split_once(' ').ok_or("HELP without text")?;
                if helped.iter().any(|n| n == name) {
                    return Err(format!("two HELP of {name}"));
                }
                helped.push(name.to_owned());
                continue;
            }
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or("TYPE without type")?;
                if typed.iter().any(|n| n == name) {
                    return Err(format!("two TYPE of {name}"));
                }
                if !["counter", "gauge"].contains(&kind) {
                    return Err(format!("type {kind}"));
                }
                if (kind == "counter") != name.ends_with("_total") {
                    return Err(format!("{name} is a {kind}"));
                }
                typed.push(name.to_owned());
                family = name.to_owned();
                continue;
            }
            let sample = sample(line)?;
            if sample.name != family {
                return Err(format!("{} outside of its group", sample.name));
            }
            let same = |s: &&Sample| s.name == sample.name && s.labels == sample.labels;
            if samples.iter().any(|s| same(&s)) {
                return Err(format!("twice: {line}"));
            }
            samples.push(sample);
        }
        Ok(samples)
    }

    fn sample(line: &str) -> Result<Sample, String> {
        let end = line.find(['{', ' ']).ok_or("no value")?;
        let (name, mut rest) = line.split_at(end);
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if name.is_empty()
            || name.starts_with(|c: char| c.is_ascii_digit())
            || !name.chars().all(good)
        {
            return Err(format!("name {name}"));
        }
        let mut labels = Vec::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = inside;
            loop {
                let (key, after) = rest.split_once("=\"").ok_or("label without value")?;
                if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                    return Err(format!("label {key}"));
                }
                let (mut text, mut chars) = (String::new(), after.char_indices());
                let end = loop {
                    match chars.next().ok_or("label without end")? {
                        (at, '"') => break at,
                        (_, '\\') => match chars.next().ok_or("escape without end")?.1 {
                            'n' => text.push('\n'),
                            c @ ('\\' | '"') => text.push(c),
                            c => return Err(format!("escape {c}")),
                        },
                        (_, c) => text.push(c),
                    }
                };
                labels.push((key.to_owned(), text));
                rest = &after[end + 1..];
                match rest.strip_prefix(',') {
                    Some(more) => rest = more,
                    None => break,
                }
            }
            rest = rest.strip_prefix('}').ok_or("no end of labels")?;
        }
        let value = rest.strip_prefix(' ').ok_or("no blank before the value")?;
        let value = value.parse::<f64>().map_err(|e| e.to_string())?;
        Ok(Sample { name: name.to_owned(), labels, value })
    }

    fn page(fill: impl Fn(&mut Image)) -> String {
        let (dir, _writer) = tree(fill);
        text(&read(dir.path(), &ALL).unwrap())
    }

    fn value(samples: &[Sample], name: &str, label: (&str, &str)) -> Option<f64> {
        let has = |s: &&Sample| {
            s.name == name && s.labels.iter().any(|(k, v)| (k.as_str(), v.as_str()) == label)
        };
        let found: Vec<&Sample> = samples.iter().filter(has).collect();
        assert!(found.len() <= 1, "{found:?}");
        found.first().map(|s| s.value)
    }

    #[test]
    fn a_page_that_scrapers_read() {
        let samples = parse(&page(typical)).unwrap();
        let pid = std::process::id().to_string();
        let own = ("pid", pid.as_str());
        assert_eq!(value(&samples, "rocket_ops_total", ("route", "fp16")), Some(3.0));
        assert_eq!(value(&samples, "rocket_pack_seconds_total", own), Some(1.5));
        assert_eq!(value(&samples, "rocket_resident_bytes", own), Some(25_165_824.0));
        assert_eq!(value(&samples, "rocket_npu_macs_total", own), Some(2e10));
        assert_eq!(value(&samples, "rocket_process_up", own), Some(1.0));
        let model = ("models", "tiny \"q\".gguf");
        assert_eq!(value(&samples, "rocket_process_info", model), Some(1.0));
        let reason = ("outcome", "too_few_rows");
        assert_eq!(value(&samples, "rocket_row_calls_total", reason), Some(900.0));
        assert_eq!(value(&samples, "rocket_row_seconds_total", reason), None, "nobody timed it");
        assert_eq!(value(&samples, "rocket_npu_jobs_total", own), None, "unknown is no sample");
    }

    #[test]
    fn no_process_is_a_page_too() {
        let dir = tempfile::tempdir().unwrap();
        let samples = parse(&text(&read(dir.path(), &ALL).unwrap())).unwrap();
        assert_eq!(samples.iter().find(|s| s.name == "rocket_processes").unwrap().value, 0.0);
    }

    /// The test's parser is worth something.
    #[test]
    fn what_scrapers_refuse_is_refused() {
        for bad in [
            "a 1",
            "a{b=\"c} 1\n",
            "a{b=\"\\q\"} 1\n",
            "# TYPE a_total counter\n# TYPE a_total counter\n",
            "# TYPE a gauge\na 1\na 2\n",
            "# TYPE a gauge\nb 1\n",
            "# TYPE a counter\na 1\n",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    proptest! {
        /// Whatever names and texts a writer puts there.
        #[test]
        fn any_names(name in ".{0,24}", unit in "1|B|ns|MAC|.{0,6}", text in ".{0,30}", n: u64) {
            let page = page(|image| {
                for (name, kind) in [(name.as_str(), TotalKind::Counter), (&format!("{name}."), TotalKind::Gauge), ("a.b", TotalKind::Counter), ("a_b", TotalKind::Counter)] {
                    let slot = image.total(name, &unit, kind);
                    image.set(slot, n);
                }
                image.fact("models", &text);
                let key = RowKey { place: Place::Npu, op: &text, weight: &name, k: n, n, rows: n, outcome: &text };
                image.count(&key, n, n, n);
            });
            let parsed = parse(&page);
            prop_assert!(parsed.is_ok(), "{:?}\n{page}", parsed);
        }
    }
}
