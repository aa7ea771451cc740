//! What is shown of a moment: figures with their sources, the same for the screen, JSON and Prometheus.

mod processes;
mod routing;

pub use processes::Process;
pub use routing::{Line, Weight};

use crate::rate::{self, Figure};
use crate::sample::{Board, Raw, Sample};
use serde::Serialize;

/// Version of the JSON's shape.
pub const SCHEMA: u32 = 1;

/// One core.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Core {
    /// As `fdab0000.npu`.
    pub name: String,
    /// Per cent of the time that passed.
    pub utilization: Figure,
    /// Whether that is an upper bound only.
    pub estimate: bool,
    /// Jobs a second.
    pub jobs: Figure,
    /// Interrupts a second: about one a task, or a batched job.
    pub interrupts: Figure,
    /// `active`, `suspended`, …
    pub status: Raw<String>,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Event {
    /// ns of CLOCK_BOOTTIME.
    pub time_ns: u64,
    /// Whose.
    pub pid: u32,
    /// Stable.
    pub code: String,
    /// For people.
    pub text: String,
}

/// One moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Frame {
    /// [`SCHEMA`].
    pub schema: u32,
    /// `rocket-top`.
    pub tool: &'static str,
    /// Its version.
    pub version: &'static str,
    /// ms since 1970.
    pub time_ms: u64,
    /// Time that the rates are over.
    pub interval_ms: Option<u64>,
    /// The machine slept in it for so long.
    pub slept_ms: u64,
    /// What it is.
    pub board: Board,
    /// The node, or why there is none.
    pub node: Raw<String>,
    /// Cores.
    pub cores: Vec<Core>,
    /// MHz.
    pub clock: Figure,
    /// Whether the clock is the boot's 200 MHz although a core works (kernel-and-uapi D.4).
    pub clock_at_boot: bool,
    /// Degrees.
    pub temperature: Figure,
    /// Degrees at which the board turns itself off.
    pub trip: Figure,
    /// State of the power domain.
    pub power: Raw<String>,
    /// MiB.
    pub memory: Figure,
    /// MiB of buffers that files of the node hold.
    pub iova: Figure,
    /// All processes' operations a second on the NPU.
    pub gops: Figure,
    /// Who uses it.
    pub processes: Vec<Process>,
    /// Why it is not known who else does.
    pub clients: Option<String>,
    /// What ran where.
    pub routing: Vec<Line>,
    /// The latest, newest first.
    pub events: Vec<Event>,
    /// Files of counters that are not shown, and why.
    pub refused: Vec<(String, String)>,
}

/// The clock that boards boot with (npu-rk3588 8.1, kernel-and-uapi B.3).
const BOOT_MHZ: f64 = 200.0;
/// Events that are kept.
const EVENTS: usize = 200;

/// A figure of one reading, in other units.
fn figure(raw: &Raw<u64>, divisor: f64, unit: &'static str, source: &str) -> Figure {
    Figure::of(&raw.clone().map(|v| v as f64 / divisor), unit, source)
}

impl Frame {
    /// Of two samples, the latter of which is shown; of one process alone where `pid` is given.
    pub fn new(before: Option<&Sample>, now: &Sample, pid: Option<u32>) -> Frame {
        let passed = rate::passed(before, now);
        let cores: Vec<Core> = now.cores.iter().map(|c| core(before, now, c, &passed)).collect();
        let processes: Vec<Process> = processes::all(before, now, &passed)
            .into_iter()
            .filter(|p| pid.is_none_or(|pid| p.pid == pid))
            .collect();
        let clock = figure(&now.clock_hz, 1e6, "MHz", "debugfs scmi_clk_npu");
        let works = now.cores.iter().any(|c| c.status.value().is_some_and(|s| s == "active"));
        let hosts = shown(now, pid);
        let degrees =
            |raw: &Raw<i64>, source| Figure::of(&raw.clone().map(|v| v as f64 / 1e3), "C", source);
        Frame {
            schema: SCHEMA,
            tool: "rocket-top",
            version: env!("CARGO_PKG_VERSION"),
            time_ms: now.wall_ms,
            interval_ms: passed.as_ref().ok().map(|ns| ns / 1_000_000),
            slept_ms: before.map_or(0, |b| rate::slept_ns(b, now) / 1_000_000),
            board: now.board.clone(),
            node: now.node.clone(),
            clock_at_boot: works && clock.value.is_some_and(|v| v <= BOOT_MHZ),
            cores,
            clock,
            temperature: degrees(&now.temperature_mc, "thermal zone npu-thermal"),
            trip: degrees(&now.trip_mc, "its first trip"),
            power: power(now),
            memory: figure(
                &now.memory_available,
                f64::from(1 << 20),
                "MiB",
                "/proc/meminfo MemAvailable",
            ),
            iova: iova(now),
            gops: gops(&processes),
            clients: now.clients.why().map(str::to_owned),
            routing: routing::lines(hosts.iter().copied()),
            events: events(hosts.iter().copied()),
            refused: now.refused.clone(),
            processes,
        }
    }

