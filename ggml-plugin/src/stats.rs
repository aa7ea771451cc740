//! What ran where and why not: counters for the summary line and the JSON report.

use crate::exec::{OpRecord, Reading, Redo};
use crate::live::{Live, Seen};
use crate::route::{Reason, Route};
use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Ops kept for a report; a long run counts on but lists no more.
const MAX_OPS: usize = 100_000;

/// A declined op, as far as declined ops are told apart.
type Declined = (Reason, crate::route::Label);

/// What stands among the routes for ops that the CPU computed after all.
const CPU: &str = "cpu";

/// Counters of one process.
#[derive(Debug, Default)]
pub struct Stats {
    computed: Mutex<Computed>,
    declined: Mutex<HashMap<Declined, u64>>,
    /// Contexts may end at the same time: one report after the other, the newest last.
    writing: Mutex<()>,
    list_ops: bool,
    /// What tools see of it while the host runs.
    pub live: Live,
}

#[derive(Debug, Default, Clone)]
struct Computed {
    routes: BTreeMap<&'static str, u64>,
    redos: BTreeMap<&'static str, u64>,
    ops: Vec<Op>,
    ops_dropped: u64,
    graphs: u64,
    total: u64,
    printed: u64,
    /// Of all that the NPU did.
    sum: OpRecord,
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
    /// Elements of a row of V, of an attention: its second products are `m * n * v`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub v: Option<usize>,
    /// `m * k * n * slices`, of an attention `m * (k + v) * n * slices`, from the host's tensors.
    pub macs_expected: u64,
    /// What the engine says it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub engine: Option<OpRecord>,
}

#[derive(Serialize)]
struct DeclinedJson {
    op: &'static str,
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
    /// Parts of graphs that the host gave this plugin.
    graphs: u64,
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
    pub fn new(list_ops: bool, live: Live) -> Stats {
        Stats { list_ops, live, ..Stats::default() }
    }

    /// An op ran on the NPU, or, with a redo reason, on the CPU after all, in so many nanoseconds.
    pub fn computed(
        &self,
        name: &str,
        seen: &Seen,
        route: Route,
        done: Result<OpRecord, Redo>,
        ns: u64,
    ) {
        let Some([m, k, n, slices]) = route.products() else { return };
        self.live.computed(seen, route, done.as_ref().map_err(|&redo| redo), ns);
        let mut c = lock(&self.computed);
        c.total += 1;
        if let Ok(record) = &done {
            c.sum.add(record);
        }
        let ran = if done.is_ok() { route.name() } else { CPU };
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
        let v = match route {
            Route::Attention(s) => Some(s.value),
            _ => None,
        };
        c.ops.push(Op {
            name: name.to_owned(),
            route: ran,
            redo,
            m,
            k,
            n,
            slices,
            v,
            macs_expected,
            engine: done.ok(),
        });
    }

    /// The host gave a part of a graph to compute.
    pub fn graph(&self) {
        lock(&self.computed).graphs += 1;
    }

    /// A node that was expected to be a no-op or a product was something else, and ran on the CPU.
    pub fn foreign(&self, redo: Redo) {
        self.live.foreign(redo);
        let mut c = lock(&self.computed);
        c.total += 1;
        *c.routes.entry(CPU).or_default() += 1;
        *c.redos.entry(redo.name()).or_default() += 1;
    }

    /// The host asked for an op and was told where it goes.
    pub fn asked(&self, seen: &Seen, declined: Option<Reason>) {
        self.live.asked(seen, declined);
        // A single row is decode, which nobody expects here.
        if let (Some(reason), Some(label), 2..) = (declined, seen.label, seen.rows) {
            *lock(&self.declined).entry((reason, label)).or_default() += 1;
        }
    }

    /// Ops that ran on the NPU by a route of this name, or by any.
    pub fn on_npu(&self, route: Option<&str>) -> u64 {
        let c = lock(&self.computed);
        let counted = c.routes.iter().filter(|(name, _)| match route {
            Some(asked) => **name == asked && asked != CPU,
            None => **name != CPU,
        });
        counted.map(|(_, n)| n).sum()
    }

