//! The products of all experts, each whole on one worker.

use super::{Job, activation_row};
use crate::exec::activation::Rows;
use crate::exec::codes::CodedWeight;
use crate::exec::parallel;
use crate::exec::product::{Tiles, int8, mismatch};
use crate::exec::residency::Packed;
use crate::exec::times::ns;
use crate::exec::weight::{Columns, Source, Weight};
use crate::route::{ExpertsShape, Numerics};
use half::f16;
use rocket_runtime::matmul::{
    self, Fp16, Lane, Matrix, Npu, Operand, Product, Scales, Stats, Summation,
};
use rocket_runtime::{Error, Result};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Bytes of gathered rows that are made ready at once: the next ones are gathered while other
/// workers' products run.
const GATHERED: usize = 8 << 20;

/// Columns of the results that still have to be multiplied, by expert.
pub type Factors = Vec<(usize, Arc<Columns>)>;

/// One expert's work.
struct Task<'a> {
    expert: usize,
    /// Rows of the activation.
    sources: Vec<usize>,
    out: Vec<&'a mut [f32]>,
}

/// Multiplies with the resident experts, or with ones that are packed for this call.
///
/// # Errors
/// The runtime's.
pub fn multiply(npu: &Npu, job: Job<'_>, packed: Option<&[Packed]>) -> Result<(Stats, Factors)> {
    let Job { shape, numerics, experts, activation, buckets, out, .. } = job;
    let workers = npu.workers();
    let mut rows: Vec<Option<&mut [f32]>> = out.chunks_exact_mut(shape.n).map(Some).collect();
    let mut lanes: Vec<Vec<Task<'_>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut load = vec![0usize; workers];
    for expert in buckets.used() {
        let own = buckets.rows(expert);
        let lane = match packed {
            Some(all) => all[expert].tiles.lane().ok_or_else(mismatch)?,
            None => (0..workers).min_by_key(|w| load[*w]).unwrap_or(0),
        };
        load[lane] += own.len();
        lanes[lane].push(Task {
            expert,
            sources: own.iter().map(|r| activation_row(&shape, *r)).collect(),
            out: own.iter().filter_map(|r| rows[*r].take()).collect(),
        });
    }
    let lanes: Vec<Mutex<Vec<Task<'_>>>> = lanes.into_iter().map(Mutex::new).collect();
    let ran = npu.lanes(|lane| {
        let mut own = lanes[lane.index()].lock().unwrap_or_else(PoisonError::into_inner);
        let tasks = std::mem::take(&mut *own);
        drop(own);
        let mut all = (Stats::default(), Vec::new());
        for part in parts(tasks, &shape, activation) {
            let (stats, factors) = match packed {
                Some(packed) => resident(lane, part, &shape, activation, packed)?,
                None => streamed(lane, part, &shape, activation, experts, numerics)?,
            };
            all.0 += stats;
            all.1.extend(factors);
        }
        Ok(all)
    })?;
    let mut total = (Stats::default(), Vec::new());
    for (stats, factors) in ran {
        total.0 += stats;
        total.1.extend(factors);
    }
    Ok(total)
}

