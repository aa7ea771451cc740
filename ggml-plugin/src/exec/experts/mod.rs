//! MUL_MAT_ID: each row of activations with the expert chosen for it (ggml-plugin-behaviour 8).
//!
//! The rows are converted once for all experts. Each expert's product runs whole on one worker, its
//! rows gathered there and its results written to where they belong. A stack of experts becomes
//! resident as a whole or not at all; that happens beside the host, whose CPU computes meanwhile.

mod bucket;
mod host_memory;
mod ingest;
mod lanes;
pub mod ledger;
mod shelf;
#[cfg(all(test, feature = "simulator"))]
mod tests;

pub use bucket::Buckets;
pub use host_memory::StackSource;
pub use ingest::PackedFolder;
pub(super) use lanes::multiply;
pub use shelf::{Rules, Shelf, Standing};

use super::activation::{Activation, Prepared, Rows};
use super::times::ns;
use super::verify::{Subject, Verify};
use super::weight::{Columns, Weight};
use super::{Engine, OpRecord, Redo, WeightKey, scale};
use crate::route::{Dtype, ExpertsShape, Numerics};
use rocket_runtime::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Instant;

/// The operands, as the host holds them.
#[derive(Debug)]
pub struct Operands<'a> {
    /// Name of the result.
    pub name: &'a str,
    /// Sizes.
    pub shape: ExpertsShape,
    /// In which numbers.
    pub numerics: Numerics,
    /// The experts' weights.
    pub experts: &'a [Weight<'a>],
    /// Their type.
    pub dtype: Dtype,
    /// Where they lie, and the stack's identity if it stays there.
    pub stack: Option<(WeightKey, StackSource)>,
    /// The context that asks.
    pub owner: u64,
    /// Rows of activation, those of a token together.
    pub activation: Activation<'a>,
    /// The rows of each expert.
    pub buckets: &'a Buckets,
    /// `used x tokens` rows of N.
    pub out: &'a mut [f32],
}

/// One product with experts, as an engine gets it.
#[derive(Debug)]
pub struct Job<'a> {
    /// Name of the result, for messages.
    pub name: &'a str,
    /// Sizes.
    pub shape: ExpertsShape,
    /// In which numbers.
    pub numerics: Numerics,
    /// The experts' weights.
    pub experts: &'a [Weight<'a>],
    /// Set when the stack may be kept resident.
    pub stack: Option<(WeightKey, StackSource)>,
    /// The context that asks.
    pub owner: u64,
    /// `tokens * shape.rows` rows of K.
    pub activation: Rows<'a>,
    /// The rows of each expert.
    pub buckets: &'a Buckets,
    /// `used x tokens` rows of N; every element is written.
    pub out: &'a mut [f32],
}

/// What an engine hands back.
#[derive(Debug, Default)]
pub struct Done {
    /// For reports.
    pub record: OpRecord,
    /// Why there is no result.
    pub absent: Option<Absent>,
    /// What the caller still has to do to the columns of an expert's rows.
    pub columns: Vec<(usize, Arc<Columns>)>,
}

/// Why there is no result. None of these is a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Absent {
    /// The stack is being packed.
    Packing,
    /// There was no room for it.
    NoRoom,
    /// A weight is not finite.
    Unfit,
}

/// Activation row of a row of the result.
pub(super) fn activation_row(shape: &ExpertsShape, row: usize) -> usize {
    if shape.rows == 1 { row / shape.used } else { row }
}

/// Runs one product with experts.
///
/// # Errors
/// Why the CPU has to do it, with the engine's error if that was the reason.
pub fn run(
    engine: &dyn Engine,
    verify: &Verify,
    (threads, scratch): (usize, &mut Prepared),
    op: Operands<'_>,
) -> Result<OpRecord, (Redo, Option<Error>)> {
    let refuse = |redo| (redo, None);
    let begun = Instant::now();
    // A thread that the system refuses is a panic.
    catch_unwind(AssertUnwindSafe(|| scratch.fill(&op.activation, op.numerics, threads)))
        .map_err(|_| refuse(Redo::EnginePanic))?
        .map_err(refuse)?;
    let convert_ns = ns(begun);
    let rows = scratch.rows(op.numerics);
    let Operands { name, shape, numerics, experts, dtype, stack, owner, buckets, out, .. } = op;
    let job = Job {
        name,
        shape,
        numerics,
        experts,
        stack,
        owner,
        activation: rows,
        buckets,
        out: &mut *out,
    };
    let mut done = catch_unwind(AssertUnwindSafe(|| engine.experts(job)))
        .map_err(|_| refuse(Redo::EnginePanic))?
        .map_err(|e| (Redo::EngineError, Some(e)))?;
    match done.absent {
        None => {}
        Some(Absent::Packing) => return Err(refuse(Redo::ExpertsPacking)),
        Some(Absent::NoRoom) => return Err(refuse(Redo::ExpertsNotResident)),
        Some(Absent::Unfit) => return Err(refuse(Redo::WeightNotFinite)),
    }
    let begun = Instant::now();
    check(out, &shape, rows).map_err(refuse)?;
    for (expert, columns) in &done.columns {
        for &row in buckets.rows(*expert) {
            columns.apply(&mut out[row * shape.n..][..shape.n], shape.n);
        }
    }
    done.record.times.results_ns += ns(begun);
    done.record.times.convert_ns += convert_ns;
    if verify.is_on()
        && let Some(expert) = buckets.used().next()
    {
        let subject = Subject { weight: &experts[expert], dtype, numerics };
        let few = &buckets.rows(expert)[..buckets.rows(expert).len().min(VERIFIED)];
        let (gathered, results) = sample(few, &shape, rows, out);
        if let Err(why) = verify.check(subject, gathered.rows(), &results) {
            tracing::error!(
                "{name}: {why}; the NPU's results cannot be trusted, so it is left alone until this \
                 process ends, and everything is computed on the CPU"
            );
            engine.distrust();
            return Err(refuse(Redo::Mismatch));
        }
    }
    Ok(done.record)
}

/// Rows of the first expert that are compared.
const VERIFIED: usize = 4;

fn sample(
    few: &[usize],
    shape: &ExpertsShape,
    rows: Rows<'_>,
    out: &[f32],
) -> (lanes::Gathered, Vec<f32>) {
    let sources: Vec<usize> = few.iter().map(|r| activation_row(shape, *r)).collect();
    let results = few.iter().flat_map(|r| &out[r * shape.n..][..shape.n]).copied().collect();
    (lanes::Gathered::of(rows, shape, &sources), results)
}

/// Looks at the results as [`super::mul_mat`] does; the scale of a row is that of its activation.
fn check(out: &[f32], shape: &ExpertsShape, rows: Rows<'_>) -> Result<(), Redo> {
    match rows {
        Rows::Fp16 { scales, .. } => {
            out.chunks_exact(shape.n).enumerate().try_for_each(|(row, values)| {
                let scale = scales[activation_row(shape, row)];
                scale::check_result(values, shape.n, &[scale])
            })
        }
        _ => scale::check_finite(out),
    }
}
