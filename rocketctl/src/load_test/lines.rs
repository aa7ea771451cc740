//! The lines of `rocket-load-test`.

use serde::Deserialize;

/// One line of the program.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Line {
    pub(super) step: String,
    pub(super) status: String,
    pub(super) why: Option<String>,
    pub(super) version: Option<String>,
    pub(super) registered: Option<Vec<String>>,
    pub(super) extra: Option<Vec<String>>,
    pub(super) numbers: Option<String>,
    pub(super) host_api: Option<i32>,
    pub(super) generation: Option<Generation>,
    pub(super) supported: Option<Vec<String>>,
    pub(super) score: Option<i64>,
    pub(super) api: Option<i32>,
    pub(super) name: Option<String>,
    pub(super) devices: Option<Vec<Device>>,
    /// A line of the host's log.
    pub(super) log: Option<String>,
    pub(super) level: i64,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Generation {
    pub(super) name: String,
    pub(super) era: String,
    pub(super) api: i32,
}

#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(default)]
pub(super) struct Device {
    pub(super) name: String,
    pub(super) description: String,
    pub(super) accelerator: Option<bool>,
}

/// The lines of its output that are such; what else is there is passed over.
pub fn lines(bytes: &[u8]) -> Vec<Line> {
    const MOST: usize = 10_000;
    let all = bytes.split(|b| *b == b'\n').take(MOST);
    all.filter_map(|l| serde_json::from_slice(l).ok()).collect()
}
