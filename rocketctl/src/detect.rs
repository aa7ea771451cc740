//! `rocketctl detect`: what this machine is, the driver's family first, each value with where it was read.

mod readings;

use crate::doctor;
use crate::doctor::finding::{SCHEMA, clean, wrapped};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use readings::readings;
use rocket_runtime::board::{Absent, Facts, Reading};
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::Value;
use std::process::ExitCode;
use std::time::Instant;

/// One value, in the shape that all tools share (operator-tools, JSON).
#[derive(Debug, serde::Serialize)]
struct Shown {
    #[serde(skip)]
    name: &'static str,
    value: Value,
    unit: Option<&'static str>,
    source: String,
    why: Option<String>,
    /// Milliseconds since it was read; none where a tree does not say when that was.
    age_ms: Option<u64>,
}

impl Shown {
    fn known(name: &'static str, value: impl Into<Value>, source: impl Into<String>) -> Shown {
        let (value, source) = (value.into(), source.into());
        Shown { name, value, unit: None, source, why: None, age_ms: None }
    }

    fn unknown(name: &'static str, source: impl Into<String>, why: impl Into<String>) -> Shown {
        let shown = Shown::known(name, Value::Null, source);
        Shown { why: Some(why.into()), ..shown }
    }

    fn of<T: Clone + Into<Value>>(name: &'static str, reading: &Reading<T>, source: &str) -> Shown {
        match reading {
            Ok(value) => Shown::known(name, value.clone(), source),
            Err(absent) => Shown::absent(name, absent),
        }
    }

    fn absent(name: &'static str, absent: &Absent) -> Shown {
        Shown::unknown(name, absent.path.clone(), absent.to_string())
    }

    fn unit(mut self, unit: &'static str) -> Shown {
        self.unit = Some(unit);
        self
    }

    /// For people: the value with its unit, or why there is none.
    fn words(&self) -> String {
        let plain = |v: &Value| v.as_str().map_or_else(|| v.to_string(), str::to_owned);
        let value = match (&self.value, &self.why) {
            (Value::Null, why) => {
                return format!("n/a ({})", why.as_deref().unwrap_or("not known"));
            }
            (Value::Array(all), _) if all.is_empty() => "none".to_owned(),
            (Value::Array(all), _) => all.iter().map(plain).collect::<Vec<_>>().join(" "),
            (value, _) => plain(value),
        };
        match (self.unit, self.value.as_f64()) {
            (Some("Hz"), Some(hz)) => format!("{} MHz", hz / 1e6),
            (Some("millidegrees C"), Some(m)) => format!("{:.1} C", m / 1e3),
            (Some("bytes"), Some(bytes)) => format!("{:.0} MiB", bytes / f64::from(1 << 20)),
            (Some(unit), _) => format!("{value} {unit}"),
            (None, _) => value,
        }
    }
}

/// By name, in order.
struct Readings<'a>(&'a [Shown]);

impl Serialize for Readings<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(Some(self.0.len()))?;
        for shown in self.0 {
            map.serialize_entry(&shown.name.replace(' ', "_"), shown)?;
        }
        map.end()
    }
}

#[derive(serde::Serialize)]
struct Detected<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    readings: Readings<'a>,
}

/// Looks, and prints.
///
/// # Errors
/// A root that is not there.
pub fn run(globals: &Globals) -> Result<ExitCode> {
    let root = doctor::opened(&globals.root)?;
    let began = Instant::now();
    let facts = Facts::read(&root);
    let mut all = readings(&facts);
    let age =
        root.is_live().then(|| u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX));
    all.iter_mut().for_each(|shown| shown.age_ms = age);
    let exit = if all.first().is_some_and(|family| family.value.is_null()) { 3 } else { 0 };
    match globals.json {
        true => print_json(&Detected {
            schema: SCHEMA,
            tool: "rocketctl",
            version: env!("CARGO_PKG_VERSION"),
            exit,
            readings: Readings(&all),
        })?,
        false => print(&text(&all))?,
    }
    Ok(ExitCode::from(exit))
}

/// Aligned, at most 80 columns wide.
fn text(all: &[Shown]) -> String {
    let width = all.iter().map(|s| s.name.len()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for shown in all {
        for (i, part) in wrapped(&clean(shown.words()), 80 - width).iter().enumerate() {
            let label = if i == 0 { shown.name } else { "" };
            out += &format!("{label:width$}{part}\n");
        }
    }
    out
}

/// What a fixture's text and JSON are held to.
#[cfg(test)]
pub fn shown(facts: &Facts) -> (String, Value) {
    let all = readings(facts);
    (text(&all), serde_json::json!(Readings(&all)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// What is detected on every board, in text and JSON.
    #[test]
    fn every_board() {
        let boards = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards");
        for entry in std::fs::read_dir(boards).unwrap().flatten().filter(|e| e.path().is_dir()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let (text, json) = shown(&Facts::read(&doctor::opened(&entry.path()).unwrap()));
            assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
            assert!(text.starts_with("family "), "{text}");
            for (key, reading) in json.as_object().unwrap() {
                // Unknown has a reason, and nothing else has one.
                assert_eq!(reading["value"].is_null(), !reading["why"].is_null(), "{name} {key}");
                let keys: Vec<&String> = reading.as_object().unwrap().keys().collect();
                assert_eq!(keys, ["age_ms", "source", "unit", "value", "why"], "{name} {key}");
                assert_ne!(reading["source"], "", "{name} {key}");
            }
            insta::assert_snapshot!(name.clone(), text);
            insta::assert_snapshot!(
                format!("{name}.json"),
                serde_json::to_string_pretty(&json).unwrap()
            );
        }
    }

    /// Nodes are known by their driver, and a number that is not there is no 0.
    #[test]
    fn drivers_by_name() {
        let tree = tempfile::tempdir().unwrap();
        let set = |path: &str, text: &str| {
            let path = tree.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        set("proc/device-tree/compatible", "vendor,x\0rockchip,rk3588j\0");
        for (node, driver) in [("accel0", "intel_vpu"), ("accel1", "rocket")] {
            set(&format!("sys/class/accel/{node}/device/uevent"), "");
            let link = tree.path().join(format!("sys/class/accel/{node}/device/driver"));
            std::os::unix::fs::symlink(format!("../drivers/{driver}"), link).unwrap();
        }
        set("dev/accel/accel1.version", "rocket 1.1");
        let (text, json) = shown(&Facts::read(&doctor::opened(tree.path()).unwrap()));
        let nodes =
            serde_json::json!(["/dev/accel/accel0 (intel_vpu)", "/dev/accel/accel1 (rocket)"]);
        assert_eq!(
            (&json["accel_nodes"]["value"], &json["interface"]["value"]),
            (&nodes, &"1.1".into())
        );
        assert_eq!(json["soc"]["value"], Value::Null, "a similar name is not taken for one");
        for name in ["clock", "temperature", "memory", "autosuspend"] {
            assert_eq!(json[name]["value"], Value::Null, "{name}");
        }
        assert!(
            text.contains("clock ") && text.contains("n/a (no /sys/kernel/debug/clk"),
            "{text}"
        );
    }
}
