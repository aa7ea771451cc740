//! What each kernel computes, element by element from the index maps. Nothing here is shared with
//! the kernels.

use crate::dtype::Info;
use crate::layout::{feature_index, output_index, weight_index};
use half::f16;

/// Element `index` of `bits` bits, in elements; int4 as in npu-rk3588 3.5.
pub fn get(data: &[u8], bits: usize, index: usize) -> u32 {
    match bits {
        4 => u32::from(data[index / 2]) >> (index % 2 * 4) & 15,
        _ => (0..bits / 8).map(|b| u32::from(data[index * bits / 8 + b]) << (8 * b)).sum(),
    }
}

/// As [`get`], with 0 for what a matrix of `rows` rows of `cols` elements, `stride` bytes apart, has not.
fn element(src: &[u8], t: &Info, [rows, cols, stride]: [usize; 3], r: usize, c: usize) -> u32 {
    if r < rows && c < cols { get(&src[r * stride..], t.bits, c) } else { 0 }
}

fn put(data: &mut [u8], bits: usize, index: usize, value: u32) {
    match bits {
        4 => data[index / 2] |= (value << (index % 2 * 4)) as u8,
        _ => (0..bits / 8).for_each(|b| data[index * bits / 8 + b] = (value >> (8 * b)) as u8),
    }
}

/// The feature cube of `m` x `k` elements.
pub fn feature(src: &[u8], t: &Info, dims: [usize; 3], m: usize, k: usize) -> Vec<u8> {
    let mut cube = vec![0; t.row_bytes(m * k)];
    for r in 0..m {
        for c in 0..k {
            put(&mut cube, t.bits, feature_index(t.c2, m, r, c), element(src, t, dims, r, c));
        }
    }
    cube
}

/// The kernel group of `k` channels.
pub fn weight_group(src: &[u8], t: &Info, dims: [usize; 3], k: usize) -> Vec<u8> {
    let mut cube = vec![0; t.row_bytes(t.n_group * k)];
    for n in 0..t.n_group {
        for c in 0..k {
            put(&mut cube, t.bits, weight_index(t, k, n, c), element(src, t, dims, n, c));
        }
    }
    cube
}

/// Where row i, column j of the result lies in a cube of elements of `T`.
pub fn at<T>(m: usize, i: usize, j: usize) -> usize {
    output_index(16 / size_of::<T>(), m, i, j)
}

/// binary16 to its value.
pub fn half_value(h: f16) -> f64 {
    let (e, f) = (i32::from(h.to_bits() >> 10 & 31), f64::from(h.to_bits() & 1023));
    let size = match e {
        0 => f * 2f64.powi(-24),
        31 if f == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + f) * 2f64.powi(e - 25),
    };
    if h.to_bits() >> 15 == 1 { -size } else { size }
}

/// The nearest binary16, of two as near the even one; infinity from 65520 on.
pub fn nearest_half(x: f32) -> f64 {
    let x = f64::from(x);
    if x == 0.0 || !x.is_finite() {
        return x;
    }
    // The exponent field of a double is exact for every float, subnormal ones too.
    let exponent = ((x.abs().to_bits() >> 52) as i32 - 1023).max(-14);
    let unit = 2f64.powi(exponent - 10);
    let near = (x / unit).round_ties_even() * unit;
    if near.abs() >= 65536.0 { f64::INFINITY.copysign(x) } else { near }
}

/// Row i, column j summed over the steps, exactly.
pub fn sum<T: Copy + Into<i64>>(cubes: &[&[T]], m: usize, i: usize, j: usize) -> i64 {
    cubes.iter().map(|c| c[at::<T>(m, i, j)].into()).sum()
}

/// The sum of fp32 steps in fp64, narrowed once.
pub fn sum_f32(cubes: &[&[f32]], m: usize, i: usize, j: usize) -> f32 {
    let steps = cubes.iter().map(|c| f64::from(c[at::<f32>(m, i, j)]));
    steps.reduce(|a, b| a + b).unwrap_or(0.0) as f32
}

/// 1 or -1 of the matrix of npu length `len` at row `i`, column `j`: a bordered and reversed Paley
/// core of the prime 59, by Euler's criterion, times a Sylvester matrix.
pub fn hadamard(len: usize, i: usize, j: usize) -> i32 {
    let pow2 = if len.is_power_of_two() { len } else { len / 60 };
    let sylvester = 1 - 2 * (((i % pow2) & (j % pow2)).count_ones() as i32 % 2);
    let (i, j) = (i / pow2, j / pow2);
    let paley = if i == 0 || j == 0 {
        1
    } else {
        match (0..29).fold(1, |p, _| p * (i + j - 2) % 59) {
            1 => 1,
            _ => -1, // a non-residue, or 0
        }
    };
    sylvester * paley
}
