//! Running the nodes of a graph.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::plugin::Runner;
use super::{calibrate, facts, operands};
use crate::abi::host::Object;
use crate::abi::status;
use crate::abi::tensor::Tensor;
use crate::exec::mul_mat::{self, Means};
use crate::exec::{OpRecord, Redo, cpu::CpuBackend};
use crate::log::{Level, line};
use crate::route::{self, Policy, Route};
use std::sync::PoisonError;
use std::sync::atomic::{AtomicU64, Ordering};

/// Computes every selected node in order; a status of ggml.
pub(super) fn graph(instance: &Instance, graph: Object) -> i32 {
    let host = &instance.plugin.host;
    // SAFETY: the host passes a live graph.
    let count = unsafe { (host.f.graph_n_nodes)(graph) };
    for i in 0..count {
        // SAFETY: inside the count; nodes are not changed while they are computed.
        let Some(node) = (unsafe { Tensor::from_ptr((host.f.graph_node)(graph, i)) }) else {
            return status::FAILED;
        };
        if !route::is_selected(node.flags, host.marks_compute) {
            continue;
        }
        if let Err(why) = self::node(instance, node) {
            line(Level::Error, &format!("cannot compute {}: {why}", node.name()));
            return status::FAILED;
        }
    }
    status::SUCCESS
}

/// One node: on the NPU, or redone by the host's CPU.
fn node(instance: &Instance, node: &Tensor) -> Result<(), String> {
    let plugin = instance.plugin;
    // Whatever was accepted before the NPU was given up is still told apart.
    let policy = Policy { engine: true, ..plugin.policy() };
    let route = facts::of(&plugin.host, node).and_then(|f| route::decide(&f, &policy).ok());
    let route = match route {
        Some(Route::Nothing) => return Ok(()),
        Some(route) => route,
        None => {
            // supports_op said no, or would have: the host's CPU knows what to do.
            on_cpu(instance, node)?;
            plugin.stats.foreign(Redo::NotRouted);
            return Ok(());
        }
    };
    let name = node.name();
    let done = product(instance, node, &name, route);
    if let Err(redo) = done {
        if redo_is_news(redo) {
            line(Level::Warn, &format!("{name}: {} Redone on the CPU.", redo.sentence()));
        }
        on_cpu(instance, node)?;
    } else {
        calibrate::with(instance, node, route);
    }
    plugin.stats.computed(&name, route, done);
    Ok(())
}

/// True once per reason and process: a broken board must not fill a log.
fn redo_is_news(redo: Redo) -> bool {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    let bit = 1u64 << (redo as u32);
    SEEN.fetch_or(bit, Ordering::Relaxed) & bit == 0
}

fn product(instance: &Instance, node: &Tensor, name: &str, route: Route) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let unit = plugin.unit.as_ref().ok_or(Redo::NotRouted)?;
    if !plugin.is_own_process() {
        return Err(Redo::Forked);
    }
    if unit.runner.engine().is_some_and(|e| !e.available()) {
        return Err(Redo::GivenUp);
    }
    let slices = operands::of(instance, node, name, route)?;
    match &unit.runner {
        Runner::Engine(engine) => {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let mut total: Option<OpRecord> = None;
            for operands in slices {
                let means = Means {
                    engine: &**engine,
                    verify: &plugin.verify,
                    threads: plugin.threads,
                    scratch: &mut scratch,
                };
                let record = mul_mat::run(means, operands).map_err(|(redo, error)| {
                    if let Some(e) = error
                        && redo_is_news(redo)
                    {
                        line(Level::Warn, &format!("{name}: {e}. Redone on the CPU."));
                    }
                    redo
                })?;
                match &mut total {
                    Some(t) => t.add(&record),
                    none => *none = Some(record),
                }
            }
            total.ok_or(Redo::NotRouted)
        }
        #[cfg(feature = "test-engine")]
        Runner::HostCpu => {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            for o in &slices {
                scratch.fill(&o.activation, 1)?;
            }
            drop(slices);
            on_cpu(instance, node).map_err(|_| Redo::EngineError)?;
            let macs = route.macs();
            Ok(OpRecord { macs, ..OpRecord::default() })
        }
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
