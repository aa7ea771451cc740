//! A forecast: the graph of a model, decided about by the plugin's own rules.

use super::graph::{self, Cut, Graph, Node};
use super::repack::Cpu;
use super::resident::{self, Plan};
use crate::model::Header;
use clap::ValueEnum;
use ggml_rocket::exec::crossover::Thresholds;
use ggml_rocket::knobs::Knobs;
use ggml_rocket::live::Seen;
use ggml_rocket::route::{OpFacts, Policy, Reason, Route, Wanted, decide};
use rocket_runtime::board::Memory;
use serde::Serialize;
use std::collections::BTreeMap;

/// The part that is forecast for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Soc {
    Rk3588,
    Rk3576,
}

impl Soc {
    pub fn name(self) -> &'static str {
        match self {
            Soc::Rk3588 => "RK3588",
            Soc::Rk3576 => "RK3576",
        }
    }

    /// Whether this version has a route on it at all.
    pub fn is_driven(self) -> bool {
        rocket_runtime::soc::PROFILES.iter().any(|p| p.name == self.name())
    }
}

/// What a forecast depends on besides the model.
#[derive(Debug, Clone)]
pub struct Settings {
    pub cut: Cut,
    /// The host packs weights for its CPU.
    pub repack: bool,
    pub cpu: Cpu,
    pub soc: Soc,
    /// `None` where it is not known.
    pub memory: Option<Memory>,
    pub knobs: Knobs,
}

/// Who computes an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    Npu,
    Cpu,
}

/// Ops that counters do not tell apart, but for their exact number of rows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Shape {
    pub op: &'static str,
    /// Type of the weight, or of K and V.
    pub weight_type: String,
    pub k: i64,
    pub n: i64,
    pub rows: i64,
    pub place: Place,
    /// The route, or the reason why there is none.
    pub outcome: &'static str,
    /// From a file, and not computed.
    pub stored: bool,
}

/// How much there is of something.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    pub ops: u64,
    pub macs: u64,
}

impl Work {
    pub fn add(&mut self, more: Work) {
        self.ops = self.ops.saturating_add(more.ops);
        self.macs = self.macs.saturating_add(more.macs);
    }
}

/// The answer.
#[derive(Debug, Clone)]
pub struct Forecast {
    pub prefill: BTreeMap<Shape, Work>,
    pub decode: BTreeMap<Shape, Work>,
    pub plan: Plan,
    pub assumed: Vec<String>,
    pub unit: &'static str,
    pub rows: u64,
    /// Weights that the host packs for its CPU.
    pub repacked: u64,
}

impl Forecast {
    /// What a host would do with a model.
    pub fn of(header: &Header, settings: &Settings) -> Forecast {
        let Settings { knobs, memory, .. } = settings;
        let mut repacked = std::collections::BTreeSet::new();
        let mut place = |nodes: Vec<Node>| -> Vec<Node> {
            let moved = |n: Node| away(header, settings, n, &mut repacked);
            nodes.into_iter().map(moved).collect()
        };
        let Graph { prefill, decode, planned, assumed, unit, rows } =
            graph::of(header, settings.cut);
        let (prefill, decode, planned) = (place(prefill), place(decode), place(planned));
        let policy = knobs.policy(settings.soc.is_driven(), &Thresholds::default());
        let stacks = resident::stacks(header, &planned, &policy, knobs, *memory);
        let native = resident::int8(&planned, &policy, knobs, *memory, stacks.plan.window_taken);
        let policy = Policy { wanted: Wanted { native, ..policy.wanted }, ..policy };
        let mut plan = Plan { int8: native, ..stacks.plan };
        resident::weights(&mut plan, &prefill, &policy, knobs, *memory);
        let sum = |nodes: &[Node]| {
            let mut shapes: BTreeMap<Shape, Work> = BTreeMap::new();
            for node in nodes {
                let outcome = outcome(node, &policy, &stacks.refused);
                if let Some(shape) = shape(node, outcome) {
                    shapes
                        .entry(shape)
                        .or_default()
                        .add(Work { ops: node.times, macs: node.macs() });
                }
            }
            shapes
        };
        let (prefill, decode) = (sum(&prefill), sum(&decode));
        Forecast { prefill, decode, plan, assumed, unit, rows, repacked: repacked.len() as u64 }
    }

    /// All of the prefill, and what of it runs on the NPU.
    pub fn totals(&self) -> [Work; 2] {
        let mut totals = [Work::default(); 2];
        for (shape, work) in &self.prefill {
            totals[0].add(*work);
            if shape.place == Place::Npu {
                totals[1].add(*work);
            }
        }
        totals
    }

    /// The NPU's part of the prefill's multiplications, in per cent.
    pub fn share(&self) -> f64 {
        let [all, npu] = self.totals();
        percent(npu.macs, all.macs)
    }
}

/// Of a hundred.
pub fn percent(part: u64, all: u64) -> f64 {
    100.0 * part as f64 / all.max(1) as f64
}

/// The node, whose weight the host may have taken out of reach.
fn away(
    header: &Header,
    settings: &Settings,
    mut node: Node,
    repacked: &mut std::collections::BTreeSet<usize>,
) -> Node {
    let packs = |i: &usize| header.tensors.get(*i).is_some_and(|t| settings.cpu.packs(t));
    let Some(index) = node.tensor.filter(packs).filter(|_| settings.repack && node.movable) else {
        return node;
    };
    repacked.insert(index);
    match &mut node.facts {
        OpFacts::MulMat(p) => p.weight_in_host_memory = Some(false),
        OpFacts::MulMatId(e) => e.product.weight_in_host_memory = Some(false),
        _ => {}
    }
    node
}

fn outcome(
    node: &Node,
    policy: &Policy,
    refused: &BTreeMap<usize, Reason>,
) -> Result<Route, Reason> {
    let route = decide(&node.facts, policy)?;
    match (route, node.tensor.and_then(|i| refused.get(&i))) {
        (Route::Experts { .. }, Some(reason)) => Err(*reason),
        _ => Ok(route),
    }
}

fn shape(node: &Node, outcome: Result<Route, Reason>) -> Option<Shape> {
    let seen = Seen::of(&node.facts);
    let label = seen.label?;
    let [k, n] = label.shape;
    let (place, outcome) = match outcome {
        Ok(route) => (Place::Npu, route.name()),
        Err(reason) => (Place::Cpu, reason.name()),
    };
    Some(Shape {
        op: label.op,
        weight_type: label.dtype.name(),
        k,
        n,
        rows: seen.rows,
        place,
        outcome,
        stored: node.tensor.is_some(),
    })
}
