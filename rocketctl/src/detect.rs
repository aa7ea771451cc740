//! `rocketctl detect`: what this machine is, the driver's family first, each value with where it was read.

use crate::doctor;
use crate::doctor::finding::{SCHEMA, clean, wrapped};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use rocket_runtime::board::{Absent, Facts, Reading};
use rocket_runtime::soc::RK3588;
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

fn readings(facts: &Facts) -> Vec<Shown> {
    let mut all = vec![
        family(facts),
        soc(facts),
        Shown::of("board", &facts.model, "/proc/device-tree/model"),
    ];
    all.extend(cores(facts));
    all.extend(driver(facts));
    all.extend(speed(facts));
    all.extend(system(facts));
    all
}

/// Which of the two drivers' worlds this is (kernel-and-uapi D.12).
fn family(facts: &Facts) -> Shown {
    const NAME: &str = "family";
    let node =
        |part: &str| facts.nodes.iter().find(|n| n.compatible.iter().any(|c| c.contains(part)));
    let mainline = node("-rknn-core").map(|n| n.path.clone());
    let mainline =
        mainline.or_else(|| (facts.loaded == Ok(true)).then(|| "/sys/module/rocket".into()));
    let vendor =
        node("-rknpu").map(|n| n.path.clone()).or_else(|| facts.vendor.map(|p| format!("/{p}")));
    match (mainline, vendor) {
        (Some(at), None) => Shown::known(NAME, "mainline rocket", at),
        (None, Some(at)) => Shown::known(NAME, "vendor rknpu", at),
        (Some(one), Some(other)) => Shown::known(NAME, "both", format!("{one}, {other}")),
        (None, None) => match (&facts.compatible, facts.machine_is_arm()) {
            (Ok(_), _) => Shown::known(NAME, "none", "/proc/device-tree"),
            (Err(_), false) => Shown::known(NAME, "none", "no device tree, and no Arm processor"),
            (Err(absent), true) => Shown::absent(NAME, absent),
        },
    }
}

fn soc(facts: &Facts) -> Shown {
    const NAME: &str = "soc";
    const PARTS: [(&str, &str); 3] = [
        ("rockchip,rk3588", "RK3588"),
        ("rockchip,rk3588s", "RK3588S"),
        ("rockchip,rk3576", "RK3576"),
    ];
    let compatible = match &facts.compatible {
        Ok(compatible) => compatible,
        Err(absent) => return Shown::absent(NAME, absent),
    };
    let source = "/proc/device-tree/compatible";
    let exact = PARTS.iter().find(|(entry, _)| compatible.iter().any(|c| c == entry));
    match exact {
        Some((_, part)) => Shown::known(NAME, *part, source),
        None => Shown::unknown(
            NAME,
            source,
            format!("not one that is known: {}", compatible.join(", ")),
        ),
    }
}

fn cores(facts: &Facts) -> Vec<Shown> {
    let enabled = facts.nodes.iter().filter(|n| n.enabled).count();
    let expected = match &facts.compatible {
        Ok(_) => Shown::known("cores expected", enabled, "/proc/device-tree"),
        Err(absent) => Shown::absent("cores expected", absent),
    };
    let nodes = |n: &rocket_runtime::board::AccelNode| {
        format!("{} ({})", n.path, n.driver.as_deref().unwrap_or("driver not known"))
    };
    let versions = facts.core_versions();
    let silicon = match (versions.first(), &facts.log) {
        (Some(version), _) => Shown::known("core version", version.to_string(), "kernel log"),
        (None, Err(absent)) => Shown::absent("core version", absent),
        (None, Ok(_)) => {
            Shown::unknown("core version", "kernel log", "the kernel's log does not say it")
        }
    };
    vec![
        expected,
        Shown::of("cores bound", &facts.bound, "/sys/bus/platform/drivers/rocket"),
        silicon,
        match &facts.accel_class {
            Ok(_) => {
                let all: Vec<String> = facts.accel.iter().map(nodes).collect();
                Shown::known("accel nodes", all, "/sys/class/accel")
            }
            Err(absent) => Shown::absent("accel nodes", absent),
        },
    ]
}

