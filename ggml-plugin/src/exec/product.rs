//! One product on an NPU, in each of the formats: what is packed of a weight, and which call of
//! the runtime multiplies with it.

use super::activation::Rows;
use super::codes::CodedWeight;
use super::engine::MatMul;
use super::residency::Packed;
use super::times::ns;
use super::weight::{Columns, Source, WideSource};
use super::{Redo, parallel};
use crate::route::Numerics;
use rocket_runtime::matmul::{
    self, Bf16, Fp16, Int4, Int8, Integer, Matrix, Npu, Operand, Resident, Scales, Stats,
    Summation, Together, Weights,
};
use rocket_runtime::{Error, Result};
use std::sync::Arc;
use std::time::Instant;

/// A packed weight in its format.
#[derive(Debug)]
pub enum Tiles {
    /// F16.
    Fp16(Resident<Fp16>),
    /// BF16.
    Bf16(Resident<Bf16>),
    /// 8-bit codes and the scales of their groups.
    Int8(Resident<Int8>, Vec<f32>),
    /// 4-bit codes and the scales of their groups.
    Int4(Resident<Int4>, Vec<f32>),
}

impl Tiles {
    /// Bytes of NPU memory.
    pub fn bytes(&self) -> u64 {
        match self {
            Tiles::Fp16(r) => r.bytes(),
            Tiles::Bf16(r) => r.bytes(),
            Tiles::Int8(r, _) => r.bytes(),
            Tiles::Int4(r, _) => r.bytes(),
        }
    }
}

impl Tiles {
    /// The worker that holds all of it, if one does.
    pub fn lane(&self) -> Option<usize> {
        match self {
            Tiles::Fp16(r) => r.lane(),
            Tiles::Bf16(r) => r.lane(),
            Tiles::Int8(r, _) => r.lane(),
            Tiles::Int4(r, _) => r.lane(),
        }
    }
}

/// Packs the weight of `job`, to stay.
///
/// # Errors
/// The runtime's.
pub fn pack(npu: &Npu, job: &MatMul<'_>) -> Result<Packed> {
    let columns = |fit| Arc::new(if fit { Columns::default() } else { Columns::unfit() });
    let coded = || CodedWeight::new(job.weight, job.numerics).ok_or_else(mismatch);
    let packed = match job.numerics {
        Numerics::Fp16 => {
            let source = Source::new(job.weight);
            let tiles = Tiles::Fp16(npu.pack(Fp16, &source)?);
            Packed { tiles, columns: Arc::new(source.columns()) }
        }
        Numerics::Bf16 => {
            let source = WideSource::new(job.weight);
            let tiles = Tiles::Bf16(npu.pack(Bf16, &source)?);
            Packed { tiles, columns: columns(source.fit()) }
        }
        Numerics::Int8(_) | Numerics::Native(_) | Numerics::Shifted(_) => {
            let source = coded()?;
            let tiles = npu.pack(int8(job.numerics), &source)?;
            let fit = columns(source.fit());
            Packed { tiles: Tiles::Int8(tiles, source.scales()), columns: fit }
        }
        Numerics::Int4(_) => {
            let source = coded()?;
            let tiles = npu.pack(int4(job.numerics), &source)?;
            let fit = columns(source.fit());
            Packed { tiles: Tiles::Int4(tiles, source.scales()), columns: fit }
        }
    };
    tracing::debug!("packed the weight of {}: {} kB", job.name, packed.tiles.bytes() >> 10);
    Ok(packed)
}

/// The format of such codes.
pub(super) fn int8(numerics: Numerics) -> Int8 {
    Int8 { group: numerics.codes().map(|c| c.group) }
}

fn int4(numerics: Numerics) -> Int4 {
    Int4 { full: false, group: numerics.codes().map(|c| c.group) }
}

/// The caller prepared other rows than the format needs.
pub(super) fn mismatch() -> Error {
    Error::Unusable { why: "activations and weight of a product are in different numbers".into() }
}

