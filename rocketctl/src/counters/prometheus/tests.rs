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
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) || !name.chars().all(good)
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
