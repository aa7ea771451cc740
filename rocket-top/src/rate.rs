//! From two samples to figures: a pure function, so that wrapped counters, clocks set back, missing samples, suspended
//! machines and vanished files are lines of a table in its tests.
//!
//! A figure is never negative, a share never above 100 %, and what is unknown is never 0.

use crate::sample::{Core, Raw, Sample, TimeSource};
use serde::Serialize;

/// A number that is shown, or why there is none.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Figure {
    /// It.
    pub value: Option<f64>,
    /// Its unit.
    pub unit: &'static str,
    /// Where it comes from.
    pub source: String,
    /// Why there is none.
    pub why: Option<String>,
    /// How old what it was made of is.
    pub age_ms: u64,
}

impl Figure {
    /// A known one.
    pub fn known(value: f64, unit: &'static str, source: impl Into<String>) -> Figure {
        Figure { value: Some(value), unit, source: source.into(), why: None, age_ms: 0 }
    }

    /// An unknown one.
    pub fn unknown(
        unit: &'static str,
        source: impl Into<String>,
        why: impl Into<String>,
    ) -> Figure {
        Figure { value: None, unit, source: source.into(), why: Some(why.into()), age_ms: 0 }
    }

    /// A reading as it is.
    pub fn of(raw: &Raw<f64>, unit: &'static str, source: &str) -> Figure {
        match raw {
            Raw::Value(v) => Figure::known(*v, unit, source),
            Raw::Why(why) => Figure::unknown(unit, source, why),
        }
    }
}

/// Longest and shortest time between samples that rates are made of.
const SHORTEST_NS: u64 = 1_000_000;
/// Busy time may be read a little after the clock.
const SLACK: f64 = 1.25;

/// Time that passed between two samples, or why no rate can be made of them.
pub fn passed(before: Option<&Sample>, now: &Sample) -> Result<u64, String> {
    let Some(before) = before else { return Err("the first sample".into()) };
    if before.boot != now.boot {
        return Err("the machine was started anew".into());
    }
    match now.boottime_ns.checked_sub(before.boottime_ns) {
        None => Err("the samples are not in order".into()),
        Some(ns) if ns < SHORTEST_NS => Err("no time has passed".into()),
        Some(ns) => Ok(ns),
    }
}

/// Whether the machine slept between two samples: rates then are over the time with its sleep.
pub fn slept_ns(before: &Sample, now: &Sample) -> u64 {
    let whole = now.boottime_ns.saturating_sub(before.boottime_ns);
    whole.saturating_sub(now.monotonic_ns.saturating_sub(before.monotonic_ns))
}

/// What a counter of so many bits went on by. One that fell began anew, unless it stood near its top: then it wrapped.
pub fn counted(before: u64, now: u64, bits: u32) -> Result<u64, String> {
    let top = u64::MAX >> (64 - bits.clamp(1, 64));
    match now.checked_sub(before) {
        Some(delta) => Ok(delta),
        None if before > top / 4 * 3 && now < top / 4 && before <= top => {
            Ok(top - before + now + 1)
        }
        None => Err("its counter began anew".into()),
    }
}

/// A reading in both samples.
pub fn delta(before: &Raw<u64>, now: &Raw<u64>, bits: u32) -> Result<u64, String> {
    match (before, now) {
        (_, Raw::Why(why)) => Err(why.clone()),
        (Raw::Why(_), Raw::Value(_)) => Err("its first sample".into()),
        (Raw::Value(a), Raw::Value(b)) => counted(*a, *b, bits),
    }
}

/// A share of the time that passed, in per cent.
pub fn share(delta_ns: u64, passed_ns: u64) -> Result<f64, String> {
    let share = delta_ns as f64 / passed_ns as f64;
    match share {
        s if s > SLACK => Err("more time than passed".into()),
        s => Ok(s.min(1.0) * 100.0),
    }
}

/// The core of that name.
fn core<'a>(sample: &'a Sample, name: &str) -> Option<&'a Core> {
    sample.cores.iter().find(|c| c.name == name)
}

/// How busy a core was, by the best source that both samples have.
pub fn utilization(before: Option<&Sample>, now: &Sample, name: &str) -> Figure {
    let unit = "%";
    let Some(last) = core(now, name) else {
        return Figure::unknown(unit, "", "the core is gone");
    };
    let ns = match passed(before, now) {
        Ok(ns) => ns,
        Err(why) => return Figure::unknown(unit, best(last).map_or("", TimeSource::name), why),
    };
    let first = before.and_then(|b| core(b, name));
    let mut whys = Vec::new();
    for (source, time) in &last.time {
        let old = first.and_then(|c| c.time.get(source)).cloned().unwrap_or_default();
        match delta(&old, time, 64).and_then(|d| share(d, ns)) {
            Ok(percent) => return Figure::known(percent, unit, source.name()),
            Err(why) => whys.push(format!("{}: {why}", source.name())),
        }
    }
    match whys.is_empty() {
        true => Figure::unknown(unit, "", "nothing here tells"),
        // The best source's reason is the one to mend.
        false => Figure::unknown(unit, "", whys.remove(0)),
    }
}

fn best(core: &Core) -> Option<TimeSource> {
    core.time.iter().find(|(_, t)| t.value().is_some()).map(|(s, _)| *s)
}

/// Events a second.
pub fn per_second(
    passed: &Result<u64, String>,
    change: Result<u64, String>,
    scale: f64,
    unit: &'static str,
    source: &str,
) -> Figure {
    match (passed, change) {
        (Err(why), _) => Figure::unknown(unit, source, why.clone()),
        (_, Err(why)) => Figure::unknown(unit, source, why),
        (Ok(ns), Ok(n)) => Figure::known(n as f64 * scale / (*ns as f64 / 1e9), unit, source),
    }
}

#[cfg(test)]
mod tests;
