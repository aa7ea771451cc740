//! Exact 16-bit products by bytes (npu-rk3588 7.8): the hardware's own int16 matmul is incomplete
//! (trap 26).
//!
//! With x = 256 hi(x) + lo(x), both signed bytes, a product is four. All four are one int8 GEMM
//! of twice the rows and columns: the high halves of A above the low ones, the same for W. So the
//! operands are packed and submitted once.

use super::calls::{fits_32_bits, refuse};
use super::format::Int8;
use super::operand::{Matrix, Operand, Weights};
use super::resident::Resident;
use super::{Npu, Stats};
use crate::Result;
use crate::kernels::convert::split_i16;
use crate::plan::Shape;
use std::cell::RefCell;

/// 16-bit weights packed into NPU buffers, as their high and low halves.
#[derive(Debug)]
pub struct Resident16(Resident<Int8>);

impl Resident16 {
    /// Rows of the weights.
    pub fn n(&self) -> usize {
        self.0.n() / 2
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.0.k()
    }

    /// Bytes of NPU memory held.
    pub fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

const BYTES: Int8 = Int8 { group: None };

/// The high halves of all rows, then the low ones.
#[derive(Debug)]
struct Halves<'a>(&'a dyn Weights<i16>);

thread_local! {
    /// A row of 16-bit weights and its other half.
    static ROW: RefCell<(Vec<i16>, Vec<i8>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl Weights<i8> for Halves<'_> {
    fn n(&self) -> usize {
        // What is beyond every limit stays so.
        self.0.n().saturating_mul(2)
    }

    fn k(&self) -> usize {
        self.0.k()
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        let rows = self.0.n();
        ROW.with_borrow_mut(|(row, other)| {
            row.resize(dst.len(), 0);
            other.resize(dst.len(), 0);
            self.0.load(n % rows, row);
            if n < rows { split_i16(row, dst, other) } else { split_i16(row, other, dst) }
        });
    }
}

impl Npu {
    /// Packs 16-bit weights; see [`Npu::pack`].
    ///
    /// # Errors
    /// As [`Npu::pack`].
    pub fn pack_i16(&self, weights: &dyn Weights<i16>) -> Result<Resident16> {
        self.pack(BYTES, &Halves(weights)).map(Resident16)
    }

    /// Multiplies 16-bit integers exactly: elements above 32 639 count as 32 639 (their high half
    /// would be 128), everything else as it is. `out` is M x N, row-major. K is at most 131 071.
    ///
    /// # Errors
    /// As [`Npu::gemm_exact`]; N is at most 2^23, as its halves are packed as rows of their own.
    pub fn gemm_i16(&self, a: Matrix<'_, i16>, w: &Resident16, out: &mut [i64]) -> Result<Stats> {
        self.halves(a, Operand::Resident(&w.0), out)
    }

    /// As [`Npu::gemm_i16`] with weights that are packed for this call.
    ///
    /// # Errors
    /// As [`Npu::gemm_exact`].
    pub fn gemm_i16_streamed(
        &self,
        a: Matrix<'_, i16>,
        w: &dyn Weights<i16>,
        out: &mut [i64],
    ) -> Result<Stats> {
        self.halves(a, Operand::Stream(BYTES, &Halves(w)), out)
    }

    fn halves(&self, a: Matrix<'_, i16>, w: Operand<'_, Int8>, out: &mut [i64]) -> Result<Stats> {
        let (m, k) = (a.rows(), a.cols());
        let [n, w_k] = w.size();
        let n = n / 2;
        // Here, where the sizes are the caller's: the stacked product's are twice as large.
        let shape = Shape { m, k, n };
        if k != w_k {
            return refuse(shape, format!("the weights have K = {w_k}"));
        }
        if m.checked_mul(n) != Some(out.len()) {
            return refuse(shape, format!("the output holds {} elements, not M x N", out.len()));
        }
        if m == 0 || k == 0 || n == 0 {
            return refuse(shape, "every dimension must be at least 1".into());
        }
        fits_32_bits(BYTES, shape, k)?;
        let mut halves = vec![0i8; 2 * m * k];
        let (high, low) = halves.split_at_mut(m * k);
        let rows = high.chunks_exact_mut(k).zip(low.chunks_exact_mut(k));
        for (r, (high, low)) in rows.enumerate() {
            split_i16(a.row(r), high, low);
        }
        let stacked = Matrix::new(&halves, 2 * m, k, k);
        let mut sums = vec![0i32; 4 * m * n];
        let stats = self.gemm_exact(stacked, w, &mut sums)?;
        let (high, low) = sums.split_at(2 * m * n);
        let rows = high.chunks_exact(2 * n).zip(low.chunks_exact(2 * n));
        for (c, (high, low)) in out.chunks_exact_mut(n).zip(rows) {
            let ((hh, hl), (lh, ll)) = (high.split_at(n), low.split_at(n));
            for (j, c) in c.iter_mut().enumerate() {
                let [hh, hl, lh, ll] = [hh[j], hl[j], lh[j], ll[j]].map(i64::from);
                *c = (hh << 16) + ((hl + lh) << 8) + ll;
            }
        }
        Ok(stats)
    }
}
