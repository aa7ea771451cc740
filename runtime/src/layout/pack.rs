//! Fast kernels between row-major matrices and 16-bit cubes. They move whole 16-byte atoms and
//! 64-byte kernel rows; compilers turn the fixed-size copies into vector moves on both targets,
//! so there is one version of each.

use half::f16;
use half::slice::HalfFloatSliceExt;

/// Elements of an fp16 atom.
const ATOM: usize = 8;
/// Kernels and channels of an fp16 weight block (npu-rk3588 3.1).
const NG: usize = 16;
const KG: usize = 32;

/// Rows handled together: their atoms of one plane are neighbours, so each cache line of the
/// cube is written once.
const ROW_BLOCK: usize = 16;

/// A row-major fp16 matrix, perhaps a part of a wider one.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    data: &'a [f16],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> Matrix<'a> {
    /// `rows` x `cols` elements, rows `stride` elements apart.
    ///
    /// # Panics
    /// When `data` does not hold the last row.
    pub fn new(data: &'a [f16], rows: usize, cols: usize, stride: usize) -> Matrix<'a> {
        assert!(cols <= stride && (rows == 0 || data.len() >= (rows - 1) * stride + cols));
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
    pub fn row(&self, r: usize) -> &'a [f16] {
        &self.data[r * self.stride..][..self.cols]
    }

    /// The rows from `first` on, at most `count`.
    pub fn slice_rows(&self, first: usize, count: usize) -> Matrix<'a> {
        let rows = count.min(self.rows.saturating_sub(first));
        Matrix { data: &self.data[(first * self.stride).min(self.data.len())..], rows, ..*self }
    }
}

/// Packs columns `k0 ..` of `a` into the feature cube `dst` of `m` rows and `k` channels
/// (npu-rk3588 3.2). Rows and columns that `a` does not have become zero.
///
/// # Panics
/// When `dst` is not `m * k` elements or `k` is not whole atoms.
pub fn feature_f16(a: Matrix<'_>, k0: usize, m: usize, k: usize, dst: &mut [f16]) {
    assert!(dst.len() == m * k && k.is_multiple_of(ATOM));
    let cols = k.min(a.cols.saturating_sub(k0));
    let whole = cols / ATOM;
    let rows = m.min(a.rows);
    for r0 in (0..rows).step_by(ROW_BLOCK) {
        let block = ROW_BLOCK.min(rows - r0);
        for (plane, cube) in dst.chunks_exact_mut(m * ATOM).take(whole).enumerate() {
            let atoms = cube[r0 * ATOM..][..block * ATOM].chunks_exact_mut(ATOM);
            let from = &a.data[r0 * a.stride + k0 + plane * ATOM..];
            for (atom, row) in atoms.zip(from.chunks(a.stride)) {
                atom.copy_from_slice(&row[..ATOM]);
            }
        }
    }
    // The ragged atom, the missing planes and the missing rows are zero (3.8).
    for plane in whole..k / ATOM {
        let left = cols.saturating_sub(plane * ATOM);
        for r in 0..rows {
            let atom = &mut dst[(plane * m + r) * ATOM..][..ATOM];
            atom.fill(f16::ZERO);
            if left > 0 {
                atom[..left].copy_from_slice(&a.row(r)[k0 + plane * ATOM..][..left]);
            }
        }
    }
    for plane in 0..k / ATOM {
        dst[(plane * m + rows) * ATOM..(plane + 1) * m * ATOM].fill(f16::ZERO);
    }
}

/// Packs the 16 kernels whose rows are `rows` (missing ones count as zero), channels `k0 ..`,
/// into one kernel group of a weight cube with `k` channels (npu-rk3588 3.3).
///
/// # Panics
/// When `dst` is not `16 * k` elements or `k` is not whole blocks.
pub fn weight_group_f16(rows: &[&[f16]], k0: usize, k: usize, dst: &mut [f16]) {
    assert!(dst.len() == NG * k && k.is_multiple_of(KG) && rows.len() <= NG);
    for (b, block) in dst.chunks_exact_mut(NG * KG).enumerate() {
        let from = k0 + b * KG;
        for (i, kernel) in block.chunks_exact_mut(KG).enumerate() {
            match rows.get(i) {
                Some(row) if row.len() >= from + KG => {
                    kernel.copy_from_slice(&row[from..from + KG])
                }
                Some(row) if row.len() > from => {
                    kernel.fill(f16::ZERO);
                    kernel[..row.len() - from].copy_from_slice(&row[from..]);
                }
                _ => kernel.fill(f16::ZERO),
            }
        }
    }
}

