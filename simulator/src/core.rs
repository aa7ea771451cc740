//! CORE: the MAC array (npu-rk3588 5.1, 5.2), in the two arithmetics of
//! [`Arithmetic`](crate::Arithmetic).

use crate::Arithmetic;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, ShapeBuilder};

/// fp16 elements of a 16-byte atom (npu-rk3588 3.1).
pub const ATOM: usize = 8;

/// Kernels that the MAC array takes at a time in fp16 (npu-rk3588 3.1).
pub const KERNEL_GROUP: usize = 16;

/// Buffers that are kept from task to task.
#[derive(Debug, Default)]
pub struct Scratch {
    words: Vec<u64>,
    floats: Vec<f32>,
    wide: Vec<f64>,
}

impl Scratch {
    /// Room for `n` fp16 values as memory words, and for their decoded form.
    pub fn buffers(&mut self, n: usize) -> (&mut [u64], &mut [f32]) {
        if self.floats.len() < n {
            self.floats.resize(n, 0.0);
            self.words.resize(n.div_ceil(4), 0);
        }
        (&mut self.words[..n.div_ceil(4)], &mut self.floats[..n])
    }
}

/// Extents of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

impl Shape {
    pub fn macs(self) -> u64 {
        self.m as u64 * self.k as u64 * self.n as u64
    }
}

/// `sums[m,n] = sum over k of feature[m,k] * weight[n,k]`, delivered as fp32.
pub fn multiply(
    arithmetic: Arithmetic,
    s: Shape,
    feature: &[f32],
    weight: &[f32],
    scratch: &mut Scratch,
    sums: &mut Vec<f32>,
) {
    sums.resize(s.m * s.n, 0.0);
    match arithmetic {
        Arithmetic::Exact => exact(s, feature, weight, &mut scratch.wide, sums),
        Arithmetic::Fast => fast(s, feature, weight, sums),
    }
}

fn fast(s: Shape, feature: &[f32], weight: &[f32], sums: &mut [f32]) {
    let a = ArrayView2::from_shape((s.m, s.k), feature);
    let b = ArrayView2::from_shape((s.k, s.n).strides((1, s.k)), weight);
    let c = ArrayViewMut2::from_shape((s.m, s.n), sums);
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(mut c)) => general_mat_mul(1.0, &a, &b, 0.0, &mut c),
        _ => unreachable!("images have the extents of the product"),
    }
}

/// fp64 sums in increasing k. Several columns go at once for speed; the order within each sum is
/// untouched.
fn exact(s: Shape, feature: &[f32], weight: &[f32], wide: &mut Vec<f64>, sums: &mut [f32]) {
    // Columns a pass: their sums fit the vector registers.
    const COLUMNS: usize = 16;
    wide.resize(s.k * COLUMNS, 0.0);
    for n0 in (0..s.n).step_by(COLUMNS) {
        let cols = COLUMNS.min(s.n - n0);
        for (j, kernel) in weight[n0 * s.k..].chunks_exact(s.k).take(cols).enumerate() {
            for (k, &w) in kernel.iter().enumerate() {
                wide[k * COLUMNS + j] = f64::from(w);
            }
        }
        for (m, row) in feature.chunks_exact(s.k).enumerate() {
            let mut acc = [0f64; COLUMNS];
            for (&a, w) in row.iter().zip(wide.chunks_exact(COLUMNS)) {
                let a = f64::from(a);
                for (sum, w) in acc.iter_mut().zip(w) {
                    *sum += a * w;
                }
            }
            for (to, sum) in sums[m * s.n + n0..][..cols].iter_mut().zip(acc) {
                *to = sum as f32;
            }
        }
    }
}

/// Replaces `percent` of the sums by noise that depends on nothing but the position.
pub fn spoil(sums: &mut [f32], percent: u64) {
    for (i, sum) in sums.iter_mut().enumerate() {
        let mut x = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x ^= x >> 27;
        if x % 100 < percent {
            // Never an integer, so that no small-integer result hits it by chance.
            *sum = ((x >> 40) as i32 - (1 << 23)) as f32 / 65536.0 + 0.123;
        }
    }
}
