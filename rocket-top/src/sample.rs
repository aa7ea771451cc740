//! One moment as it was read: raw counters and states, each a value or the reason why there is none. What is shown
//! comes from two of these ([`crate::rate`]), so that a recording holds all there was to see.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A value, or why there is none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Raw<T> {
    /// It was read.
    Value(T),
    /// It was not, and why.
    Why(String),
}

impl<T> Raw<T> {
    /// The value.
    pub fn value(&self) -> Option<&T> {
        match self {
            Raw::Value(v) => Some(v),
            Raw::Why(_) => None,
        }
    }

    /// The reason.
    pub fn why(&self) -> Option<&str> {
        match self {
            Raw::Value(_) => None,
            Raw::Why(why) => Some(why),
        }
    }

    /// Another value for the same reading.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Raw<U> {
        match self {
            Raw::Value(v) => Raw::Value(f(v)),
            Raw::Why(why) => Raw::Why(why),
        }
    }
}

impl<T, E: ToString> From<Result<T, E>> for Raw<T> {
    fn from(result: Result<T, E>) -> Raw<T> {
        match result {
            Ok(v) => Raw::Value(v),
            Err(e) => Raw::Why(e.to_string()),
        }
    }
}

impl<T> Default for Raw<T> {
    /// Of a recording by an older version, which had no such reading.
    fn default() -> Raw<T> {
        Raw::Why("not read".into())
    }
}

/// Where a core's time comes from, the best first (kernel-and-uapi D.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeSource {
    /// `npu_busy_ns` of the core, which our kernel series adds.
    Sysfs,
    /// `drm-engine-npu*` of every file that holds the node, summed.
    Fdinfo,
    /// `gpu_scheduler` events of the kernel's tracing.
    Trace,
    /// `runtime_active_time`: the core had power, which is longer than it was busy.
    Power,
}

impl TimeSource {
    /// As it stands beside a figure.
    pub fn name(self) -> &'static str {
        match self {
            TimeSource::Sysfs => "sysfs npu_busy_ns",
            TimeSource::Fdinfo => "fdinfo usage stats",
            TimeSource::Trace => "gpu_scheduler trace",
            TimeSource::Power => "runtime PM: powered, not busy",
        }
    }

    /// Whether it bounds the busy time from above only.
    pub fn is_estimate(self) -> bool {
        self == TimeSource::Power
    }
}

/// What does not change while a board runs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Board {
    /// Its name.
    pub model: Raw<String>,
    /// First `rockchip,rk…` entry of its device tree.
    pub soc: Raw<String>,
    /// Release.
    pub kernel: Raw<String>,
    /// The driver's interface, as `1.7`.
    pub interface: Raw<String>,
    /// `rocket`, `vendor`, or why neither.
    pub family: Raw<String>,
}

/// One core.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Core {
    /// As `fdab0000.npu`.
    pub name: String,
    /// ns, or what stands for it, by source.
    pub time: BTreeMap<TimeSource, Raw<u64>>,
    /// Jobs that ended on it.
    pub jobs: Raw<u64>,
    /// Jobs that hung.
    pub timeouts: Raw<u64>,
    /// MMU faults.
    pub faults: Raw<u64>,
    /// Interrupts, a 32-bit counter for each CPU.
    pub interrupts: Raw<Vec<u64>>,
    /// `active`, `suspended`, …
    pub status: Raw<String>,
}

/// A process that holds the node, by /proc.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Client {
    /// As this tool's PID namespace has it.
    pub pid: u32,
    /// /proc/PID/comm.
    pub name: Raw<String>,
    /// Bytes of its buffers, by fdinfo.
    pub resident: Raw<u64>,
}

/// A process's own counters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Host {
    /// Random: tells it from every other, whatever its PID.
    pub id: String,
    /// As it sees itself.
    pub pid: u32,
    /// Whether the lock on its file is held; none where that cannot be asked.
    pub alive: Option<bool>,
    /// ns of CLOCK_BOOTTIME at which its copy was written.
    pub updated_ns: u64,
    /// Statements: program, models, driver, …
    pub facts: BTreeMap<String, String>,
    /// Totals by name (docs/counters.md).
    pub totals: BTreeMap<String, u64>,
    /// Routing table.
    pub rows: Vec<Row>,
    /// What happened.
    pub events: Vec<Event>,
}

/// One row of a host's routing table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// `npu`, `redone`, `declined`.
    pub place: String,
    /// Kind of op.
    pub op: String,
    /// Type of the weight.
    pub weight: String,
    /// Route or reason.
    pub outcome: String,
    /// Inner dimension.
    pub k: u64,
    /// Columns.
    pub n: u64,
    /// Least and most rows.
    pub rows: [u32; 2],
    /// Times.
    pub calls: u64,
    /// Multiply-accumulates.
    pub macs: u64,
    /// ns.
    pub ns: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// In its host's count.
    pub number: u64,
    /// ns of CLOCK_BOOTTIME.
    pub time_ns: u64,
    /// Stable.
    pub code: String,
    /// For people.
    pub text: String,
}

/// One moment.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Sample {
    /// Of the kernel's run: figures of two runs have nothing to do with each other.
    pub boot: String,
    /// ns of CLOCK_BOOTTIME, which also passes while the machine sleeps.
    pub boottime_ns: u64,
    /// ns of CLOCK_MONOTONIC, which does not.
    pub monotonic_ns: u64,
    /// ms since 1970; may be set back by anybody.
    pub wall_ms: u64,
    /// What it is.
    pub board: Board,
    /// Cores.
    pub cores: Vec<Core>,
    /// Hz of the shared clock.
    pub clock_hz: Raw<u64>,
    /// Thousandths of a degree.
    pub temperature_mc: Raw<i64>,
    /// Critical trip.
    pub trip_mc: Raw<i64>,
    /// State of the power domain `npu`.
    pub domain: Raw<String>,
    /// Bytes.
    pub memory_available: Raw<u64>,
    /// Bytes.
    pub memory_total: Raw<u64>,
    /// Who holds the node.
    pub clients: Raw<Vec<Client>>,
    /// Who counts.
    pub hosts: Vec<Host>,
    /// Files of counters that are not shown: path and reason.
    pub refused: Vec<(String, String)>,
    /// The node, as `accel0`, or why there is none.
    pub node: Raw<String>,
}
