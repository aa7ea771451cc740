//! CORE: the MAC array (npu-rk3588 5.1, 5.2), in the arithmetics of
//! [`Arithmetic`](crate::Arithmetic).

use crate::Arithmetic;
use crate::format::Format;
use ndarray::linalg::general_mat_mul;
use ndarray::{ArrayView2, ArrayViewMut2, Axis, Slice};
use std::ops::{AddAssign, Mul};

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
    wide_int: Vec<i64>,
}

impl Scratch {
    /// Room for memory words and for decoded values.
    pub fn buffers(&mut self, words: usize, floats: usize) -> (&mut [u64], &mut [f32]) {
        if self.words.len() < words {
            self.words.resize(words, 0);
        }
        if self.floats.len() < floats {
            self.floats.resize(floats, 0.0);
        }
        (&mut self.words[..words], &mut self.floats[..floats])
    }
}

/// What flows from the accumulator through the DPU, row by row: floats or integers, as the format
/// of the operands says. The other of the two is not in use.
#[derive(Debug, Default)]
pub struct Values {
    pub floats: Vec<f32>,
    pub ints: Vec<i64>,
}

/// Extents of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    pub m: usize,
    pub k: usize,
    pub n: usize,
    /// Channels of a depthwise convolution that lie together: each meets its own kernel, and `k`
    /// counts the taps of one channel.
    pub depthwise: Option<usize>,
}

impl Shape {
    pub fn macs(self) -> u64 {
        self.m as u64 * self.k as u64 * self.n as u64
    }
}

/// `sums[m,n] = sum over k of feature[m,k] * weight[n,k]`: floats delivered as fp32, integers
/// exactly. Every integer weight is `offset` larger than stored (npu-ops 1.5).
pub fn multiply(
    arithmetic: Arithmetic,
    format: Format,
    s: Shape,
    operands: [&[f32]; 2],
    offset: i64,
    scratch: &mut Scratch,
    sums: &mut Values,
) {
    let [feature, weight] = operands;
    if format.integer() {
        sums.floats.clear();
    } else {
        sums.ints.clear();
    }
    if arithmetic == Arithmetic::Count {
        return sums.all_one(format, s.m * s.n);
    }
    if let Some(group) = s.depthwise {
        return depthwise(format, s, group, operands, offset, sums);
    }
    if !format.integer() {
        sums.floats.resize(s.m * s.n, 0.0);
        let to = &mut sums.floats;
        return match arithmetic {
            Arithmetic::Exact => {
                ordered(s, operands, &mut scratch.wide, f64::from, |i, sum| to[i] = sum as f32);
            }
            Arithmetic::Fast | Arithmetic::Count => fast(s, operands, 0..s.k, to),
        };
    }
    sums.ints.resize(s.m * s.n, 0);
    let to = &mut sums.ints;
    match (arithmetic, format.exact_products()) {
        (Arithmetic::Exact, _) | (_, 0) => {
            ordered(s, operands, &mut scratch.wide_int, |v| v as i64, |i, sum| to[i] = sum);
        }
        (Arithmetic::Fast | Arithmetic::Count, most) => {
            to.fill(0);
            let (_, part) = scratch.buffers(0, s.m * s.n);
            for k in (0..s.k).step_by(most) {
                fast(s, [feature, weight], k..s.k.min(k + most), part);
                to.iter_mut().zip(&*part).for_each(|(sum, p)| *sum += *p as i64);
            }
        }
    }
    if offset != 0 {
        for (sums, row) in to.chunks_exact_mut(s.n).zip(feature.chunks_exact(s.k)) {
            let features: i64 = row.iter().map(|v| *v as i64).sum();
            sums.iter_mut().for_each(|sum| *sum += offset * features);
        }
    }
}

/// An fp32 product over a range of k.
fn fast(s: Shape, [feature, weight]: [&[f32]; 2], k: std::ops::Range<usize>, sums: &mut [f32]) {
    let a = ArrayView2::from_shape((s.m, s.k), feature);
    let b = ArrayView2::from_shape((s.n, s.k), weight);
    let c = ArrayViewMut2::from_shape((s.m, s.n), sums);
    match (a, b, c) {
        (Ok(a), Ok(b), Ok(mut c)) => {
            let k = Slice::from(k);
            let (a, b) = (a.slice_axis(Axis(1), k), b.slice_axis(Axis(1), k));
            general_mat_mul(1.0, &a, &b.t(), 0.0, &mut c);
        }
        _ => unreachable!("images have the extents of the product"),
    }
}