fn driver(facts: &Facts) -> Vec<Shown> {
    let by_itself = facts.rocket_nodes().find(|n| n.version.is_ok());
    let interface = match (facts.interface(), by_itself, facts.rocket_nodes().next()) {
        (Some((major, minor)), node, _) => {
            let source =
                node.map_or("kernel log".to_owned(), |n| format!("{} (DRM_IOCTL_VERSION)", n.path));
            Shown::known("interface", format!("{major}.{minor}"), source)
        }
        (None, _, Some(node)) => match &node.version {
            Err(absent) => Shown::absent("interface", absent),
            Ok(odd) => {
                Shown::unknown("interface", node.path.clone(), format!("the driver says '{odd}'"))
            }
        },
        (None, _, None) => {
            Shown::unknown("interface", "/sys/class/accel", "no accel node of the driver rocket")
        }
    };
    let features = "/sys/module/rocket/parameters/rocket_features";
    let patches = match (&facts.features, facts.interface()) {
        (Ok(all), _) => Shown::known("patches", all.clone(), features),
        (Err(_), Some((0, 0))) => {
            Shown::known("patches", Vec::<String>::new(), "interface 0.0, which is mainline's own")
        }
        (Err(absent), _) => Shown::absent("patches", absent),
    };
    vec![
        interface,
        patches,
        Shown::of("module", &facts.module.srcversion, "/sys/module/rocket/srcversion"),
    ]
}

fn speed(facts: &Facts) -> Vec<Shown> {
    let rk3588 = facts.compatible.iter().flatten().any(|c| RK3588.compatible.contains(&c.as_str()));
    let boot = match rk3588 {
        true => Shown::known("clock at boot", RK3588.slowest_hz, "the RK3588's default").unit("Hz"),
        false => Shown::unknown("clock at boot", "the part", "not known of this part"),
    };
    let clock = "/sys/kernel/debug/clk/scmi_clk_npu/clk_rate";
    let wanted = "/sys/module/rocket/parameters/rocket_npu_clk_hz";
    let delay = match facts.power.first() {
        Some(core) => Shown::of("autosuspend", &core.autosuspend_ms, &core.path),
        None => Shown::unknown(
            "autosuspend",
            "/sys/bus/platform/drivers/rocket",
            "the driver has no core",
        ),
    };
    vec![
        Shown::of("clock", &facts.clock_hz, clock).unit("Hz"),
        boot,
        Shown::of("clock asked", &facts.wanted_hz, wanted).unit("Hz"),
        delay.unit("ms"),
        Shown::of("temperature", &facts.temperature, "/sys/class/thermal").unit("millidegrees C"),
    ]
}

fn system(facts: &Facts) -> Vec<Shown> {
    let memory = |name, of: fn(&rocket_runtime::board::Memory) -> u64| match &facts.memory {
        Some(memory) => Shown::known(name, of(memory), "/proc/meminfo").unit("bytes"),
        None => Shown::unknown(name, "/proc/meminfo", "no usable /proc/meminfo"),
    };
    let next = facts.next.as_ref().map(|n| n.release.clone()).map_err(Clone::clone);
    let from = facts.next.as_ref().map_or("/boot", |n| &n.source);
    vec![
        memory("memory", |m| m.total),
        memory("memory free", |m| m.available),
        Shown::of("kernel", &facts.release, "/proc/sys/kernel/osrelease"),
        Shown::of("kernel next", &next, from),
        Shown::of("machine", &facts.machine, "the processor"),
        Shown::of("glibc", &facts.glibc, "libc.so.6"),
        Shown::of("cpu features", &facts.cpu_features, "/proc/cpuinfo"),
    ]
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
