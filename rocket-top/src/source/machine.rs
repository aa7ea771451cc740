//! Clock, temperature, power domain, memory, and what the board is.

use super::Source;
use crate::sample::{Board, Raw, Sample};
use rocket_runtime::board::{Facts, Root};

/// Samples after which it is looked anew at what hardly ever changes.
const SELDOM: u32 = 30;

/// See the module.
#[derive(Debug, Default)]
pub struct Machine {
    known: Option<Known>,
    age: u32,
}

#[derive(Debug, Clone)]
struct Known {
    board: Board,
    /// The zone's folder, whose number differs from boot to boot (kernel-and-uapi D.5).
    zone: Raw<String>,
}

impl Source for Machine {
    fn fill(&mut self, root: &Root, sample: &mut Sample) {
        sample.node = node(root);
        let changed = self
            .known
            .as_ref()
            .is_none_or(|k| k.board.family.value().is_some() != sample.node.value().is_some());
        if self.known.is_none() || self.age >= SELDOM || (changed && self.age > 1) {
            self.known = Some(Known { board: board(root), zone: zone(root) });
            self.age = 0;
        }
        self.age += 1;
        let Some(known) = &self.known else { return };
        sample.board = known.board.clone();
        sample.clock_hz = Raw::from(root.number("sys/kernel/debug/clk/scmi_clk_npu/clk_rate"));
        let in_zone = |file: &str| match &known.zone {
            Raw::Value(zone) => Raw::from(root.number(&format!("{zone}/{file}"))),
            Raw::Why(why) => Raw::Why(why.clone()),
        };
        sample.temperature_mc = in_zone("temp");
        sample.trip_mc = in_zone("trip_point_0_temp");
        sample.domain = Raw::from(root.text("sys/kernel/debug/pm_genpd/npu/current_state"));
        let memory = |field: &str| meminfo(root, field);
        (sample.memory_available, sample.memory_total) =
            (memory("MemAvailable:"), memory("MemTotal:"));
    }
}

/// The node of the driver, by the driver's name: its number is anybody's.
fn node(root: &Root) -> Raw<String> {
    let names = match root.names("sys/class/accel") {
        Ok(names) => names,
        Err(absent) => return Raw::Why(absent.to_string()),
    };
    let ours = |name: &String| {
        let device = format!("sys/class/accel/{name}/device");
        root.link(&format!("{device}/driver")).as_deref() == Ok("rocket")
            || root.link(&device).as_deref() == Ok("rknn")
    };
    match names.into_iter().find(ours) {
        Some(name) => Raw::Value(name),
        None => Raw::Why("no accel node of the driver rocket".into()),
    }
}

fn board(root: &Root) -> Board {
    let facts = Facts::read(root);
    let soc = facts.compatible.clone().map(|all| {
        let rockchip = |c: &String| {
            c.strip_prefix("rockchip,").filter(|s| s.starts_with("rk3")).map(str::to_owned)
        };
        all.iter().filter_map(rockchip).next_back()
    });
    Board {
        model: Raw::from(facts.model.clone()),
        soc: match soc {
            Ok(Some(soc)) => Raw::Value(soc),
            Ok(None) => Raw::Why("no Rockchip board".into()),
            Err(absent) => Raw::Why(absent.to_string()),
        },
        kernel: Raw::from(facts.release.clone()),
        interface: match facts.interface() {
            Some((major, minor)) => Raw::Value(format!("{major}.{minor}")),
            None => Raw::Why(
                "the driver's line is not in the kernel's log, or that may not be read".into(),
            ),
        },
        family: match (&facts.loaded, facts.bound.as_ref().map_or(0, Vec::len)) {
            (Ok(true), cores) if cores > 0 => Raw::Value("rocket".into()),
            (Ok(true), _) => Raw::Why("the driver rocket has no core; see rocketctl doctor".into()),
            (Ok(false), _) => {
                Raw::Why("the driver rocket is not there; see rocketctl doctor".into())
            }
            (Err(absent), _) => Raw::Why(absent.to_string()),
        },
    }
}

fn zone(root: &Root) -> Raw<String> {
    let class = "sys/class/thermal";
    for zone in root.names(class).unwrap_or_default() {
        let path = format!("{class}/{zone}");
        if root.text(&format!("{path}/type")).as_deref() == Ok("npu-thermal") {
            return Raw::Value(path);
        }
    }
    Raw::Why("no thermal zone of type npu-thermal".into())
}

fn meminfo(root: &Root, field: &str) -> Raw<u64> {
    let text = match root.text("proc/meminfo") {
        Ok(text) => text,
        Err(absent) => return Raw::Why(absent.to_string()),
    };
    let kib = text
        .lines()
        .find_map(|l| l.strip_prefix(field)?.split_whitespace().next()?.parse::<u64>().ok());
    match kib.and_then(|k| k.checked_mul(1024)) {
        Some(bytes) => Raw::Value(bytes),
        None => Raw::Why(format!("no {field} in /proc/meminfo")),
    }
}