/// Tasks by [`GATHERED`], at least one in each part.
fn parts<'a>(tasks: Vec<Task<'a>>, shape: &ExpertsShape, rows: Rows<'_>) -> Vec<Vec<Task<'a>>> {
    let element = if let Rows::Codes { .. } = rows { 1 } else { 2 };
    let (mut parts, mut bytes): (Vec<Vec<Task<'a>>>, usize) = (Vec::new(), 0);
    for task in tasks {
        let more = task.sources.len() * shape.k * element;
        match parts.last_mut() {
            Some(last) if bytes + more <= GATHERED => {
                bytes += more;
                last.push(task);
            }
            _ => {
                bytes = more;
                parts.push(vec![task]);
            }
        }
    }
    parts
}

fn resident(
    lane: &mut Lane<'_>,
    tasks: Vec<Task<'_>>,
    shape: &ExpertsShape,
    rows: Rows<'_>,
    packed: &[Packed],
) -> Result<(Stats, Factors)> {
    let begun = Instant::now();
    let gathered: Vec<Gathered> =
        tasks.iter().map(|t| Gathered::of(rows, shape, &t.sources)).collect();
    let gather_ns = ns(begun);
    let mut factors = Vec::new();
    let mut products = Vec::with_capacity(tasks.len());
    for (task, own) in tasks.into_iter().zip(&gathered) {
        let p = &packed[task.expert];
        factors.push((task.expert, p.columns.clone()));
        let (m, k) = (task.sources.len(), shape.k);
        products.push(match (own.rows(), &p.tiles) {
            (Rows::Codes { codes, scales }, Tiles::Int8(w, columns)) => {
                let scales = Scales { rows: scales, columns };
                let a = Matrix::new(codes, m, k, k);
                Product::scaled_rows(a, Operand::Resident(w), scales, task.out)?
            }
            (Rows::Fp16 { rows, scales }, Tiles::Fp16(w)) => {
                let a = Matrix::new(rows, m, k, k);
                let w = Operand::Resident(w);
                Product::fp16_rows(a, w, task.out, Some(scales), Summation::OnChip)?
            }
            _ => return Err(mismatch()),
        });
    }
    let mut stats = lane.run(&mut products)?;
    stats.times.activations += gather_ns;
    Ok((stats, factors))
}

/// One expert after another, so that only one is decoded at a time.
fn streamed(
    lane: &mut Lane<'_>,
    tasks: Vec<Task<'_>>,
    shape: &ExpertsShape,
    rows: Rows<'_>,
    experts: &[Weight<'_>],
    numerics: Numerics,
) -> Result<(Stats, Factors)> {
    let (mut total, mut factors) = (Stats::default(), Vec::new());
    for task in tasks {
        let own = Gathered::of(rows, shape, &task.sources);
        let (m, k, weight) = (task.sources.len(), shape.k, experts[task.expert]);
        let columns = match own.rows() {
            Rows::Fp16 { rows, scales } => {
                let source = Source::new(weight);
                let w = Operand::Stream(Fp16, &source);
                let a = Matrix::new(rows, m, k, k);
                let product = Product::fp16_rows(a, w, task.out, Some(scales), Summation::OnChip)?;
                total += lane.run(&mut [product])?;
                source.columns()
            }
            Rows::Codes { codes, scales } => {
                let begun = Instant::now();
                let decoded = Decoded::new(weight, numerics, 1)?;
                let decode_ns = ns(begun);
                if decoded.fit() {
                    let w = matmul::Rows::new(&decoded.codes, weight.n(), k);
                    let scales = Scales { rows: scales, columns: &decoded.scales };
                    let a = Matrix::new(codes, m, k, k);
                    let w = Operand::Stream(int8(numerics), &w);
                    let product = Product::scaled_rows(a, w, scales, task.out)?;
                    total += lane.run(&mut [product])?;
                    total.times.weights += decode_ns;
                    Columns::default()
                } else {
                    Columns::unfit()
                }
            }
            Rows::Bf16(_) => return Err(mismatch()),
        };
        factors.push((task.expert, Arc::new(columns)));
    }
    Ok((total, factors))
}

/// An expert's codes, made before anything of the NPU is locked.
#[derive(Debug)]
pub struct Decoded {
    /// N rows of K.
    pub codes: Vec<i8>,
    /// Groups x N.
    pub scales: Vec<f32>,
    /// For the store.
    pub notes: Vec<u8>,
    fit: bool,
}

impl Decoded {
    /// Decodes, rotates and rounds, on up to `threads` threads.
    ///
    /// # Errors
    /// [`Error::Unusable`] when a thread panics, or for numbers that are no codes.
    pub fn new(weight: Weight<'_>, numerics: Numerics, threads: usize) -> Result<Decoded> {
        use matmul::Weights;
        let coded = CodedWeight::new(weight, numerics).ok_or_else(mismatch)?;
        let (n, k) = (weight.n(), weight.k());
        let mut codes = vec![0i8; n * k];
        let rows = codes.chunks_exact_mut(k).enumerate();
        let load = |(): &mut (), (i, row): (usize, &mut [i8])| {
            coded.load(i, row);
            Ok(())
        };
        parallel::each(rows, n, k, threads, || (), load)
            .map_err(|_| Error::Unusable { why: "a decoding thread panicked".into() })?;
        let (scales, notes, fit) = (coded.scales(), coded.notes(), coded.fit());
        Ok(Decoded { codes, scales, notes, fit })
    }

    /// Whether every element was finite.
    pub fn fit(&self) -> bool {
        self.fit
    }
}

/// Rows of an activation, close together.
#[derive(Debug)]
pub enum Gathered {
    /// In F16, with the scale of each row.
    Fp16(Vec<f16>, Vec<f32>),
    /// As codes, with scales group by group.
    Codes(Vec<i8>, Vec<f32>),
    /// Not a kind that experts have.
    Other,
}

impl Gathered {
    /// The rows numbered `sources`.
    pub fn of(rows: Rows<'_>, shape: &ExpertsShape, sources: &[usize]) -> Gathered {
        let (k, all) = (shape.k, shape.tokens * shape.rows);
        match rows {
            Rows::Fp16 { rows, scales } => {
                let mut own = Vec::with_capacity(sources.len() * k);
                sources.iter().for_each(|r| own.extend_from_slice(&rows[r * k..][..k]));
                Gathered::Fp16(own, sources.iter().map(|r| scales[*r]).collect())
            }
            Rows::Codes { codes, scales } => {
                let mut own = Vec::with_capacity(sources.len() * k);
                sources.iter().for_each(|r| own.extend_from_slice(&codes[r * k..][..k]));
                let groups = scales.chunks_exact(all);
                let scales = groups.flat_map(|g| sources.iter().map(|r| g[*r])).collect();
                Gathered::Codes(own, scales)
            }
            Rows::Bf16(_) => Gathered::Other,
        }
    }

    /// As the products take them.
    pub fn rows(&self) -> Rows<'_> {
        match self {
            Gathered::Fp16(rows, scales) => Rows::Fp16 { rows, scales },
            Gathered::Codes(codes, scales) => Rows::Codes { codes, scales },
            Gathered::Other => Rows::Bf16(&[]),
        }
    }
}