/// Wide sums in increasing k: fp64, or exact integers. Several columns go at once for speed; the
/// order within each sum is untouched.
fn ordered<T: Copy + Default + AddAssign + Mul<Output = T>>(
    s: Shape,
    [feature, weight]: [&[f32]; 2],
    wide: &mut Vec<T>,
    widen: impl Fn(f32) -> T,
    mut deliver: impl FnMut(usize, T),
) {
    // Columns a pass: their sums fit the vector registers.
    const COLUMNS: usize = 16;
    wide.resize(s.k * COLUMNS, T::default());
    for n0 in (0..s.n).step_by(COLUMNS) {
        let cols = COLUMNS.min(s.n - n0);
        for (j, kernel) in weight[n0 * s.k..].chunks_exact(s.k).take(cols).enumerate() {
            for (k, &w) in kernel.iter().enumerate() {
                wide[k * COLUMNS + j] = widen(w);
            }
        }
        for (m, row) in feature.chunks_exact(s.k).enumerate() {
            let mut acc = [T::default(); COLUMNS];
            for (&a, w) in row.iter().zip(wide.chunks_exact(COLUMNS)) {
                let a = widen(a);
                for (sum, w) in acc.iter_mut().zip(w) {
                    *sum += a * *w;
                }
            }
            for (j, sum) in acc.into_iter().enumerate().take(cols) {
                deliver(m * s.n + n0 + j, sum);
            }
        }
    }
}

/// Each channel with its own kernel, in either arithmetic the same way (npu-rk3588 B.2).
fn depthwise(
    format: Format,
    s: Shape,
    group: usize,
    [rows, weight]: [&[f32]; 2],
    offset: i64,
    sums: &mut Values,
) {
    let taps = |row: &'_ [f32], n: usize, each: &mut dyn FnMut(f32, f32)| {
        for tap in 0..s.k {
            let at = (n / group * s.k + tap) * group + n % group;
            each(row[at], weight[at]);
        }
    };
    let rows = rows.chunks_exact(s.k * s.n);
    if format.integer() {
        sums.ints.clear();
        for row in rows {
            sums.ints.extend((0..s.n).map(|n| {
                let mut sum = 0;
                taps(row, n, &mut |a, w| sum += a as i64 * (w as i64 + offset));
                sum
            }));
        }
    } else {
        sums.floats.clear();
        for row in rows {
            sums.floats.extend((0..s.n).map(|n| {
                let mut sum = 0.0;
                taps(row, n, &mut |a, w| sum += f64::from(a) * f64::from(w));
                sum as f32
            }));
        }
    }
}

/// Noise that depends on nothing but the position.
fn noise(i: usize) -> u64 {
    let mut x = (i as u64).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x ^ x >> 27
}

/// Makes noise of floats: never an integer, so that no small-integer result hits it by chance.
pub fn spoil(values: &mut [f32]) {
    values.iter_mut().enumerate().for_each(|(i, v)| *v = noise_float(i));
}

fn noise_float(i: usize) -> f32 {
    ((noise(i) >> 40) as i32 - (1 << 23)) as f32 / 65536.0 + 0.123
}

impl Values {
    /// What the array delivers when nothing is multiplied: never what a caller marked its buffers
    /// with, unless that is a one.
    fn all_one(&mut self, format: Format, n: usize) {
        if format.integer() {
            self.ints.clear();
            self.ints.resize(n, 1);
        } else {
            self.floats.clear();
            self.floats.resize(n, 1.0);
        }
    }

    /// Replaces `percent` of the values from index `from` on by noise.
    pub fn spoil(&mut self, percent: u64, from: usize) {
        let hit = |i: &usize| *i >= from && noise(*i) % 100 < percent;
        for i in (0..self.floats.len()).filter(hit) {
            self.floats[i] = noise_float(i);
        }
        for i in (0..self.ints.len()).filter(hit) {
            self.ints[i] = (noise(i) >> 40) as i64 - (1 << 23);
        }
    }
}
