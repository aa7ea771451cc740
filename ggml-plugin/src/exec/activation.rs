//! The activation of one product: strided rows in, dense F16 rows and their scales out.
//!
//! Beside a quantized weight the host's CPU rounds activations to 8 bits; this does not. Imitating
//! it brings the results no nearer to the CPU's: differences in the last bit change which way
//! values round, and after a few layers two runs differ by as much as the rounding itself. The CPU
//! backend's own variants for different instruction sets differ from each other that much.

use super::codes::CodedRows;
use super::{Redo, parallel, scale};
use crate::route::Numerics;
use half::slice::HalfFloatSliceExt;
use half::{bf16, f16};

/// Rows of `k` elements over three dimensions, each with a stride of its own.
#[derive(Debug, Clone, Copy)]
pub struct Activation<'a> {
    data: &'a [f32],
    k: usize,
    rows: [usize; 3],
    strides: [usize; 3],
}

impl<'a> Activation<'a> {
    /// `rows` rows of `k` elements; `strides` are in elements. `None` when the last one does not
    /// lie in `data`.
    pub fn new(
        data: &'a [f32],
        k: usize,
        rows: [usize; 3],
        strides: [usize; 3],
    ) -> Option<Activation<'a>> {
        (Self::extent(k, rows, strides)? <= data.len()).then_some(Activation {
            data,
            k,
            rows,
            strides,
        })
    }

    /// Elements from the first of the first row to the last of the last.
    pub fn extent(k: usize, rows: [usize; 3], strides: [usize; 3]) -> Option<usize> {
        rows.iter().zip(strides).try_fold(k, |sum, (&n, stride)| {
            sum.checked_add(n.checked_sub(1)?.checked_mul(stride)?)
        })
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.rows.iter().product()
    }

    /// Never: a dimension has at least one element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Row `i`, counted over all dimensions.
    ///
    /// # Panics
    /// When there is none.
    pub fn row(&self, i: usize) -> &'a [f32] {
        let [a, b, _] = self.rows;
        let at = [i % a, i / a % b, i / a / b];
        let first: usize = at.iter().zip(self.strides).map(|(i, s)| i * s).sum();
        &self.data[first..][..self.k]
    }
}

/// `m` dense rows of `k` for the NPU.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// In F16.
    Fp16 {
        /// Magnitudes at most 1.
        rows: &'a [f16],
        /// The power of two that each row was divided by.
        scales: &'a [f32],
    },
    /// As they are.
    Bf16(&'a [bf16]),
    /// As codes.
    Codes {
        /// Of each element.
        codes: &'a [i8],
        /// Of each group and row, group by group.
        scales: &'a [f32],
    },
}

/// Memory for dense rows, kept between calls.
#[derive(Debug, Default)]
pub struct Prepared {
    rows: Vec<f16>,
    scales: Vec<f32>,
    wide: Vec<bf16>,
    coded: CodedRows,
}

impl Prepared {
    /// Fills this from `a` for a product in these numbers, on up to `threads` threads.
    ///
    /// # Errors
    /// A row that cannot be converted.
    pub fn fill(
        &mut self,
        a: &Activation<'_>,
        numerics: Numerics,
        threads: usize,
    ) -> Result<(), Redo> {
        let (m, k) = (a.len(), a.k);
        match numerics {
            Numerics::Fp16 => {
                self.rows.resize(m * k, f16::ZERO);
                self.scales.resize(m, 0.0);
                let rows = self.rows.chunks_mut(k).zip(&mut self.scales).enumerate();
                parallel::each(
                    rows,
                    m,
                    k,
                    threads,
                    || (),
                    |(), (i, (out, s))| {
                        let row = a.row(i);
                        *s = scale::row_scale(row)?;
                        scale::to_f16(row, *s, out);
                        Ok(())
                    },
                )
            }
            Numerics::Bf16 => {
                self.wide.resize(m * k, bf16::ZERO);
                let rows = self.wide.chunks_mut(k).enumerate();
                parallel::each(
                    rows,
                    m,
                    k,
                    threads,
                    || (),
                    |(), (i, out)| {
                        let row = a.row(i);
                        // BF16 has the range of F32, but for its very last binade's top.
                        let max = scale::max_abs(row).ok_or(Redo::ActivationNotFinite)?;
                        if max > bf16::MAX.to_f32() {
                            return Err(Redo::ActivationRange);
                        }
                        out.convert_from_f32_slice(row);
                        Ok(())
                    },
                )
            }
            Numerics::Int8(_) | Numerics::Int4(_) | Numerics::Native(_) | Numerics::Shifted(_) => {
                self.coded.fill(a, numerics, threads)
            }
        }
    }