/// Gathers row `m` of an fp16 output cube of `rows` rows into `dst` as fp32 (npu-rk3588 3.4).
///
/// # Panics
/// When `dst` is longer than the cube is wide, or than 512.
pub fn output_row_f16(cube: &[f16], rows: usize, m: usize, dst: &mut [f32]) {
    let mut line = [f16::ZERO; 512];
    for (plane, atom) in line[..dst.len().next_multiple_of(ATOM)].chunks_exact_mut(ATOM).enumerate()
    {
        atom.copy_from_slice(&cube[(plane * rows + m) * ATOM..][..ATOM]);
    }
    line[..dst.len()].convert_to_f32_slice(dst);
}

/// As [`output_row_f16`] for an fp32 cube, adding to `dst`.
pub fn add_output_row_f32(cube: &[f32], rows: usize, m: usize, dst: &mut [f32]) {
    for (plane, out) in dst.chunks_mut(4).enumerate() {
        let atom = &cube[(plane * rows + m) * 4..][..out.len()];
        for (o, x) in out.iter_mut().zip(atom) {
            *o += x;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;
    use crate::layout::{feature_index, output_index, weight_index};
    use proptest::prelude::*;

    /// A value that tells its own place.
    fn tag(r: usize, c: usize) -> f16 {
        f16::from_bits((r * 977 + c * 31 + 1) as u16 & 0x7bff)
    }

    fn matrix(rows: usize, cols: usize, stride: usize) -> Vec<f16> {
        (0..rows * stride)
            .map(|i| if i % stride < cols { tag(i / stride, i % stride) } else { f16::NAN })
            .collect()
    }

    proptest! {
        #[test]
        fn feature_kernel_equals_the_index_map(
            rows in 1usize..40, cols in 1usize..90, pad in 0usize..5, k0 in 0usize..3,
            m in 1usize..12, k in 1usize..4,
        ) {
            let (k0, m, k) = (k0 * 32, m * 4, k * 32);
            let data = matrix(rows, cols, cols + pad);
            let mut cube = vec![f16::NAN; m * k];
            feature_f16(Matrix::new(&data, rows, cols, cols + pad), k0, m, k, &mut cube);
            for r in 0..m {
                for c in 0..k {
                    let want = if r < rows && k0 + c < cols { tag(r, k0 + c) } else { f16::ZERO };
                    prop_assert_eq!(cube[feature_index(8, m, r, c)].to_bits(), want.to_bits());
                }
            }
        }

        #[test]
        fn weight_kernel_equals_the_index_map(
            rows in 1usize..17, cols in 1usize..140, k0 in 0usize..3, k in 1usize..4,
        ) {
            let (k0, k) = (k0 * 32, k * 32);
            let data = matrix(rows, cols, cols);
            let lines: Vec<&[f16]> = data.chunks(cols).collect();
            let mut cube = vec![f16::NAN; 16 * k];
            weight_group_f16(&lines, k0, k, &mut cube);
            for n in 0..16 {
                for c in 0..k {
                    let want = if n < rows && k0 + c < cols { tag(n, k0 + c) } else { f16::ZERO };
                    let at = weight_index(DType::Fp16.info(), k, n, c);
                    prop_assert_eq!(cube[at].to_bits(), want.to_bits());
                }
            }
        }

        #[test]
        fn output_kernels_equal_the_index_map(m in 1usize..12, n in 1usize..8, cut in 0usize..16) {
            let (m, n) = (m * 4, n * 16);
            let mut half_cube = vec![f16::ZERO; m * n];
            let mut full_cube = vec![0f32; m * n];
            for r in 0..m {
                for c in 0..n {
                    half_cube[output_index(8, m, r, c)] = tag(r, c);
                    full_cube[output_index(4, m, r, c)] = tag(r, c).to_f32();
                }
            }
            for r in 0..m {
                let mut a = vec![0f32; n - cut];
                let mut b = vec![1f32; n - cut];
                output_row_f16(&half_cube, m, r, &mut a);
                add_output_row_f32(&full_cube, m, r, &mut b);
                for c in 0..n - cut {
                    prop_assert_eq!(a[c], tag(r, c).to_f32());
                    prop_assert_eq!(b[c], 1.0 + tag(r, c).to_f32());
                }
            }
        }
    }
}
