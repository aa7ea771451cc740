//! Running the nodes of a graph.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::facts;
use super::plugin::{Plugin, Runner};
use crate::abi::constants::USAGE_WEIGHTS;
use crate::abi::host::Object;
use crate::abi::status;
use crate::abi::tensor::Tensor;
use crate::exec::mul_mat::{self, Operands};
use crate::exec::{OpRecord, Redo, Weight, WeightKey, cpu::CpuBackend};
use crate::log::{Level, line};
use crate::route::{self, Dtype, Route};
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
    let route =
        facts::of(&plugin.host, node).and_then(|f| route::decide(&f, &plugin.policy()).ok());
    let (route, [m, k, n]) = match route {
        Some(Route::Nothing) => return Ok(()),
        Some(route @ Route::Fp16 { m, k, n }) => (route, [m, k, n]),
        None => {
            // supports_op said no, or would have: the host's CPU knows what to do.
            on_cpu(instance, node)?;
            plugin.stats.foreign(Redo::NotRouted);
            return Ok(());
        }
    };
    let name = node.name();
    let done = product(instance, node, &name, [m, k, n]);
    if let Err(redo) = done {
        if redo_is_news(redo) {
            line(Level::Warn, &format!("{name}: {} Redone on the CPU.", redo.sentence()));
        }
        on_cpu(instance, node)?;
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

fn product(
    instance: &Instance,
    node: &Tensor,
    name: &str,
    shape: [usize; 3],
) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let unit = plugin.unit.as_ref().ok_or(Redo::NotRouted)?;
    if !plugin.is_own_process() {
        return Err(Redo::Forked);
    }
    let operands = operands(plugin, node, name, shape)?;
    match &unit.runner {
        Runner::Engine(engine) => {
            mul_mat::run(&**engine, operands, &plugin.checked).map_err(|(redo, error)| {
                if let Some(e) = error
                    && redo_is_news(redo)
                {
                    line(Level::Warn, &format!("{name}: {e}. Redone on the CPU."));
                }
                redo
            })
        }
        #[cfg(feature = "test-engine")]
        Runner::HostCpu => {
            mul_mat::prepare(&operands, &plugin.checked)?;
            on_cpu(instance, node).map_err(|_| Redo::EngineError)?;
            let [m, k, n] = shape;
            Ok(OpRecord { macs: (m * k * n) as u64, ..OpRecord::default() })
        }
    }
}

/// The operands as slices. The route has established types, shapes and contiguity.
fn operands<'a>(
    plugin: &Plugin,
    node: &'a Tensor,
    name: &'a str,
    [m, k, n]: [usize; 3],
) -> Result<Operands<'a>, Redo> {
    let (weight, activation) = node.source(0).zip(node.source(1)).ok_or(Redo::NotRouted)?;
    let element = weight.facts().dtype.element_bytes().ok_or(Redo::NotRouted)?;
    let range =
        |t: &Tensor, bytes: usize| (t.data as usize, (t.data as usize).saturating_add(bytes));
    let out = range(node, m * n * 4);
    for other in [range(weight, k * n * element), range(activation, m * k * 4)] {
        if out.0 < other.1 && other.0 < out.1 {
            return Err(Redo::Overlap);
        }
    }
    // SAFETY: contiguous tensors of these types and sizes (the route checked both), in host
    // memory, that the host lets nobody touch while it waits for this graph; the result overlaps
    // neither operand.
    unsafe {
        let data = match Dtype(weight.dtype) {
            Dtype::F16 => weight.elements(k * n).map(Weight::F16),
            _ => weight.elements(k * n).map(Weight::F32),
        };
        Ok(Operands {
            name,
            shape: [m, k, n],
            weight: data.ok_or(Redo::NoData)?,
            key: key(plugin, weight, k * n * element),
            activation: activation.elements(m * k).ok_or(Redo::NoData)?,
            out: node.elements_mut(m * n).ok_or(Redo::NoData)?,
        })
    }
}

/// The identity of a weight, if it has a lasting one.
fn key(plugin: &Plugin, weight: &Tensor, bytes: usize) -> Option<WeightKey> {
    // The scheduler's copies are named `backend#tensor#n` (ggml-abi 6, pass 5).
    if weight.buffer.is_null() || weight.name().contains('#') {
        return None;
    }
    let f = &plugin.host.f;
    // SAFETY: a live buffer of the host.
    let (usage, buffer) = unsafe {
        ((f.buffer_get_usage)(weight.buffer), (f.buffer_get_base)(weight.buffer) as usize)
    };
    // SAFETY: a contiguous weight of that many bytes in host memory, aligned for its elements.
    let data = unsafe { weight.elements::<u16>(bytes / 2) }?;
    let kind = [weight.dtype as u64, weight.ne[0] as u64, weight.ne[1] as u64];
    (usage == USAGE_WEIGHTS).then(|| WeightKey {
        data: weight.data as usize,
        bytes,
        buffer,
        sample: sample(&kind, data),
    })
}

/// Hash of what the weight is and of up to 256 spread runs of its contents. Runs and not single
/// words: the low halves of F32 made from BF16 are all zero.
fn sample(kind: &[u64], data: &[u16]) -> u64 {
    const RUN: usize = 8;
    let fold = |hash: u64, x: u64| (hash ^ x).wrapping_mul(0x0100_0000_01b3);
    let hash = kind.iter().fold(0xcbf2_9ce4_8422_2325, |h, &x| fold(h, x));
    let runs = data.len().div_ceil(RUN);
    let step = (runs / 256).max(1);
    let spread = data.chunks(RUN).step_by(step).chain(data.chunks(RUN).last());
    spread.flatten().fold(hash, |h, &x| fold(h, u64::from(x)))
}

/// The host's CPU backend, opened at the first need.
fn on_cpu(instance: &Instance, node: &Tensor) -> Result<(), String> {
    let mut slot = instance.cpu.lock().unwrap_or_else(PoisonError::into_inner);
    let cpu = match &mut *slot {
        Some(cpu) => cpu,
        empty => empty.insert(CpuBackend::open(&instance.plugin.host.f)?),
    };
    let threads = instance.threads.load(Ordering::Relaxed);
    cpu.compute(node, (threads > 0).then_some(threads))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Weights of one shape at one address, one bit apart: any element of a small one, any run
    /// that is looked at of a large one, and never the type alone.
    #[test]
    fn a_sample_sees_either_half_of_f32() {
        let zeros = [0u16; 512];
        for at in 0..zeros.len() {
            let mut other = zeros;
            other[at] = 1;
            assert_ne!(sample(&[0, 1, 2], &zeros), sample(&[0, 1, 2], &other), "element {at}");
        }
        assert_ne!(sample(&[0, 1, 2], &zeros), sample(&[1, 1, 2], &zeros));
        let large: Vec<u16> = vec![0; 1 << 20];
        let mut other = large.clone();
        other.iter_mut().skip(1).step_by(2).for_each(|x| *x = 0x3f80);
        assert_ne!(sample(&[], &large), sample(&[], &other));
    }
}