    /// Mean of the cores whose utilization is known.
    pub fn utilization(&self) -> Option<f64> {
        let known: Vec<f64> = self.cores.iter().filter_map(|c| c.utilization.value).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
    }
}

/// Whose table and events are shown: of those that live, and where none does of the one that ended last.
fn shown(now: &Sample, pid: Option<u32>) -> Vec<&crate::sample::Host> {
    let asked = |h: &&crate::sample::Host| pid.is_none_or(|pid| h.pid == pid);
    let living: Vec<_> =
        now.hosts.iter().filter(asked).filter(|h| h.alive != Some(false)).collect();
    match living.is_empty() {
        true => now.hosts.iter().filter(asked).max_by_key(|h| h.updated_ns).into_iter().collect(),
        false => living,
    }
}

fn core(
    before: Option<&Sample>,
    now: &Sample,
    c: &crate::sample::Core,
    passed: &Result<u64, String>,
) -> Core {
    let old =
        before.and_then(|b| b.cores.iter().find(|o| o.name == c.name)).cloned().unwrap_or_default();
    let utilization = rate::utilization(before, now, &c.name);
    let jobs = rate::delta(&old.jobs, &c.jobs, 64);
    let interrupts = match (&old.interrupts, &c.interrupts) {
        (Raw::Value(a), Raw::Value(b)) if a.len() == b.len() => {
            a.iter().zip(b).map(|(a, b)| rate::counted(*a, *b, 32)).sum()
        }
        (Raw::Value(_), Raw::Value(_)) => Err("a CPU came or went".into()),
        (_, Raw::Why(why)) => Err(why.clone()),
        (Raw::Why(_), _) => Err("its first sample".into()),
    };
    Core {
        name: c.name.clone(),
        estimate: utilization.source == crate::sample::TimeSource::Power.name(),
        utilization,
        jobs: rate::per_second(passed, jobs, 1.0, "1/s", "sysfs npu_jobs"),
        interrupts: rate::per_second(passed, interrupts, 1.0, "1/s", "/proc/interrupts"),
        status: c.status.clone(),
    }
}

/// The domain's own state, or what the cores' runtime power management lets know.
fn power(now: &Sample) -> Raw<String> {
    if now.domain.value().is_some() {
        return now.domain.clone();
    }
    let known: Vec<&String> = now.cores.iter().filter_map(|c| c.status.value()).collect();
    match known.is_empty() {
        true => Raw::Why(now.domain.why().unwrap_or("no core").to_owned()),
        false => {
            let active = known.iter().filter(|s| s.as_str() == "active").count();
            Raw::Value(format!("{active} of {} cores on", now.cores.len()))
        }
    }
}

fn iova(now: &Sample) -> Figure {
    let (unit, source) = ("MiB", "fdinfo resident memory");
    match &now.clients {
        Raw::Why(why) => Figure::unknown(unit, source, why),
        Raw::Value(clients) => match clients.iter().find_map(|c| c.resident.why()) {
            Some(why) => Figure::unknown(unit, source, why),
            None => {
                let sum: u64 = clients.iter().filter_map(|c| c.resident.value()).sum();
                Figure::known(sum as f64 / f64::from(1 << 20), unit, source)
            }
        },
    }
}

/// What is known of all living processes together.
fn gops(processes: &[Process]) -> Figure {
    let source = "plugin counters";
    let living: Vec<&Process> =
        processes.iter().filter(|p| p.counts && p.alive != Some(false)).collect();
    if living.is_empty() {
        return Figure::unknown("GOP/s", source, "no process with the plugin");
    }
    let known: Vec<f64> = living.iter().filter_map(|p| p.gops.value).collect();
    match known.is_empty() {
        true => Figure::unknown("GOP/s", source, living[0].gops.why.clone().unwrap_or_default()),
        false => Figure::known(known.iter().sum(), "GOP/s", source),
    }
}

fn events<'a>(hosts: impl Iterator<Item = &'a crate::sample::Host>) -> Vec<Event> {
    let mut all: Vec<Event> = hosts
        .flat_map(|h| {
            h.events.iter().map(|e| Event {
                time_ns: e.time_ns,
                pid: h.pid,
                code: e.code.clone(),
                text: e.text.clone(),
            })
        })
        .collect();
    all.sort_by(|a, b| b.time_ns.cmp(&a.time_ns).then_with(|| a.pid.cmp(&b.pid)));
    all.truncate(EVENTS);
    all
}