    /// What [`Prepared::fill`] left for the same numbers.
    pub fn rows(&self, numerics: Numerics) -> Rows<'_> {
        match numerics {
            Numerics::Fp16 => Rows::Fp16 { rows: &self.rows, scales: &self.scales },
            Numerics::Bf16 => Rows::Bf16(&self.wide),
            Numerics::Int8(_) | Numerics::Int4(_) | Numerics::Native(_) | Numerics::Shifted(_) => {
                Rows::Codes { codes: &self.coded.codes, scales: &self.coded.scales }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the rows must be: converted one by one, in the order of the indices.
    fn expected(data: &[f32], k: usize, rows: [usize; 3], strides: [usize; 3]) -> Vec<f32> {
        let mut out = Vec::new();
        for c in 0..rows[2] {
            for b in 0..rows[1] {
                for a in 0..rows[0] {
                    let first = a * strides[0] + b * strides[1] + c * strides[2];
                    out.extend_from_slice(&data[first..first + k]);
                }
            }
        }
        out
    }

    proptest! {
        /// Any strides, gaps and overlaps included, on any number of threads.
        #[test]
        fn rows_are_gathered_in_order(
            k in 1usize..40,
            rows in prop::array::uniform3(1usize..5),
            gaps in prop::array::uniform3(0usize..50),
            threads in 1usize..5,
        ) {
            let extent = Activation::extent(k, rows, gaps).unwrap();
            let data: Vec<f32> = (0..extent).map(|i| (i % 1000) as f32 / 8.0 - 60.0).collect();
            let a = Activation::new(&data, k, rows, gaps).unwrap();
            prop_assert!(Activation::new(&data[1..], k, rows, gaps).is_none());
            // Left over from a larger op.
            let (rows_before, scales) = (vec![f16::NAN; 9000], vec![f32::NAN; 900]);
            let mut p = Prepared { rows: rows_before, scales, ..Prepared::default() };
            p.fill(&a, Numerics::Fp16, threads).unwrap();
            let want = expected(&data, k, rows, gaps);
            prop_assert_eq!(p.rows.len(), want.len());
            prop_assert_eq!(p.scales.len() * k, want.len());
            for (i, (got, want)) in p.rows.iter().zip(&want).enumerate() {
                prop_assert_eq!(got.to_f32() * p.scales[i / k], *want);
            }
        }
    }

    /// Large enough for threads: the same rows, and a bad one is found wherever it is.
    #[test]
    fn threads_change_nothing() {
        let (m, k) = (700, 512);
        let mut data: Vec<f32> = (0..m * k).map(|i| (i % 977) as f32 / 61.0 - 8.0).collect();
        let fill = |data: &[f32], threads| {
            let mut p = Prepared::default();
            let a = Activation::new(data, k, [m, 1, 1], [k, 0, 0]).unwrap();
            p.fill(&a, Numerics::Fp16, threads).map(|()| (p.rows, p.scales))
        };
        assert!(m * k >= parallel::WORTH_THREADS);
        assert_eq!(fill(&data, 1), fill(&data, 3));
        for at in [0, m * k / 2, m * k - 1] {
            let old = std::mem::replace(&mut data[at], f32::NAN);
            assert_eq!(fill(&data, 3), Err(Redo::ActivationNotFinite));
            data[at] = old;
        }
    }
}
