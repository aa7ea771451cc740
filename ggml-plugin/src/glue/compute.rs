//! Running the nodes of a graph.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::{attention, bias, calibrate, copy, experts, facts, fuse, product};
use crate::abi::host::Object;
use crate::abi::status;
use crate::abi::tensor::Tensor;
use crate::exec::{OpRecord, Redo, cpu::CpuBackend};
use crate::live::Seen;
use crate::log::{Level, line};
use crate::route::{self, Route};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// Computes every selected node in order; a status of ggml.
pub(super) fn graph(instance: &Instance, graph: Object) -> i32 {
    let host = &instance.plugin.host;
    // SAFETY: the host passes a live graph.
    let count = unsafe { (host.f.graph_n_nodes)(graph) };
    // SAFETY: inside the count; nodes are not changed while they are computed.
    let at = |i: i32| unsafe { Tensor::from_ptr((host.f.graph_node)(graph, i)) };
    let selected = |node: &Tensor| route::is_selected(node.flags, host.marks_compute);
    instance.plugin.stats.graph();
    // Nodes that already ran, with one before them, and results that wait for their turn.
    let mut done: Vec<(*const Tensor, Option<Vec<f32>>)> = Vec::new();
    for i in 0..count {
        let Some(node) = at(i) else { return status::FAILED };
        if let Some(known) = done.iter().position(|(d, _)| std::ptr::eq(*d, node)) {
            let (_, result) = done.swap_remove(known);
            if result.is_none_or(|r| fuse::put(instance, node, r).is_ok()) {
                continue;
            }
        }
        if !selected(node) {
            continue;
        }
        if instance.plugin.knobs.fuse {
            let nodes = (i..count).map_while(at).filter(|n| selected(n));
            let ran = together(instance, nodes);
            if ran.first().is_some_and(|(first, _)| std::ptr::eq(*first, node)) {
                done.extend(ran.into_iter().skip(1));
                continue;
            }
        }
        if let Err(why) = self::node(instance, node) {
            line(Level::Error, &format!("cannot compute {}: {why}", node.name()));
            return status::FAILED;
        }
    }
    instance.plugin.publish(false);
    status::SUCCESS
}

/// Runs the first of `nodes` together with those that share its activation; the ones that ran, none
/// when it has to run alone.
fn together<'a>(
    instance: &Instance,
    nodes: impl IntoIterator<Item = &'a Tensor>,
) -> Vec<(*const Tensor, Option<Vec<f32>>)> {
    let plugin = instance.plugin;
    let runner = match &plugin.unit {
        Some(unit) if plugin.is_own_process() => &unit.runner,
        _ => return Vec::new(),
    };
    if runner.engine().is_none_or(|e| !e.available()) {
        return Vec::new();
    }
    let members = fuse::group(instance, &plugin.running_policy(), nodes);
    if members.is_empty() {
        return Vec::new();
    }
    let names: Vec<String> = members.iter().map(|m| m.node.name()).collect();
    let begun = Instant::now();
    // Whatever went wrong, each has its own chance.
    let Ok(all) = fuse::run(instance, runner, &members, &names) else { return Vec::new() };
    // The time of all of them is the first's.
    let mut took = begun.elapsed().as_nanos() as u64;
    let told = members.iter().zip(&names).zip(all).map(|((m, name), ran)| {
        plugin.stats.computed(name, &m.seen, m.route, Ok(ran.record), std::mem::take(&mut took));
        (std::ptr::from_ref(m.node), ran.result)
    });
    told.collect()
}

/// One node: on the NPU, or redone by the host's CPU.
fn node(instance: &Instance, node: &Tensor) -> Result<(), String> {
    let plugin = instance.plugin;
    let policy = plugin.running_policy();
    let facts = facts::of(&plugin.host, node);
    let route = facts.and_then(|f| Some((Seen::of(&f), route::decide(&f, &policy).ok()?)));
    let (seen, route) = match route {
        Some((_, Route::Nothing)) => return Ok(()),
        Some((_, Route::Bias)) => {
            // No work of the NPU's, so it is none that is counted.
            return bias::run(instance, node).or_else(|_| on_cpu(instance, node));
        }
        Some((_, Route::Copy)) => {
            return copy::run(instance, node).or_else(|_| on_cpu(instance, node));
        }
        Some(found) => found,
        None => {
            // supports_op said no, or would have: the host's CPU knows what to do.
            on_cpu(instance, node)?;
            plugin.stats.foreign(Redo::NotRouted);
            return Ok(());
        }
    };
    let name = node.name();
    let begun = Instant::now();
    let done = run(instance, node, &name, route);
    if let Err(redo) = done {
        if redo == Redo::ExpertOutOfRange {
            // The CPU would read beyond the stack.
            return Err(redo.sentence().to_owned());
        }
        if redo_is_news(redo) {
            line(Level::Warn, &format!("{name}: {} Redone on the CPU.", redo.sentence()));
        }
        on_cpu(instance, node)?;
    }
    let (took, measured) = (begun.elapsed().as_nanos() as u64, done.is_ok());
    plugin.stats.computed(&name, &seen, route, done, took);
    if measured {
        calibrate::with(instance, node, route);
    }
    Ok(())
}

/// True once per reason and process: a broken board must not fill a log.
pub(super) fn redo_is_news(redo: Redo) -> bool {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let bit = 1u64 << (redo as u32);
    SEEN.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

fn run(instance: &Instance, node: &Tensor, name: &str, route: Route) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let unit = plugin.unit.as_ref().ok_or(Redo::NotRouted)?;
    if !plugin.is_own_process() {
        return Err(Redo::Forked);
    }
    if unit.runner.engine().is_some_and(|e| !e.available()) {
        return Err(Redo::GivenUp);
    }
    match route {
        Route::Nothing | Route::Bias | Route::Copy => Err(Redo::NotRouted),
        Route::Product { .. } => product::run(instance, &unit.runner, node, name, route),
        Route::Experts { numerics, shape } => {
            experts::run(instance, &unit.runner, node, name, shape, numerics)
        }
        Route::Attention(shape) => attention::run(instance, &unit.runner, node, name, shape),
    }
}

/// The host's CPU backend, opened at the first need.
pub(super) fn on_cpu(instance: &Instance, node: &Tensor) -> Result<(), String> {
    let mut slot = instance.cpu.lock().unwrap_or_else(PoisonError::into_inner);
    let cpu = match &mut *slot {
        Some(cpu) => cpu,
        empty => empty.insert(CpuBackend::open(&instance.plugin.host.f)?),
    };
    let threads = instance.threads.load(Ordering::Relaxed);
    cpu.compute(node, (threads > 0).then_some(threads))
}
