//! The calls: one a kind of result.

use super::format::{Float, Format, Fp16, Integer, Summation};
use super::operand::{Matrix, Operand, out_of_range};
use super::output::{Groups, Out};
use super::share::{Activations, split_columns};
use super::{Npu, Stats};
use crate::dtype::DType;
use crate::plan::Shape;
use crate::plan::search::MAX_DIM;
use crate::{Error, Result};
use bytemuck::Pod;
use std::ops::Range;

/// Scales of a quantized product, group by group: with G groups of channels,
/// `C[m, n] = sum over g of rows[g * M + m] * columns[g * N + n] * P[g, m, n]`, where P is the exact
/// integer sum of the group (npu-rk3588 7.6). G is 1 for a format without groups.
#[derive(Debug, Clone, Copy)]
pub struct Scales<'a> {
    /// G x M: one a row of the activations, group by group.
    /// [`quantize_row`](crate::kernels::quant::quantize_row) writes those of one row side by side.
    pub rows: &'a [f32],
    /// G x N: one a row of the weights, group by group.
    pub columns: &'a [f32],
}

impl Scales<'_> {
    /// Channels of a group of `format`, if the scales are as many as the product needs.
    pub(super) fn check<F: Integer>(&self, format: F, shape: Shape) -> Result<usize> {
        let len = format.group().unwrap_or(shape.k).min(shape.k);
        fits_32_bits(format, shape, len)?;
        let groups = shape.k.div_ceil(len.max(1));
        let found = [self.rows.len(), self.columns.len()];
        if found != [groups * shape.m, groups * shape.n] {
            let why = format!(
                "{groups} group(s) of {} rows and {} columns need as many scales each, not {} and {}",
                shape.m, shape.n, found[0], found[1]
            );
            return refuse(shape, why);
        }
        // A K that is one group is so on its grid as well.
        let grid = format.dtype().info().k_group;
        Ok(if groups == 1 { len.next_multiple_of(grid) } else { len })
    }
}

impl Npu {
    /// Multiplies in fp16: `a` is M x K, `w` N x K, `out` M x N, row-major; row `m` of it is
    /// multiplied by `row_scale[m]` if given. How far a result may be off, by `summation`, is in
    /// `docs/library.md`. On chip a partial sum beyond 65 504 becomes infinite (npu-rk3588 5.2).
    ///
    /// # Errors
    /// [`Error::Shape`] when the operands do not fit together or a dimension is 0 or beyond 2^24;
    /// [`Error::Unusable`] for weights of another Npu, after a fork, and when a source of weights
    /// panics; [`Error::Memory`] when there is no room for the call's buffers; and whatever the
    /// device does wrong, a lost job after one retry. `out` then holds no result.
    pub fn gemm(
        &self,
        a: Matrix<'_>,
        w: Operand<'_, Fp16>,
        out: &mut [f32],
        row_scale: Option<&[f32]>,
        summation: Summation,
    ) -> Result<Stats> {
        self.floats(a, w, out, row_scale, summation.dtype())
    }

    /// Multiplies in a format with fp32 results. `out` is M x N, row-major; row `m` is multiplied
    /// by `row_scale[m]` if given. The hardware adds up each K step in about fp32, the host the
    /// steps in binary64 (npu-rk3588 5.2, 7.3).
    ///
    /// # Errors
    /// As [`Npu::gemm`].
    pub fn gemm_float<F: Float>(
        &self,
        a: Matrix<'_, F::Element>,
        w: Operand<'_, F>,
        out: &mut [f32],
        row_scale: Option<&[f32]>,
    ) -> Result<Stats> {
        self.floats(a, w, out, row_scale, w.format().dtype())
    }

    fn floats<F: Format>(
        &self,
        a: Matrix<'_, F::Element>,
        w: Operand<'_, F>,
        out: &mut [f32],
        row_scale: Option<&[f32]>,
        dtype: DType,
    ) -> Result<Stats> {
        let shape = shape(a, w, out.len())?;
        if let Some(found) = row_scale.map(<[f32]>::len).filter(|len| *len != shape.m) {
            return refuse(shape, format!("there must be one scale a row, not {found}"));
        }
        self.multiply(w, dtype, shape, Activations::Stored(a.bytes()), |columns| {
            let parts = split_columns(out, columns);
            parts.into_iter().map(|rows| Out::Float { rows, scale: row_scale }).collect()
        })
    }

