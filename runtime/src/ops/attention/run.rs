//! Running an attention: parts from a queue, a worker and its thread at a time.

use super::Attention;
use super::part::{Fitted, Rows as SoftmaxRows, deliver, queries, softmax};
use super::plan::{Part, Unit, units};
use crate::matmul::{Fp16, Lane, Matrix, Npu, Operand, Product, Rows, Stats, Summation, Weights};
use crate::{Error, Result};
use half::f16;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// What an attention came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Of the products that ran.
    pub stats: Stats,
    /// Multiply-accumulates of [`Shape::macs`](super::Shape::macs) that the mask made void and that were left out.
    pub skipped_macs: u64,
    /// Set when the numbers are none: the result then holds nothing.
    pub trouble: Option<Trouble>,
}

/// Numbers that this cannot compute with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// An element of Q is infinite, not a number or beyond 2^126.
    QueryNotFinite,
    /// An element of K or V that some row sees is.
    CacheNotFinite,
    /// A logit or a result is infinite or not a number.
    ResultNotFinite,
}

/// Memory that calls keep for the next ones: what one worker holds at a time, for each.
#[derive(Debug, Default)]
pub struct Scratch(Mutex<Vec<Buffers>>);

impl Scratch {
    fn take(&self) -> Buffers {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop().unwrap_or_default()
    }

    fn put(&self, buffers: Buffers) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(buffers);
    }

    /// Gives it back to the system.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        held.iter().map(Buffers::bytes).sum()
    }
}

/// Of one worker.
#[derive(Debug, Default)]
struct Buffers {
    queries: Vec<f16>,
    /// Of rows: first what makes products logits, then what makes sums results.
    scales: Vec<f32>,
    logits: Vec<f32>,
    values: Vec<f16>,
    context: Vec<f32>,
    rows: SoftmaxRows,
}

impl Buffers {
    fn bytes(&self) -> usize {
        let halves = self.queries.capacity() + self.values.capacity();
        let floats = self.scales.capacity() + self.logits.capacity() + self.context.capacity();
        2 * halves + 4 * floats
    }
}

/// One product: `out[m, n] = scale[m] * sum over k of a[m, k] * w[n, k]`.
pub(super) struct Work<'a> {
    pub a: Matrix<'a>,
    pub w: &'a dyn Weights<f16>,
    pub out: &'a mut [f32],
    pub scale: &'a [f32],
}

/// What multiplies: a lane, or a test.
pub(super) trait Multiply {
    fn multiply(&mut self, work: Vec<Work<'_>>) -> Result<Stats>;
}

impl Multiply for Lane<'_> {
    fn multiply(&mut self, work: Vec<Work<'_>>) -> Result<Stats> {
        let mut products = Vec::with_capacity(work.len());
        for Work { a, w, out, scale } in work {
            let operand = Operand::Stream(Fp16, w);
            products.push(Product::fp16(a, operand, out, Some(scale), Summation::Host)?);
        }
        self.run(&mut products)
    }
}

/// Why a unit ended early.
pub(super) enum End {
    Trouble(Trouble),
    Error(Error),
}

impl From<Trouble> for End {
    fn from(t: Trouble) -> End {
        End::Trouble(t)
    }
}

impl From<Error> for End {
    fn from(e: Error) -> End {
        End::Error(e)
    }
}

/// Computes `out`: rows of V's length, by stream, token and head (the order of ggml's result,
/// ggml-abi 2.6), each written whole. A row that sees nothing is 0, as on ggml's CPU.
///
/// # Errors
/// [`Error::Shape`] when the operands do not belong together; otherwise as
/// [`Npu::gemm`]. `out` then holds no result, nor does it with [`Outcome::trouble`].
pub fn attention(
    npu: &Npu,
    job: &Attention<'_>,
    out: &mut [f32],
    scratch: &Scratch,
) -> Result<Outcome> {
    job.check(out.len())?;
    let queue = Queue::new(job, npu.workers(), out);
    let skipped_macs = queue.skipped;
    let done = npu.lanes(|lane| {
        let mut buffers = scratch.take();
        let done = queue.work(job, lane, &mut buffers);
        scratch.put(buffers);
        done
    })?;
    let mut outcome = Outcome { skipped_macs, ..Outcome::default() };
    for (stats, trouble) in done {
        outcome.stats += stats;
        outcome.trouble = outcome.trouble.or(trouble);
    }
    Ok(outcome)
}

type Outs<'o> = Vec<Vec<&'o mut [f32]>>;

/// Units that nobody has taken, each with its rows of the result.
struct Queue<'o> {
    units: Mutex<std::vec::IntoIter<(Unit, Outs<'o>)>>,
    /// Nothing more is worth doing.
    ended: AtomicBool,
    skipped: u64,
}

impl<'o> Queue<'o> {
    fn new(job: &Attention<'_>, workers: usize, out: &'o mut [f32]) -> Queue<'o> {
        let s = job.shape;
        let units = units(job, workers);
        let computed: u64 =
            units.iter().flatten().map(|p| (p.logits(s) * (s.key + s.value)) as u64).sum();
        let mut rows: Vec<Option<&mut [f32]>> = out.chunks_exact_mut(s.value).map(Some).collect();
        let mut take = |stream: usize, [head, token]: [usize; 2]| {
            rows[(stream * s.tokens + token) * s.heads + head].take()
        };
        let units: Vec<(Unit, Outs<'o>)> = units
            .into_iter()
            .map(|unit| {
                let of =
                    |p: &Part| (0..p.rows(s)).filter_map(|r| take(p.stream, p.row(s, r))).collect();
                let outs = unit.iter().map(of).collect();
                (unit, outs)
            })
            .collect();
        Queue {
            units: Mutex::new(units.into_iter()),
            ended: AtomicBool::new(false),
            skipped: s.macs() - computed,
        }
    }

