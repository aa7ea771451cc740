//! What goes into a GEMM: activations as a [`Matrix`], weights as [`Weights`] or as [`Resident`].

use super::format::{Format, Fp16};
use super::resident::Resident;
use crate::kernels::Bytes;
use crate::{Error, Result};
use bytemuck::Pod;
use half::f16;
use std::fmt::Debug;

/// A row-major matrix, perhaps a part of a wider one.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, E = f16> {
    data: &'a [E],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a, E: Pod> Matrix<'a, E> {
    /// `rows` x `cols` elements, rows `stride` elements apart: `cols` when nothing lies between
    /// them. The last row needs its own elements only, no whole stride.
    ///
    /// # Panics
    /// When `stride` is less than `cols`, or `data` does not hold the last row.
    pub fn new(data: &'a [E], rows: usize, cols: usize, stride: usize) -> Matrix<'a, E> {
        assert!(cols <= stride, "rows of {cols} elements cannot begin {stride} apart");
        let needed = rows.saturating_sub(1).checked_mul(stride).and_then(|x| x.checked_add(cols));
        assert!(
            rows == 0 || needed.is_some_and(|needed| needed <= data.len()),
            "{} elements do not hold {rows} rows of {cols}, {stride} apart",
            data.len()
        );
        Matrix { data, rows, cols, stride }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// Row `r`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, r: usize) -> &'a [E] {
        &self.data[r * self.stride..][..self.cols]
    }

    /// As bytes: how every format but int4 is stored.
    pub(super) fn bytes(&self) -> Bytes<'a> {
        let e = size_of::<E>();
        Bytes::new(bytemuck::cast_slice(self.data), self.rows, self.cols * e, self.stride * e)
    }
}

/// A source of weights, N rows of K elements. Rows may be decoded as they are asked for: several
/// workers ask at once, in any order, and each row once for a part that is packed (int4 once more,
/// to plan). Both sizes and every row must stay the same. A panic in here ends the call with
/// [`Error::Unusable`], or passes through it; a call of the same Npu from in here waits for ever.
pub trait Weights<E = f16>: Sync + Debug {
    /// Rows (columns of the result).
    fn n(&self) -> usize;
    /// Elements of a row.
    fn k(&self) -> usize;
    /// Writes row `n` into `dst`, which holds K elements.
    fn load(&self, n: usize, dst: &mut [E]);

    /// What was found out while all rows were loaded and is needed beside the packed weights, as
    /// their scales: a [`Store`](crate::store::Store) keeps it with them.
    fn notes(&self) -> Vec<u8> {
        Vec::new()
    }

    /// Takes the notes of the same weights, packed by an earlier process; false when they are not
    /// notes of these. Called instead of loading any row.
    fn recall(&self, notes: &[u8]) -> bool {
        notes.is_empty()
    }
}

/// Weights that lie in memory, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, E = f16> {
    data: &'a [E],
    n: usize,
    k: usize,
}

impl<'a, E> Rows<'a, E> {
    /// `n` rows of `k` elements.
    ///
    /// # Panics
    /// When `data` is not exactly that long.
    pub fn new(data: &'a [E], n: usize, k: usize) -> Rows<'a, E> {
        let len = data.len();
        assert!(n.checked_mul(k) == Some(len), "{len} elements are not {n} rows of {k}");
        Rows { data, n, k }
    }
}

impl<E: Copy + Sync + Debug> Weights<E> for Rows<'_, E> {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, n: usize, dst: &mut [E]) {
        dst.copy_from_slice(&self.data[n * self.k..][..self.k]);
    }
}

/// What a GEMM multiplies the activations with.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a, F: Format = Fp16> {
    /// Packed before, see [`Npu::pack`](super::Npu::pack).
    Resident(&'a Resident<F>),
    /// Packed now, for this call.
    Stream(F, &'a dyn Weights<F::Element>),
}

impl<F: Format> Operand<'_, F> {
    pub(super) fn format(&self) -> F {
        match self {
            Operand::Resident(r) => r.format(),
            Operand::Stream(f, _) => *f,
        }
    }

    /// N and K.
    pub(super) fn size(&self) -> [usize; 2] {
        match self {
            Operand::Resident(r) => [r.n(), r.k()],
            Operand::Stream(_, w) => [w.n(), w.k()],
        }
    }
}

/// Rows of weights as they are stored in a cube.
pub(super) trait Stored: Sync {
    /// Elements of a row.
    fn k(&self) -> usize;
    /// Writes row `n` into `dst`. `row` is room for one row of the caller's elements.
    fn load(&self, n: usize, row: &mut Vec<u64>, dst: &mut [u8]) -> Result<()>;
}

/// Weights of a format, row by row.
#[derive(Debug)]
pub(super) struct StoredRows<'a, F: Format>(pub F, pub &'a dyn Weights<F::Element>);

impl<F: Format> Stored for StoredRows<'_, F> {
    fn k(&self) -> usize {
        self.1.k()
    }

    fn load(&self, n: usize, row: &mut Vec<u64>, dst: &mut [u8]) -> Result<()> {
        let bytes = self.1.k() * size_of::<F::Element>();
        row.resize(bytes.div_ceil(8), 0);
        let row: &mut [F::Element] =
            bytemuck::cast_slice_mut(&mut bytemuck::cast_slice_mut::<u64, u8>(row)[..bytes]);
        self.1.load(n, row);
        if self.0.store(row, dst) { Ok(()) } else { Err(out_of_range(self.0, "row", n)) }
    }
}

/// A code that its format does not have.
pub(super) fn out_of_range<F: Format>(format: F, what: &str, n: usize) -> Error {
    Error::Shape {
        what: format!("{what} {n} in {format:?}"),
        why: "a code is outside of -7..=7, or of -8..=7 with `full` (npu-rk3588 5.3)".into(),
    }
}