/// Multiplies with a resident weight.
///
/// # Errors
/// The runtime's.
pub fn with_resident(npu: &Npu, job: &mut MatMul<'_>, tiles: &Tiles) -> Result<Stats> {
    let (m, k) = (job.m, job.weight.k());
    match (job.activation, tiles) {
        (Rows::Fp16 { rows, scales }, Tiles::Fp16(w)) => {
            let a = Matrix::new(rows, m, k, k);
            npu.gemm(a, Operand::Resident(w), job.out, Some(scales), Summation::OnChip)
        }
        (Rows::Bf16(rows), Tiles::Bf16(w)) => {
            npu.gemm_float(Matrix::new(rows, m, k, k), Operand::Resident(w), job.out, None)
        }
        (Rows::Codes { codes, scales }, Tiles::Int8(w, columns)) => {
            let scales = Scales { rows: scales, columns };
            npu.gemm_scaled(Matrix::new(codes, m, k, k), Operand::Resident(w), scales, job.out)
        }
        (Rows::Codes { codes, scales }, Tiles::Int4(w, columns)) => {
            let scales = Scales { rows: scales, columns };
            npu.gemm_scaled(Matrix::new(codes, m, k, k), Operand::Resident(w), scales, job.out)
        }
        _ => Err(mismatch()),
    }
}

/// Multiplies with a weight that is packed for this call only.
///
/// # Errors
/// The runtime's.
pub fn streamed(npu: &Npu, job: &mut MatMul<'_>, threads: usize) -> Result<(Stats, Columns)> {
    let (m, k) = (job.m, job.weight.k());
    match (job.activation, job.numerics) {
        (Rows::Fp16 { rows, scales }, Numerics::Fp16) => {
            let source = Source::new(job.weight);
            let w = Operand::Stream(Fp16, &source);
            let a = Matrix::new(rows, m, k, k);
            let stats = npu.gemm(a, w, job.out, Some(scales), Summation::OnChip)?;
            Ok((stats, source.columns()))
        }
        (Rows::Bf16(rows), Numerics::Bf16) => {
            let source = WideSource::new(job.weight);
            let w = Operand::Stream(Bf16, &source);
            let stats = npu.gemm_float(Matrix::new(rows, m, k, k), w, job.out, None)?;
            Ok((stats, if source.fit() { Columns::default() } else { Columns::unfit() }))
        }
        (Rows::Codes { codes, scales }, numerics) => {
            let begun = Instant::now();
            let source = CodedWeight::new(job.weight, numerics).ok_or_else(mismatch)?;
            // The scales must be known before the product is called.
            let mut all = vec![0i8; source.n() * k];
            let rows = all.chunks_exact_mut(k).enumerate();
            parallel::each(
                rows,
                source.n(),
                k,
                threads,
                || (),
                |(), (n, row)| {
                    source.load(n, row);
                    Ok(())
                },
            )
            .map_err(|_: Redo| Error::Unusable { why: "a decoding thread panicked".into() })?;
            if !source.fit() {
                return Ok((Stats::default(), Columns::unfit()));
            }
            let columns = source.scales();
            let scales = Scales { rows: scales, columns: &columns };
            let decoded = ns(begun);
            let w = matmul::Rows::new(&all, source.n(), k);
            let a = Matrix::new(codes, m, k, k);
            let mut stats = match numerics {
                Numerics::Int4(_) => scaled(npu, a, int4(numerics), &w, scales, job.out)?,
                _ => scaled(npu, a, int8(numerics), &w, scales, job.out)?,
            };
            stats.times.weights += decoded;
            Ok((stats, Columns::default()))
        }
        _ => Err(mismatch()),
    }
}

fn scaled<F: Integer>(
    npu: &Npu,
    a: Matrix<'_, i8>,
    format: F,
    w: &matmul::Rows<'_, i8>,
    scales: Scales<'_>,
    out: &mut [f32],
) -> Result<Stats> {
    npu.gemm_scaled(a, Operand::Stream(format, w), scales, out)
}

/// Multiplies one activation in F16 with several resident weights.
///
/// # Errors
/// The runtime's.
pub fn together<'t>(
    npu: &Npu,
    jobs: &mut [MatMul<'_>],
    tiles: impl Iterator<Item = &'t Tiles>,
) -> Result<Vec<Stats>> {
    let Some(first) = jobs.first() else { return Ok(Vec::new()) };
    let Rows::Fp16 { rows, scales } = first.activation else { return Err(mismatch()) };
    let a = Matrix::new(rows, first.m, first.weight.k(), first.weight.k());
    let mut products = Vec::with_capacity(jobs.len());
    for (job, tiles) in jobs.iter_mut().zip(tiles) {
        let Tiles::Fp16(w) = tiles else { return Err(mismatch()) };
        products.push(Together { w, out: &mut *job.out });
    }
    npu.gemm_together(a, &mut products, Some(scales), Summation::OnChip)
}
