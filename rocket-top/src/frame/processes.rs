//! Processes: those that count (the plugin), and those that hold the node by /proc, joined by PID.

use crate::rate::{self, Figure};
use crate::sample::{Host, Raw, Sample};
use serde::Serialize;
use std::collections::BTreeMap;

/// A copy is stale when its process had so much time to write another.
const STALE_NS: u64 = 5_000_000_000;
/// Time after which a process that ended is no longer shown.
const GONE_NS: u64 = 2_000_000_000;

/// One process.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Process {
    /// As it sees itself.
    pub pid: u32,
    /// Its name.
    pub name: Raw<String>,
    /// File names of models on its command line.
    pub models: Option<String>,
    /// Whether it has counters.
    pub counts: bool,
    /// Whether it lives; none where that cannot be told.
    pub alive: Option<bool>,
    /// Nothing new for a while: it does nothing, or hangs.
    pub stale: bool,
    /// Its NPU is simulated.
    pub simulated: bool,
    /// MiB of packed weights that stay.
    pub resident: Figure,
    /// Operations a second on the NPU.
    pub gops: Figure,
    /// SUBMIT calls a second.
    pub submits: Figure,
    /// Per cent of the work's time by kind: pack, convert, npu, results.
    pub split: BTreeMap<&'static str, Figure>,
    /// Tokens a second while it reads a prompt.
    pub prefill: Figure,
}

/// The times whose shares are shown, by their totals' names.
const TIMES: [(&str, &str); 4] = [
    ("pack", "time.pack"),
    ("convert", "time.convert"),
    ("npu", "time.npu"),
    ("results", "time.results"),
];
const SOURCE: &str = "plugin counters";

/// All that are shown: those that ended for a moment longer, so that their end is seen.
pub fn all(before: Option<&Sample>, now: &Sample, passed: &Result<u64, String>) -> Vec<Process> {
    let mut found: Vec<Process> = now
        .hosts
        .iter()
        .filter(|h| {
            h.alive != Some(false) || now.boottime_ns.saturating_sub(h.updated_ns) < GONE_NS
        })
        .map(|h| {
            counting(before.and_then(|b| b.hosts.iter().find(|o| o.id == h.id)), h, now, passed)
        })
        .collect();
    for client in now.clients.value().into_iter().flatten() {
        if !found.iter().any(|p| p.pid == client.pid && p.alive != Some(false)) {
            found.push(holding(client.pid, client.name.clone()));
        }
    }
    found.sort_by_key(|p| (p.alive == Some(false), p.pid));
    found
}

fn counting(old: Option<&Host>, h: &Host, now: &Sample, passed: &Result<u64, String>) -> Process {
    let total = |h: &Host, name: &str| match h.totals.get(name) {
        Some(v) => Raw::Value(*v),
        None => Raw::Why("its plugin does not count it".to_owned()),
    };
    let change = |name: &str| match old {
        Some(old) => rate::delta(&total(old, name), &total(h, name), 64),
        None => Err("its first sample".into()),
    };
    let age = now.boottime_ns.saturating_sub(h.updated_ns);
    // Ended: its last figures stand still, which is not 0 of a process that works.
    let over: Result<u64, String> = match h.alive {
        Some(false) => Err("it has ended".into()),
        _ => passed.clone(),
    };
    let per = |name: &str, scale: f64, unit| {
        let mut f = rate::per_second(&over, change(name), scale, unit, SOURCE);
        f.age_ms = age / 1_000_000;
        f
    };
    let macs = |h: &Host| {
        h.rows.iter().filter(|r| r.place == "npu").fold(0u64, |s, r| s.saturating_add(r.macs))
    };
    let work = match old {
        Some(old) => rate::counted(macs(old), macs(h), 64),
        None => Err("its first sample".into()),
    };
    let resident = total(h, "bytes.resident").map(|b| b as f64 / f64::from(1 << 20));
    Process {
        pid: h.pid,
        name: match h.facts.get("program") {
            Some(program) => Raw::Value(program.rsplit('/').next().unwrap_or(program).to_owned()),
            None => Raw::Why("it does not say".into()),
        },
        models: h.facts.get("models").filter(|m| !m.is_empty()).cloned(),
        counts: true,
        alive: h.alive,
        stale: h.alive != Some(false) && age > STALE_NS,
        simulated: h.facts.get("simulated").is_some_and(|s| s == "1"),
        resident: Figure::of(&resident, "MiB", SOURCE),
        // Two operations a multiply-accumulate.
        gops: rate::per_second(&over, work, 2e-9, "GOP/s", SOURCE),
        submits: per("npu.submits", 1.0, "1/s"),
        split: split(&over, TIMES.map(|(name, total)| (name, change(total)))),
        prefill: Figure::unknown(
            "t/s",
            SOURCE,
            "counters have rows of products, not the prompt's tokens",
        ),
    }
}

/// Shares of the times of one interval. They are summed over threads, so only their ratio says something.
fn split(
    over: &Result<u64, String>,
    times: [(&'static str, Result<u64, String>); 4],
) -> BTreeMap<&'static str, Figure> {
    let sum: Result<u64, String> = times.iter().map(|(_, t)| t.clone()).sum();
    let share = |t: &Result<u64, String>| match (over, &sum, t) {
        (Err(why), ..) | (_, Err(why), _) => Err(why.clone()),
        (_, Ok(0), _) => Err("it did nothing".to_owned()),
        (_, Ok(sum), Ok(t)) => Ok(*t as f64 / *sum as f64 * 100.0),
        (_, _, Err(why)) => Err(why.clone()),
    };
    times
        .iter()
        .map(|(name, t)| match share(t) {
            Ok(v) => (*name, Figure::known(v, "%", SOURCE)),
            Err(why) => (*name, Figure::unknown("%", SOURCE, why)),
        })
        .collect()
}

fn holding(pid: u32, name: Raw<String>) -> Process {
    let no = |unit| {
        Figure::unknown(unit, SOURCE, "it has no counters: another program, or ROCKET_COUNTERS=0")
    };
    Process {
        pid,
        name,
        models: None,
        counts: false,
        alive: Some(true),
        stale: false,
        simulated: false,
        resident: no("MiB"),
        gops: no("GOP/s"),
        submits: no("1/s"),
        split: BTreeMap::new(),
        prefill: no("t/s"),
    }
}