    fn next(&self) -> Option<(Unit, Outs<'o>)> {
        if self.ended.load(Ordering::Relaxed) {
            return None;
        }
        self.units.lock().unwrap_or_else(PoisonError::into_inner).next()
    }

    fn work(
        &self,
        job: &Attention<'_>,
        with: &mut dyn Multiply,
        buffers: &mut Buffers,
    ) -> Result<(Stats, Option<Trouble>)> {
        let mut stats = Stats::default();
        while let Some((unit, mut outs)) = self.next() {
            match one(job, &unit, &mut outs, with, buffers) {
                Ok(more) => stats += more,
                Err(end) => {
                    self.ended.store(true, Ordering::Relaxed);
                    return match end {
                        End::Trouble(t) => Ok((stats, Some(t))),
                        End::Error(e) => Err(e),
                    };
                }
            }
        }
        stats.workers = stats.workers.min(1);
        Ok((stats, None))
    }
}

/// Cuts `lens` elements each from the beginning of `all`.
fn cut<T>(mut all: &mut [T], lens: impl Iterator<Item = usize>) -> Vec<&mut [T]> {
    lens.map(|len| {
        let (part, rest) = std::mem::take(&mut all).split_at_mut(len);
        all = rest;
        part
    })
    .collect()
}

/// Grows a buffer; what is in it is of no use.
fn room<T: Clone>(buffer: &mut Vec<T>, len: usize, fill: T) -> &mut [T] {
    if buffer.len() < len {
        buffer.resize(len, fill);
    }
    &mut buffer[..len]
}

fn one<'p>(
    job: &Attention<'p>,
    unit: &'p Unit,
    outs: &mut Outs<'_>,
    with: &mut dyn Multiply,
    buffers: &mut Buffers,
) -> Result<Stats, End> {
    let s = job.shape;
    let (mut parts, mut results) = (Vec::new(), Vec::new());
    for (part, out) in unit.iter().zip(outs) {
        if part.block.columns.len() == 0 {
            out.iter_mut().for_each(|row| row.fill(0.0));
        } else {
            parts.push(part);
            results.push(out);
        }
    }
    if parts.is_empty() {
        return Ok(Stats::default());
    }
    let rows = || parts.iter().map(|p| p.rows(s));
    let columns = || parts.iter().map(|p| p.block.columns.len());
    let total: usize = rows().sum();
    let queries_ = room(&mut buffers.queries, total * s.key, f16::ZERO);
    let mut q = cut(queries_, rows().map(|r| r * s.key));
    let mut scales = cut(room(&mut buffers.scales, total, 0.0), rows());
    let logits = parts.iter().map(|p| p.logits(s)).sum();
    let mut logits = cut(room(&mut buffers.logits, logits, 0.0), parts.iter().map(|p| p.logits(s)));
    let fitted = |source, len| {
        let of = |p: &'p Part| Fitted::new(source, [p.stream, p.kv_head], &p.block.columns, len);
        parts.iter().copied().map(of).collect::<Result<Vec<_>, Trouble>>()
    };
    let keys = fitted(job.k, s.key)?;
    for (i, part) in parts.iter().enumerate() {
        queries(job, part, keys[i].scale, q[i], scales[i])?;
    }
    let mut work = Vec::with_capacity(parts.len());
    for (i, out) in logits.iter_mut().enumerate() {
        let a = Matrix::new(&*q[i], scales[i].len(), s.key, s.key);
        work.push(Work { a, w: &keys[i], out, scale: &*scales[i] });
    }
    let mut stats = with.multiply(work)?;
    keys.iter().try_for_each(Fitted::fit)?;

    let values = fitted(job.v, s.value)?;
    let wide = room(&mut buffers.values, columns().sum::<usize>() * s.value, f16::ZERO);
    let mut transposed = cut(wide, columns().map(|n| n * s.value));
    for (i, part) in parts.iter().enumerate() {
        softmax(job, part, values[i].scale, logits[i], scales[i], &mut buffers.rows)?;
        values[i].transpose(transposed[i]);
        values[i].fit()?;
    }
    let mut context =
        cut(room(&mut buffers.context, total * s.value, 0.0), rows().map(|r| r * s.value));
    let weights: Vec<Rows<'_>> =
        transposed.iter().zip(columns()).map(|(t, n)| Rows::new(t, s.value, n)).collect();
    let mut work = Vec::with_capacity(parts.len());
    for (i, out) in context.iter_mut().enumerate() {
        let n = parts[i].block.columns.len();
        let a = Matrix::new(bytemuck::cast_slice(&*logits[i]), scales[i].len(), n, 2 * n);
        work.push(Work { a, w: &weights[i], out, scale: &*scales[i] });
    }
    stats += with.multiply(work)?;
    for (context, out) in context.iter().zip(results) {
        deliver(context, s.value, out)?;
    }
    Ok(stats)
}

#[cfg(test)]
mod tests;
