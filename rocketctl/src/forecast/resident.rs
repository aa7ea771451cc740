//! What of the weights stays packed on the NPU, by the plugin's own rules and budgets: modelled from the
//! memory that is available, in the order in which a graph needs them.

use super::graph::Node;
use crate::model::Header;
use ggml_rocket::exec::WeightKey;
use ggml_rocket::exec::experts::ledger::{Budgets, Charge};
use ggml_rocket::exec::image::Image;
use ggml_rocket::exec::pressure::{self, Sample};
use ggml_rocket::exec::residency::{Rules, WINDOW_BYTES};
use ggml_rocket::knobs::Knobs;
use ggml_rocket::route::{ExpertsMode, ExpertsShape, Numerics, Policy, Reason, Route, decide};
use rocket_runtime::board::Memory;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// The plan.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Plan {
    /// Weights whose products run on the NPU, experts aside.
    pub weights: u64,
    /// Of these, the ones that stay.
    pub resident: u64,
    /// Bytes of all of them, packed.
    pub bytes: u64,
    /// Of the resident ones.
    pub resident_bytes: u64,
    /// Quantized weights are kept in int8, for want of room for F16.
    pub int8: bool,
    /// Stacks of experts that are worth it.
    pub stacks: u64,
    /// Of these, those that have room as a whole; the CPU computes the others.
    pub stacks_resident: u64,
    /// Bytes that all stacks would take, their part of the file included.
    pub stacks_bytes: u64,
    /// Of those that have room.
    pub stacks_resident_bytes: u64,
    /// Bytes of the workers' address windows.
    pub window_bytes: u64,
    /// Of these taken, when all is resident that can be.
    pub window_taken: u64,
    /// Why not all weights stay.
    pub why: Option<String>,
}

impl Plan {
    /// Whether nothing is packed more than once.
    pub fn is_whole(&self) -> bool {
        self.resident == self.weights && self.stacks_resident == self.stacks
    }
}

/// The plan, and what it decides beside itself: which stacks may stay, in which numbers quantized
/// weights are kept.
#[derive(Debug, Default)]
pub struct Decided {
    pub plan: Plan,
    /// Tensors of stacks that have no room.
    pub refused: BTreeMap<usize, Reason>,
}

/// Stacks of experts: whole ones, first come first served (ggml-plugin-behaviour 8.5).
pub fn stacks(
    header: &Header,
    nodes: &[Node],
    policy: &Policy,
    knobs: &Knobs,
    memory: Option<Memory>,
) -> Decided {
    let budgets = Budgets::of(knobs, memory.map(|m| m.available));
    let mut done = Decided::default();
    let mut taken = Charge { ram: 0, window: 0 };
    let mut seen = BTreeSet::new();
    for node in nodes {
        let (Some(index), Ok(Route::Experts { shape, numerics })) =
            (node.tensor, decide(&node.facts, policy))
        else {
            continue;
        };
        if knobs.experts.mode == ExpertsMode::Forced || !seen.insert(index) {
            continue;
        }
        if knobs.no_prepack {
            done.refused.insert(index, Reason::ExpertsNotKept);
            continue;
        }
        let one = charge(header, index, &shape, numerics);
        let all = Charge {
            ram: taken.ram.saturating_add(one.ram),
            window: taken.window.saturating_add(one.window),
        };
        let plan = &mut done.plan;
        plan.stacks += 1;
        plan.stacks_bytes = plan.stacks_bytes.saturating_add(one.ram);
        if budgets.hold(all) == [true, true] {
            taken = all;
            plan.stacks_resident += 1;
            plan.stacks_resident_bytes += one.ram;
        } else {
            done.refused.insert(index, Reason::ExpertsNoRoom);
        }
    }
    done.plan.window_bytes = budgets.window;
    done.plan.window_taken = taken.window;
    done
}

fn charge(header: &Header, index: usize, shape: &ExpertsShape, numerics: Numerics) -> Charge {
    let source = header.tensors.get(index).and_then(|t| t.bytes()).unwrap_or(0);
    Charge::of(shape, numerics, source / (shape.experts as u64).max(1))
}

/// Whether quantized weights are kept in int8: `planned` is what a host asks about before it computes.
pub fn int8(
    planned: &[Node],
    policy: &Policy,
    knobs: &Knobs,
    memory: Option<Memory>,
    promised: u64,
) -> bool {
    let image = Image::default();
    for node in planned {
        if let (Some(index), Ok(Route::Product { k, n, slices, .. })) =
            (node.tensor, decide(&node.facts, policy))
            && let ggml_rocket::route::OpFacts::MulMat(p) = &node.facts
        {
            image.offer(index + 1, p.weight.dtype, (k * n * slices) as u64);
        }
    }
    let rules = Rules::on(knobs, memory.map_or(0, |m| m.total));
    let room = memory.map(|m| pressure::room(&m, rules.reserve).saturating_sub(promised));
    image.native(knobs.quant_int8, || rules.room(room, knobs.n_threads))
}

/// Weights of products that run, one after the other.
pub fn weights(
    plan: &mut Plan,
    nodes: &[Node],
    policy: &Policy,
    knobs: &Knobs,
    memory: Option<Memory>,
) {
    let rules = Rules::on(knobs, memory.map_or(0, |m| m.total));
    let windows = knobs.n_threads as u64 * WINDOW_BYTES;
    let mut held = [0u64; 2];
    let mut seen = BTreeSet::new();
    for node in nodes {
        let (Some(index), Ok(Route::Product { numerics, k, n, slices, .. })) =
            (node.tensor, decide(&node.facts, policy))
        else {
            continue;
        };
        let ggml_rocket::route::OpFacts::MulMat(p) = &node.facts else { continue };
        if !seen.insert(index) {
            continue;
        }
        let dtype = p.weight.dtype;
        // One a slice; only shape, type and numbers matter here.
        let key = WeightKey {
            buffer: 0,
            base: 0,
            offset: index,
            dtype,
            shape: [n, k],
            hash: 0,
            numerics,
        };
        let bytes = key.packed_bytes().saturating_mul(slices as u64);
        plan.weights += 1;
        plan.bytes = plan.bytes.saturating_add(bytes);
        let left = memory
            .map(|m| Memory { available: m.available.saturating_sub(held[0] + held[1]), ..m });
        let sample = Sample { memory: left, stalled: None };
        let refused = match rules.allow(&key, held) {
            Err(why) => Some(why),
            Ok(())
                if !pressure::admits(
                    &sample,
                    rules.reserve,
                    bytes.saturating_add(plan.window_taken),
                ) =>
            {
                Some("available memory is at its reserve".to_owned())
            }
            Ok(()) if held[0] + held[1] + plan.window_taken + bytes > windows => {
                Some("the workers' address windows are full".to_owned())
            }
            Ok(()) => None,
        };
        match refused {
            None => {
                held[usize::from(dtype.is_quantized())] += bytes;
                plan.resident += 1;
                plan.resident_bytes += bytes;
            }
            Some(why) => plan.why = plan.why.take().or(Some(why)),
        }
    }
    plan.window_taken += held[0] + held[1];
}