    /// Accepted ops that the CPU computed after all.
    pub fn cpu_fallbacks(&self) -> u64 {
        lock(&self.computed).routes.get(CPU).copied().unwrap_or(0)
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
            lines.extend(work(&c.sum));
        }
        let mut by_reason: BTreeMap<Reason, u64> = BTreeMap::new();
        for (reason, _) in lock(&self.declined).keys() {
            *by_reason.entry(*reason).or_default() += 1;
        }
        lines.extend(
            by_reason
                .iter()
                .map(|(r, n)| format!("declined for {n} shapes: {} ({})", r.name(), r.sentence())),
        );
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
            .map(|((reason, label), seen)| DeclinedJson {
                op: label.op,
                reason,
                sentence: reason.sentence(),
                weight_type: label.dtype.name(),
                k: label.shape[0],
                n: label.shape[1],
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
            graphs: c.graphs,
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

/// What the NPU's ops did and what their time went into.
fn work(sum: &OpRecord) -> [String; 2] {
    let seconds = |ns: u64| ns as f64 / 1e9;
    let mb = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let t = &sum.times;
    let moved = sum.board.map_or(String::new(), |b| format!(", {:.1} MB moved", mb(b.dma_bytes)));
    [
        format!(
            "time, summed over threads: pack {:.3} s, convert {:.3} s, NPU {:.3} s, results {:.3} s",
            seconds(t.pack_ns),
            seconds(t.convert_ns),
            seconds(t.npu_ns),
            seconds(t.results_ns)
        ),
        format!(
            "work: {:.3} GMAC ({:.1} % padding) in {} jobs, {:.1} MB of weights packed{moved}",
            sum.macs as f64 / 1e9,
            100.0 * sum.padding_macs as f64 / sum.macs.max(1) as f64,
            sum.jobs,
            mb(sum.packed_bytes)
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Times;
    use crate::route::{Dtype, Label, Numerics};

    fn seen(dtype: Dtype) -> Seen {
        let label = Label { op: "MUL_MAT", dtype, shape: [576, 1536] };
        Seen { label: Some(label), rows: 128, macs: 1 }
    }

    fn stats(list_ops: bool) -> Stats {
        Stats::new(list_ops, Live::default())
    }

    fn ran(s: &Stats, name: &str, route: Route, done: Result<OpRecord, Redo>) {
        s.computed(name, &seen(Dtype::F16), route, done, 5);
    }

    const ROUTE: Route =
        Route::Product { numerics: Numerics::Fp16, m: 128, k: 64, n: 96, slices: 1 };

    #[test]
    fn silent_until_something_is_computed() {
        let s = stats(false);
        s.asked(&seen(Dtype(12)), Some(Reason::WeightType));
        ran(&s, "view", Route::Nothing, Ok(OpRecord::default()));
        assert!(s.summary().is_empty());
        ran(&s, "a", ROUTE, Ok(OpRecord::default()));
        ran(&s, "b", ROUTE, Err(Redo::EngineError));
        let lines = s.summary();
        assert_eq!(lines[0], "2 ops computed: cpu 1, fp16 1");
        assert_eq!(lines[1], "redone on the CPU: engine_error 1");
        assert!(lines[4].contains("weight_type"), "{lines:?}");
        assert!(s.summary().is_empty(), "once is enough");
    }

    #[test]
    fn report_lists_every_op_and_every_reason_once() {
        let s = stats(true);
        for _ in 0..3 {
            s.asked(&seen(Dtype::F16), Some(Reason::TooFewRows));
        }
        let record = OpRecord { macs: 1_000_000, ..OpRecord::default() };
        ran(&s, "a", ROUTE, Ok(record));
        ran(&s, "b", ROUTE, Err(Redo::ResultOverflow));
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

    /// Decode is no entry of a report, and an op that goes to the NPU is none either.
    #[test]
    fn declined_ops_of_a_single_row_are_not_listed() {
        let s = stats(false);
        s.asked(&Seen { rows: 1, ..seen(Dtype::F16) }, Some(Reason::TooFewRows));
        s.asked(&Seen { label: None, ..seen(Dtype::F16) }, Some(Reason::OpNotSupported));
        s.asked(&seen(Dtype::F16), None);
        assert!(lock(&s.declined).is_empty());
        s.asked(&Seen { rows: 2, ..seen(Dtype::F16) }, Some(Reason::TooFewRows));
        assert_eq!(lock(&s.declined).len(), 1);
    }

    /// Sums over the ops that the NPU did, and over nothing else.
    #[test]
    fn the_summary_says_what_time_and_bytes_went_where() {
        let s = stats(false);
        let times = Times {
            pack_ns: 250_000_000,
            convert_ns: 1_000_000,
            npu_ns: 2_000_000_000,
            results_ns: 500_000,
        };
        let record = OpRecord {
            macs: 2_000_000_000,
            padding_macs: 500_000_000,
            jobs: 3,
            packed_bytes: 3 << 19,
            times,
            board: Some(Reading { dma_bytes: 5 << 20, ..Reading::default() }),
            ..OpRecord::default()
        };
        ran(&s, "a", ROUTE, Ok(record.clone()));
        ran(&s, "b", ROUTE, Ok(record));
        ran(&s, "c", ROUTE, Err(Redo::EngineError));
        let lines = s.summary();
        let expected = "pack 0.500 s, convert 0.002 s, NPU 4.000 s, results 0.001 s";
        assert_eq!(lines[2], format!("time, summed over threads: {expected}"));
        let expected =
            "work: 4.000 GMAC (25.0 % padding) in 6 jobs, 3.0 MB of weights packed, 10.0 MB moved";
        assert_eq!(lines[3], expected);
        assert_eq!((s.on_npu(None), s.on_npu(Some("fp16")), s.cpu_fallbacks()), (2, 2, 1));
        assert_eq!((s.on_npu(Some("cpu")), s.on_npu(Some("int8"))), (0, 0));
    }

    /// Contexts that end at once use the same temporary name.
    #[test]
    fn reports_written_at_once_are_whole() {
        let s = stats(true);
        ran(&s, "a", ROUTE, Ok(OpRecord::default()));
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
        let s = stats(false);
        ran(&s, "a", ROUTE, Ok(OpRecord::default()));
        assert!(lock(&s.computed).ops.is_empty());
    }
}