    /// Multiplies integer codes exactly: `a` is M x K, `w` N x K, `out` M x N, row-major. A group of
    /// the format makes no difference to the result.
    ///
    /// # Errors
    /// As [`Npu::gemm`]; [`Error::Shape`] also when K is so large that a sum could leave 32 bits
    /// (int8: beyond 131 071), and when an activation is not one of the format's codes.
    pub fn gemm_exact<F: Integer>(
        &self,
        a: Matrix<'_, i8>,
        w: Operand<'_, F>,
        out: &mut [i32],
    ) -> Result<Stats> {
        let shape = shape(a, w, out.len())?;
        fits_32_bits(w.format(), shape, shape.k)?;
        self.codes(a, w, shape, |columns| {
            split_columns(out, columns).into_iter().map(|rows| Out::Exact { rows }).collect()
        })
    }

    /// Multiplies integer codes with scales: `a` is M x K, `w` N x K, `out` M x N, row-major. A term
    /// is `(row scale * column scale) * sum`, terms are added up in the order of the groups; each
    /// operation rounds to binary32.
    ///
    /// # Errors
    /// As [`Npu::gemm_exact`], the bound of 32 bits for one group; [`Error::Shape`] when the
    /// scales are not as many as [`Scales`] says.
    pub fn gemm_scaled<F: Integer>(
        &self,
        a: Matrix<'_, i8>,
        w: Operand<'_, F>,
        scales: Scales<'_>,
        out: &mut [f32],
    ) -> Result<Stats> {
        let shape = shape(a, w, out.len())?;
        let len = scales.check(w.format(), shape)?;
        self.codes(a, w, shape, |columns| {
            let parts = split_columns(out, columns).into_iter().zip(columns);
            parts
                .map(|(rows, columns)| {
                    let scales = Groups {
                        rows: scales.rows,
                        columns: scales.columns,
                        m: shape.m,
                        n: shape.n,
                        first: columns.start,
                        len,
                    };
                    Out::Scaled { rows, scales }
                })
                .collect()
        })
    }
}

/// The shape of a product whose output has `len` elements.
pub(super) fn shape<F: Format, E: Pod>(
    a: Matrix<'_, E>,
    w: Operand<'_, F>,
    len: usize,
) -> Result<Shape> {
    let [n, k] = w.size();
    let shape = Shape { m: a.rows(), k: a.cols(), n };
    if shape.m == 0 || n == 0 || k == 0 {
        return refuse(shape, "every dimension must be at least 1".into());
    }
    if shape.k != k {
        return refuse(shape, format!("the weights have K = {k}"));
    }
    if shape.m.max(k).max(n) > MAX_DIM {
        return refuse(shape, "a dimension is beyond 2^24 (npu-rk3588 7.1)".into());
    }
    if shape.m.checked_mul(n) != Some(len) {
        return refuse(shape, format!("the output holds {len} elements, not M x N"));
    }
    Ok(shape)
}

pub(super) fn refuse<T>(shape: Shape, why: String) -> Result<T> {
    Err(Error::Shape { what: super::gemm_of(shape), why })
}

pub(super) fn fits_32_bits<F: Integer>(format: F, shape: Shape, channels: usize) -> Result<()> {
    let most = i32::MAX as usize / format.largest_product();
    if channels <= most {
        return Ok(());
    }
    refuse(
        shape,
        format!(
            "a sum of more than {most} channels may leave 32 bits; use groups, or multiply K in parts"
        ),
    )
}

impl Npu {
    /// Runs integer codes.
    fn codes<'o, F: Integer>(
        &self,
        a: Matrix<'_, i8>,
        w: Operand<'_, F>,
        shape: Shape,
        outs: impl FnOnce(&[Range<usize>]) -> Vec<Out<'o>>,
    ) -> Result<Stats> {
        let format = w.format();
        let store = |r: usize, dst: &mut [u8]| match format.store(a.row(r), dst) {
            true => Ok(()),
            false => Err(out_of_range(format, "activation row", r)),
        };
        let activations = match format.dtype().info().bits {
            8 => Activations::Stored(a.bytes()),
            _ => {
                let row_bytes = a.cols().div_ceil(2);
                Activations::Codes { rows: a.rows(), row_bytes, store: &store }
            }
        };
        self.multiply(w, format.dtype(), shape, activations, outs)
    }
}
