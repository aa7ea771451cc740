//! Running an accepted MUL_MAT_ID, and asking beforehand whether its stack may stay.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::compute::redo_is_news;
use super::operands;
use super::plugin::{Plugin, Runner};
use crate::abi::host::Format;
use crate::abi::tensor::Tensor;
use crate::exec::activation::Activation;
use crate::exec::cache::HostRows;
use crate::exec::experts::ledger::{Charge, StackId};
use crate::exec::experts::{self, Buckets, StackSource};
use crate::exec::weight::{Decode, Form, Weight};
use crate::exec::{OpRecord, Redo};
use crate::log::{Level, line};
use crate::route::{Dtype, ExpertsMode, ExpertsShape, Numerics, Reason};
use std::sync::PoisonError;

/// Whether an op that the rules accepted is taken: where nothing is forced its stack must be able to
/// stay, whole. A stack without memory is one that a model is being planned with: it is asked about
/// again.
///
/// # Errors
/// Why the op stays on the CPU.
pub(super) fn admit(
    plugin: &Plugin,
    op: &Tensor,
    shape: &ExpertsShape,
    numerics: Numerics,
) -> Result<(), Reason> {
    let Some(weight) = op.source(0) else { return Err(Reason::ShapeMismatch) };
    if plugin.knobs.experts.mode == ExpertsMode::Forced || weight.data.is_null() {
        return Ok(());
    }
    if plugin.knobs.no_prepack || !operands::stays(plugin, weight) {
        return Err(Reason::ExpertsNotKept);
    }
    match reserved(plugin, weight, shape, numerics) {
        true => Ok(()),
        false => Err(Reason::ExpertsNoRoom),
    }
}

fn reserved(plugin: &Plugin, weight: &Tensor, shape: &ExpertsShape, numerics: Numerics) -> bool {
    let dtype = Dtype(weight.dtype);
    let row_bytes = plugin.host.format(dtype).and_then(|f| f.block.row_bytes(shape.k));
    let Some(row_bytes) = row_bytes else { return false };
    let id =
        StackId { address: weight.data as usize, dtype, shape: [shape.k, shape.n, shape.experts] };
    plugin.reserve(id, Charge::of(shape, numerics, (row_bytes * shape.n) as u64))
}

/// # Errors
/// Why the CPU has to do the op.
pub(super) fn run(
    instance: &Instance,
    runner: &Runner,
    node: &Tensor,
    name: &str,
    shape: ExpertsShape,
    numerics: Numerics,
) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let source = |i| node.source(i).ok_or(Redo::NotRouted);
    let (weight, activation, ids) = (source(0)?, source(1)?, source(2)?);
    let ExpertsShape { k, n, experts: count, used, tokens, rows } = shape;
    let dtype = Dtype(weight.dtype);
    let form = plugin.host.format(dtype).and_then(|f| form(f, dtype, [n, k]));
    let form = form.ok_or(Redo::NotRouted)?;
    let each = form.bytes().filter(|b| *b > 0).ok_or(Redo::NotRouted)?;
    let bytes = each.checked_mul(count).ok_or(Redo::NotRouted)?;
    let strides = [1, 2].map(|i| if activation.ne[i] == 1 { 0 } else { activation.nb[i] / 4 });
    let strides = [strides[0], strides[1], 0];
    let extent = Activation::extent(k, [rows, tokens, 1], strides).ok_or(Redo::NotRouted)?;
    let step = if tokens == 1 { 0 } else { ids.nb[1] / 4 };
    let id_extent = HostRows::extent([1, 1, tokens], [0, 0, step], used).ok_or(Redo::NotRouted)?;
    let range = |t: &Tensor, bytes: usize| {
        let first = t.data as usize;
        (first, first.saturating_add(bytes))
    };
    let out = range(node, shape.results() * n * 4);
    for other in [range(weight, bytes), range(activation, extent * 4), range(ids, id_extent * 4)] {
        if out.0 < other.1 && other.0 < out.1 {
            return Err(Redo::Overlap);
        }
    }
    // SAFETY: the stack is contiguous and of that many bytes, activation and ids reach as far as
    // their strides say, the result is contiguous; all lie in host memory that the host lets nobody
    // touch while it waits for this graph, and the result overlaps none of them.
    let (data, values, ids, out) = unsafe {
        (
            weight.elements::<u8>(bytes).ok_or(Redo::NoData)?,
            activation.elements::<f32>(extent).ok_or(Redo::NoData)?,
            ids.elements::<i32>(id_extent).ok_or(Redo::NoData)?,
            node.elements_mut::<f32>(shape.results() * n).ok_or(Redo::NoData)?,
        )
    };
    let ids: Vec<i32> = (0..tokens).flat_map(|t| &ids[t * step..][..used]).copied().collect();
    let buckets = Buckets::of(&ids, count).ok_or(Redo::ExpertOutOfRange)?;
    let weights: Option<Vec<Weight<'_>>> =
        data.chunks_exact(each).map(|d| form.weight(d)).collect();
    let weights = weights.ok_or(Redo::NoData)?;
    let key = operands::key(plugin, weight, data, [n * count, k], numerics)
        .filter(|_| !plugin.knobs.no_prepack && reserved(plugin, weight, &shape, numerics));
    let at = StackSource { address: data.as_ptr() as usize, experts: count, form };
    let op = experts::Operands {
        name,
        shape,
        numerics,
        experts: &weights,
        dtype,
        stack: key.map(|key| (key, at)),
        owner: instance.id,
        activation: Activation::new(values, k, [rows, tokens, 1], strides).ok_or(Redo::NoData)?,
        buckets: &buckets,
        out,
    };
    match runner {
        Runner::Engine(engine) => {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            experts::run(&**engine, &plugin.verify, (plugin.threads, &mut scratch), op).map_err(
                |(redo, error)| {
                    if let Some(e) = error
                        && redo_is_news(redo)
                    {
                        line(Level::Warn, &format!("{name}: {e}. Redone on the CPU."));
                        plugin.stats.live.event(crate::live::code(&e), &e.to_string());
                    }
                    redo
                },
            )
        }
        #[cfg(feature = "test-engine")]
        Runner::HostCpu => {
            drop(op);
            super::compute::on_cpu(instance, node).map_err(|_| Redo::EngineError)?;
            let macs = (shape.results() * n * k) as u64;
            Ok(OpRecord { macs, ..OpRecord::default() })
        }
    }
}

fn form(format: Format, dtype: Dtype, shape: [usize; 2]) -> Option<Form> {
    let decode = Decode::of(dtype, format.to_float)?;
    let row_bytes = format.block.row_bytes(shape[1])?;
    // SAFETY: the host's own decoder of this type, for rows of whole blocks.
    Some(unsafe { Form::new(shape, row_bytes, decode) })
}
