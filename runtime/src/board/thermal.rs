//! Thermal zones and their trips (kernel-and-uapi D.5).

use super::{Absent, Reading, Root, Why};

/// A zone.
#[derive(Debug, Clone)]
pub struct Zone {
    /// Its folder, from the root on.
    pub path: String,
    /// Its type: numbers differ from boot to boot.
    pub kind: String,
    /// Thousandths of a degree.
    pub temperature: Reading<i64>,
    /// Where something happens, coolest first.
    pub trips: Vec<Trip>,
}

/// A temperature at which something happens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// `passive`, `active`, `hot`, `critical`.
    pub kind: String,
    /// Thousandths of a degree.
    pub at: i64,
}

const FOLDER: &str = "sys/class/thermal";

/// Every zone that says what it is of.
pub fn read(root: &Root) -> Reading<Vec<Zone>> {
    let zone = |name: String| {
        let path = format!("{FOLDER}/{name}");
        let kind = root.text(&format!("{path}/type")).ok()?;
        let temperature = root.number(&format!("{path}/temp"));
        Some(Zone { trips: trips(root, &path), path: format!("/{path}"), kind, temperature })
    };
    let names = root.names(FOLDER)?.into_iter().filter(|n| n.starts_with("thermal_zone"));
    Ok(names.filter_map(zone).collect())
}

/// The NPU's temperature in thousandths of a degree.
pub fn npu(zones: &Reading<Vec<Zone>>) -> Reading<i64> {
    let zones = zones.as_ref().map_err(Clone::clone)?;
    let ours = zones.iter().find(|z| z.kind == "npu-thermal");
    let none = || Absent {
        path: format!("/{FOLDER}"),
        why: Why::Malformed("no zone of type npu-thermal".into()),
    };
    ours.ok_or_else(none)?.temperature.clone()
}

fn trips(root: &Root, zone: &str) -> Vec<Trip> {
    let trip = |i: usize| {
        let at = root.number(&format!("{zone}/trip_point_{i}_temp")).ok()?;
        Some(Trip { kind: root.text(&format!("{zone}/trip_point_{i}_type")).ok()?, at })
    };
    let mut trips: Vec<Trip> = (0..16).map_while(trip).collect();
    trips.sort_by_key(|t| t.at);
    trips
}
