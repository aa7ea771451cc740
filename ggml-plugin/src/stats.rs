//! What ran where and why not: counters for the summary line and the JSON report.

use crate::exec::{OpRecord, Reading, Redo};
use crate::route::{Dtype, Reason, Route};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ops kept for a report; a long run counts on but lists no more.
const MAX_OPS: usize = 100_000;

/// A declined product, as far as declined products are told apart.
type Declined = (Reason, Dtype, [i64; 2]);

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Stats {
    computed: Mutex<Computed>,
    declined: Mutex<HashMap<Declined, u64>>,
    /// Contexts may end at the same time: one report after the other, the newest last.
    writing: Mutex<()>,
    list_ops: bool,
}

#[derive(Debug, Default, Clone)]
struct Computed {
    routes: BTreeMap<&'static str, u64>,
    redos: BTreeMap<&'static str, u64>,
    ops: Vec<Op>,
    ops_dropped: u64,
    total: u64,
    printed: u64,
}

/// One executed op.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Op {
    /// Name of the result tensor.
    pub name: String,
    /// How it ran: a route's name, or `cpu`.
    pub route: &'static str,
    /// Why the CPU did it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub redo: Option<&'static str>,
    /// Rows.
    pub m: usize,
    /// Inner dimension.
    pub k: usize,
    /// Columns.
    pub n: usize,
    /// Products of that shape.
    pub slices: usize,
    /// `m * k * n * slices`, from the host's tensors.
    pub macs_expected: u64,
    /// What the engine says it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<OpRecord>,
}

#[derive(Serialize)]
struct DeclinedJson {
    reason: Reason,
    sentence: &'static str,
    weight_type: String,
    k: i64,
    n: i64,
    seen: u64,
}

#[derive(Serialize)]
struct Report<'a> {
    schema: u32,
    host: &'a str,
    device: &'a str,
    simulated: bool,
    routes: &'a BTreeMap<&'static str, u64>,
    redos: &'a BTreeMap<&'static str, u64>,
    reasons: Vec<DeclinedJson>,
    ops: &'a [Op],
    ops_dropped: u64,
    /// Totals of the board, by its own count.
    #[serde(skip_serializing_if = "Option::is_none")]
    board: Option<Reading>,
}

/// Who a report is about.
#[derive(Debug, Clone, Default)]
pub struct Subject {
    /// Version of the host's ggml.
    pub host: String,
    /// Description of the device.
    pub device: String,
    /// Nothing it says is about real silicon.
    pub simulated: bool,
    /// What the board counted, where it can tell.
    pub board: Option<Reading>,
}

fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    // Counters stay usable whatever happened to the thread that held them.
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stats {
    /// Empty counters; `list_ops` keeps every op for a report.
    pub fn new(list_ops: bool) -> Stats {
        Stats { list_ops, ..Stats::default() }
    }

    /// An op ran on the NPU, or, with a redo reason, on the CPU after all.
    pub fn computed(&self, name: &str, route: Route, done: Result<OpRecord, Redo>) {
        let Route::Fp16 { m, k, n, slices } = route else { return };
        let mut c = lock(&self.computed);
        c.total += 1;
        let ran = if done.is_ok() { route.name() } else { "cpu" };
        *c.routes.entry(ran).or_default() += 1;
        let redo = done.as_ref().err().map(|r| r.name());
        if let Some(redo) = redo {
            *c.redos.entry(redo).or_default() += 1;
        }
        if !self.list_ops {
            return;
        }
        if c.ops.len() >= MAX_OPS {
            c.ops_dropped += 1;
            return;
        }
        let macs_expected = route.macs();
        c.ops.push(Op {
            name: name.to_owned(),
            route: ran,
            redo,
            m,
            k,
            n,
            slices,
            macs_expected,
            engine: done.ok(),
        });
    }

    /// A node that was expected to be a no-op or a product was something else, and ran on the CPU.
    pub fn foreign(&self, redo: Redo) {
        let mut c = lock(&self.computed);
        c.total += 1;
        *c.routes.entry("cpu").or_default() += 1;
        *c.redos.entry(redo.name()).or_default() += 1;
    }

    /// A product of two rows or more was declined: decode is not worth a count.
    pub fn declined(&self, reason: Reason, dtype: Dtype, k: i64, n: i64) {
        *lock(&self.declined).entry((reason, dtype, [k, n])).or_default() += 1;
    }

    /// The summary, if anything was computed since the last one.
    pub fn summary(&self) -> Vec<String> {
        let counts = |map: &BTreeMap<&'static str, u64>| {
            map.iter().map(|(k, v)| format!("{k} {v}")).collect::<Vec<_>>().join(", ")
        };
        let mut lines = Vec::new();
        {
            let mut c = lock(&self.computed);
            if c.total == c.printed {
                return lines;
            }
            c.printed = c.total;
            lines.push(format!("{} ops computed: {}", c.total, counts(&c.routes)));
            if !c.redos.is_empty() {
                lines.push(format!("redone on the CPU: {}", counts(&c.redos)));
            }
        }
        let mut by_reason: BTreeMap<Reason, u64> = BTreeMap::new();
        for (reason, _, _) in lock(&self.declined).keys() {
            *by_reason.entry(*reason).or_default() += 1;
        }
        lines.extend(by_reason.iter().map(|(r, n)| {
            format!("declined for {n} weight shapes: {} ({})", r.name(), r.sentence())
        }));
        lines
    }

    /// The report, as JSON.
    ///
    /// # Errors
    /// Those of the serializer.
    pub fn report(&self, subject: &Subject) -> serde_json::Result<Vec<u8>> {
        let mut reasons: Vec<(Declined, u64)> =
            lock(&self.declined).iter().map(|(k, v)| (*k, *v)).collect();
        reasons.sort_unstable();
        let reasons = reasons
            .into_iter()
            .map(|((reason, dtype, [k, n]), seen)| DeclinedJson {
                reason,
                sentence: reason.sentence(),
                weight_type: dtype.name(),
                k,
                n,
                seen,
            })
            .collect();
        let c = lock(&self.computed);
        let report = Report {
            schema: 1,
            host: &subject.host,
            device: &subject.device,
            simulated: subject.simulated,
            routes: &c.routes,
            redos: &c.redos,
            reasons,
            ops: &c.ops,
            ops_dropped: c.ops_dropped,
            board: subject.board,
        };
        serde_json::to_vec_pretty(&report)
    }

    /// Writes the report to `path`, whole or not at all.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_report(&self, path: &Path, subject: &Subject) -> std::io::Result<()> {
        let _turn = lock(&self.writing);
        let json = self.report(subject)?;
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}", std::process::id()));
        std::fs::write(&temporary, json)?;
        std::fs::rename(&temporary, path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUTE: Route = Route::Fp16 { m: 128, k: 64, n: 96, slices: 1 };

    #[test]
    fn silent_until_something_is_computed() {
        let s = Stats::new(false);
        s.declined(Reason::WeightType, Dtype(12), 576, 576);
        s.computed("view", Route::Nothing, Ok(OpRecord::default()));
        assert!(s.summary().is_empty());
        s.computed("a", ROUTE, Ok(OpRecord::default()));
        s.computed("b", ROUTE, Err(Redo::EngineError));
        let lines = s.summary();
        assert_eq!(lines[0], "2 ops computed: cpu 1, fp16 1");
        assert_eq!(lines[1], "redone on the CPU: engine_error 1");
        assert!(lines[2].contains("weight_type"), "{lines:?}");
        assert!(s.summary().is_empty(), "once is enough");
    }

    #[test]
    fn report_lists_every_op_and_every_reason_once() {
        let s = Stats::new(true);
        for _ in 0..3 {
            s.declined(Reason::TooFewRows, Dtype::F16, 576, 1536);
        }
        let record = OpRecord { macs: 1_000_000, ..OpRecord::default() };
        s.computed("a", ROUTE, Ok(record));
        s.computed("b", ROUTE, Err(Redo::ResultOverflow));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        s.write_report(&path, &Subject::default()).unwrap();
        let v: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(v["ops"].as_array().unwrap().len(), 2);
        assert_eq!(v["ops"][0]["macs_expected"], 128 * 64 * 96);
        assert_eq!(v["ops"][0]["engine"]["macs"], 1_000_000);
        assert_eq!(v["ops"][1]["redo"], "result_overflow");
        assert_eq!(v["reasons"][0]["reason"], "too_few_rows");
        assert_eq!(v["reasons"][0]["seen"], 3);
        assert_eq!(v["routes"]["fp16"], 1);
        // No temporary file is left behind.
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert!(s.write_report(Path::new("/nonexistent/r.json"), &Subject::default()).is_err());
    }

    /// Contexts that end at once use the same temporary name.
    #[test]
    fn reports_written_at_once_are_whole() {
        let s = Stats::new(true);
        s.computed("a", ROUTE, Ok(OpRecord::default()));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("r.json");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        s.write_report(&path, &Subject::default()).unwrap();
                    }
                });
            }
        });
        let v: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        assert_eq!(v["routes"]["fp16"], 1);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_list_without_a_report() {
        let s = Stats::new(false);
        s.computed("a", ROUTE, Ok(OpRecord::default()));
        assert!(lock(&s.computed).ops.is_empty());
    }
}
