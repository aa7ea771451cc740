//! Timing the product at hand on both sides, on its first rows only: how the crossover of this
//! machine is found (see [`crate::exec::crossover`]).
#![allow(unsafe_code)]

use super::backend::Instance;
use super::{compute, operands};
use crate::abi::tensor::Tensor;
use crate::exec::crossover::{Class, ROWS, Timing, crossover, lost};
use crate::exec::mul_mat::{self, Means};
use crate::log::{Level, line};
use crate::route::{Dtype, Numerics, Route};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::PoisonError;
use std::time::Instant;

/// Elements of a weight worth measuring with: a smaller one is all overhead, a larger one takes
/// seconds.
const FIT: std::ops::RangeInclusive<usize> = 1 << 18..=1 << 26;

/// Measures with this op if its class is still to be measured and it is fit for it. The op itself
/// has been computed and is not touched.
pub(super) fn with(instance: &Instance, node: &Tensor, route: Route) {
    let plugin = instance.plugin;
    let Route::Product { numerics, m, k, n, slices: 1 } = route else { return };
    let Some((weight, activation)) = node.source(0).zip(node.source(1)) else { return };
    // The rows of the first batch only: those of others need not follow at the same distance.
    let there = usize::try_from(activation.ne[1]).unwrap_or(0).min(m);
    let class = Class::of(Dtype(weight.dtype));
    let most = ROWS.iter().rposition(|&r| r <= there).map_or(0, |i| i + 1);
    // Half of the list must be there, or the answer is a guess.
    if most * 2 < ROWS.len() || !FIT.contains(&(k * n)) || !plugin.wants_crossover(class) {
        return;
    }
    // The op is done: whatever goes wrong from here on must not fail it.
    let measured = catch_unwind(AssertUnwindSafe(|| {
        ROWS[..most].iter().map(|&rows| time(instance, node, numerics, rows, n)).collect()
    }));
    let Ok(Some(timings)) = measured as Result<Option<Vec<Timing>>, _> else { return };
    let kind = match class {
        Class::Float => "float",
        Class::Quantized => "quantized",
    };
    let last = ROWS[most - 1];
    let (rows, text) = match crossover(&timings) {
        Some(rows) => (rows, format!("the NPU is faster from {rows} rows on")),
        None => (
            lost(last),
            format!("the CPU is faster up to {last} rows, {} are left to it", lost(last)),
        ),
    };
    let text = match plugin.crossovers.keep(class, rows) {
        Ok(()) => format!("measured, with {kind} weights: {text}; used from the next start"),
        Err(e) => format!("measured, with {kind} weights: {text}; could not be kept: {e}"),
    };
    line(Level::Info, &text);
}

/// Both sides on the first `rows` rows, the better of two tries each.
fn time(
    instance: &Instance,
    node: &Tensor,
    numerics: Numerics,
    rows: usize,
    n: usize,
) -> Option<Timing> {
    let engine = instance.plugin.unit.as_ref()?.runner.engine()?;
    let mut activation = copy(node.source(1)?);
    activation.ne = [activation.ne[0], rows as i64, 1, 1];
    let mut out = vec![0f32; rows * n];
    let mut part = copy(node);
    part.ne = [n as i64, rows as i64, 1, 1];
    part.nb = [4, 4 * n, 4 * n * rows, 4 * n * rows];
    part.src[1] = &raw mut activation;
    part.data = out.as_mut_ptr().cast();
    let mut best = Timing { rows, cpu: f64::INFINITY, npu: f64::INFINITY };
    for _ in 0..2 {
        let start = Instant::now();
        compute::on_cpu(instance, &part).ok()?;
        best.cpu = best.cpu.min(start.elapsed().as_secs_f64());
        let k = activation.ne[0] as usize;
        let route = Route::Product { numerics, m: rows, k, n, slices: 1 };
        let start = Instant::now();
        for operands in operands::of(instance, &part, "calibration", route, None).ok()? {
            let mut scratch = instance.scratch.lock().unwrap_or_else(PoisonError::into_inner);
            let means = Means {
                engine,
                verify: &instance.plugin.verify,
                threads: instance.plugin.threads,
                scratch: &mut scratch,
            };
            mul_mat::run(means, operands).ok()?;
        }
        best.npu = best.npu.min(start.elapsed().as_secs_f64());
    }
    Some(best)
}

fn copy(t: &Tensor) -> Tensor {
    // SAFETY: plain data of the host, read while nobody writes it; the copy points to the same
    // buffers and sources, and lives as long as they do.
    unsafe { ptr::read(t) }
}
