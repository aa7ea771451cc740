//! What ran where, over all hosts: op, type, shape, class of rows and outcome.

use crate::sample::Host;
use ggml_rocket::exec::redo::Redo;
use ggml_rocket::route::Reason;
use serde::Serialize;
use std::collections::BTreeMap;

/// How a reason is to be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// It ran on the NPU.
    Good,
    /// As it should be: decode, few rows, what no NPU does.
    Normal,
    /// Somebody can mend it.
    Mistake,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// Kind of op.
    pub op: String,
    /// Type of the weight.
    pub weight: String,
    /// Inner dimension.
    pub k: u64,
    /// Columns.
    pub n: u64,
    /// Least and most rows.
    pub rows: [u32; 2],
    /// `npu`, `redone`, `declined`.
    pub place: String,
    /// Route or reason.
    pub outcome: String,
    /// How that is to be taken.
    pub taken: Weight,
    /// The doctor's check that mends it.
    pub doctor: Option<&'static str>,
    /// The reason in words.
    pub sentence: Option<&'static str>,
    /// Times: of what was declined, times that the host asked.
    pub calls: u64,
    /// Operations: two a multiply-accumulate.
    pub flops: f64,
    /// Per cent of all lines' operations of the same kind: run, or asked about.
    pub share: f64,
}

/// A class of rows is a line of its own: few rows and many are different matters.
type Key = (String, String, u64, u64, [u32; 2], String, String);

/// Lines over all hosts, the most work first.
pub fn lines<'a>(hosts: impl Iterator<Item = &'a Host>) -> Vec<Line> {
    let mut all: BTreeMap<Key, (u64, u64)> = BTreeMap::new();
    for row in hosts.flat_map(|h| &h.rows) {
        let key = (
            row.op.clone(),
            row.weight.clone(),
            row.k,
            row.n,
            row.rows,
            row.place.clone(),
            row.outcome.clone(),
        );
        let (calls, macs) = all.entry(key).or_default();
        *calls = calls.saturating_add(row.calls);
        *macs = macs.saturating_add(row.macs);
    }
    let is_run = |place: &str| matches!(place, "npu" | "redone");
    let mut sums = [0.0f64; 2];
    for ((.., place, _), (_, macs)) in &all {
        sums[usize::from(is_run(place))] += *macs as f64;
    }
    let mut lines: Vec<Line> = all
        .into_iter()
        .map(|((op, weight, k, n, rows, place, outcome), (calls, macs))| {
            let reason = Reason::named(&outcome).filter(|_| place != "npu");
            let mends = match place.as_str() {
                // Whatever else it was, the kernel may have said something.
                "redone" => Redo::named(&outcome).and_then(Redo::mends).or(Some("kernel.log")),
                _ => reason.and_then(Reason::mends),
            };
            let sum = sums[usize::from(is_run(&place))];
            Line {
                taken: match (place.as_str(), mends) {
                    ("npu", _) => Weight::Good,
                    (_, Some(_)) => Weight::Mistake,
                    _ => Weight::Normal,
                },
                doctor: mends,
                sentence: reason.map(Reason::sentence),
                share: if sum > 0.0 { macs as f64 / sum * 100.0 } else { 0.0 },
                flops: macs as f64 * 2.0,
                op,
                weight,
                k,
                n,
                rows,
                place,
                outcome,
                calls,
            }
        })
        .collect();
    let order = |l: &Line| (l.place == "declined", std::cmp::Reverse(l.flops as u128));
    lines.sort_by_key(order);
    lines
}
