//! Every kernel against the plain model of it, and what quantization and rotation promise.

mod convert;
mod machines;
mod plain;
mod rotation;

use super::*;
use crate::dtype::DType;
use half::f16;
use proptest::prelude::*;

/// Numbers without a pattern that an index error could hide behind.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 ^ (self.0 >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16
    }

    fn bytes(&mut self, n: usize) -> Vec<u8> {
        (0..n).map(|_| self.next() as u8).collect()
    }

    /// Of many magnitudes, all finite.
    fn floats(&mut self, n: usize) -> Vec<f32> {
        let one = |s: &mut Self| {
            let exponent = 100 + (s.next() % 50) as u32;
            f32::from_bits((s.next() as u32 & 0x807f_ffff) | (exponent << 23))
        };
        (0..n).map(|_| one(self)).collect()
    }

    fn halves(&mut self, n: usize) -> Vec<f16> {
        (0..n).map(|_| f16::from_bits(self.next() as u16)).collect()
    }

    fn words(&mut self, n: usize) -> Vec<i32> {
        (0..n).map(|_| self.next() as i32 >> 4).collect()
    }

    fn shorts(&mut self, n: usize) -> Vec<i16> {
        (0..n).map(|_| self.next() as i16).collect()
    }
}

/// A tile's result: `rows` rows of `cols` in a matrix `wide` columns wide, before anything is in it.
struct Out<T> {
    data: Vec<T>,
    cols: usize,
    wide: usize,
}

impl<T: Copy> Out<T> {
    fn new(rows: usize, cols: usize, wide: usize, fill: T) -> Out<T> {
        Out { data: vec![fill; rows * wide], cols, wide }
    }

    fn run(&mut self, kernel: impl FnOnce(&mut [&mut [T]])) {
        let mut rows: Vec<&mut [T]> =
            self.data.chunks_mut(self.wide).map(|r| &mut r[..self.cols]).collect();
        kernel(&mut rows);
    }
}

/// What `run` wrote is `want`, and nothing else was written.
fn check<T: Copy, B: PartialEq + std::fmt::Debug>(
    out: &Out<T>,
    fill: T,
    bits: impl Fn(T) -> B,
    want: impl Fn(usize, usize) -> T,
) {
    for (i, row) in out.data.chunks(out.wide).enumerate() {
        for (j, x) in row.iter().enumerate() {
            let expected = if j < out.cols { want(i, j) } else { fill };
            assert_eq!(bits(*x), bits(expected), "row {i}, column {j}");
        }
    }
}

/// Bits, with all NaN alike.
fn same(x: f32) -> u32 {
    if x.is_nan() { 0x7fc0_0000 } else { x.to_bits() }
}

fn slices<T>(cubes: &[Vec<T>]) -> Vec<&[T]> {
    cubes.iter().map(Vec::as_slice).collect()
}

proptest! {
    #[test]
    fn feature_kernel_is_the_index_map(
        d in prop::sample::select(DType::ALL.to_vec()), seed: u64,
        rows in 0usize..40, cols in 0usize..150, pad in 0usize..5, k0 in 0usize..3,
        m in 1usize..10, k in 1usize..4,
    ) {
        let t = d.info();
        let (m, k, k0) = (m * 4, k * t.k_group, k0 * t.k_group);
        let cols = cols & !1;
        let (row, first) = (t.row_bytes(cols), t.row_bytes(k0));
        let stride = row + pad;
        let data = Noise(seed).bytes(rows * stride);
        let mut cube = vec![0xa5; t.row_bytes(m * k)];
        let src = Bytes::new(&data, rows, row, stride).slice_bytes(first, t.row_bytes(k));
        feature(src, m, &mut cube);
        let dims = [rows, cols.saturating_sub(k0), stride];
        let from = data.get(first..).unwrap_or_default();
        prop_assert_eq!(cube, plain::feature(from, t, dims, m, k));
    }

    #[test]
    fn weight_kernel_is_the_index_map(
        d in prop::sample::select(DType::ALL.to_vec()), seed: u64,
        rows in 0usize..70, cols in 0usize..300, pad in 0usize..5, k0 in 0usize..3, k in 1usize..9,
    ) {
        let t = d.info();
        let (k, k0) = (k * t.k_group, k0 * t.k_group);
        let cols = cols & !1;
        let (row, first) = (t.row_bytes(cols), t.row_bytes(k0));
        let stride = row + pad;
        let data = Noise(seed).bytes(rows * stride);
        let mut cube = vec![0xa5; t.row_bytes(t.n_group * k)];
        let src = Bytes::new(&data, rows, row, stride).slice_bytes(first, t.row_bytes(k));
        weight_group(src, t.n_group, &mut cube);
        let dims = [rows, cols.saturating_sub(k0), stride];
        let from = data.get(first..).unwrap_or_default();
        prop_assert_eq!(cube, plain::weight_group(from, t, dims, k));
    }

    #[test]
    fn result_kernels_are_the_index_map(
        seed: u64, m in 1usize..6, rows in 0usize..24, cols in 0usize..70, pad in 0usize..5,
        steps in 1usize..5, first: bool, scaled: bool,
    ) {
        let m = m * 4;
        let rows = rows.min(m);
        let wide = cols + pad.max(1);
        let mut noise = Noise(seed);
        let len = m * cols.next_multiple_of(8);
        let floats: Vec<_> = (0..steps).map(|_| noise.floats(len)).collect();
        let words: Vec<_> = (0..4 * steps).map(|_| noise.words(len)).collect();
        let shorts: Vec<_> = (0..steps).map(|_| noise.shorts(len)).collect();
        let halves = noise.halves(len);
        let (row_scale, col_scale) = (noise.floats(rows), noise.floats(cols));
        let scale = scaled.then_some(&row_scale[..]);
        let factor = |i: usize, x: f32| scale.map_or(x, |s| x * s[i]);

        let mut out = Out::new(rows, cols, wide, 7f32);
        out.run(|r| store_f16(&halves, m, r, scale));
        check(&out, 7.0, same, |i, j| factor(i, plain::half_value(halves[plain::at::<f16>(m, i, j)]) as f32));

        let cubes = slices(&floats);
        let mut out = Out::new(rows, cols, wide, 7f32);
        out.run(|r| sum_f32(&cubes, m, r, scale));
        check(&out, 7.0, same, |i, j| factor(i, plain::sum_f32(&cubes, m, i, j)));

        let cubes = slices(&words);
        let mut out = Out::new(rows, cols, wide, 7);
        out.run(|r| sum_i32(&cubes, m, r));
        check(&out, 7, |x| x, |i, j| plain::sum(&cubes, m, i, j) as i32);

        let part = |old: f32, i: usize, j: usize, sum: i64| {
            let x = row_scale[i] * col_scale[j] * sum as i32 as f32;
            if first { x } else { old + x }
        };
        let cubes = &cubes[..steps];
        let mut out = Out::new(rows, cols, wide, 7f32);
        out.run(|r| scaled_i32(cubes, m, r, &row_scale, &col_scale, first));
        check(&out, 7.0, same, |i, j| part(7.0, i, j, plain::sum(cubes, m, i, j)));

        let cubes = slices(&shorts);
        let mut out = Out::new(rows, cols, wide, 7);
        out.run(|r| sum_i16(&cubes, m, r));
        check(&out, 7, |x| x, |i, j| plain::sum(&cubes, m, i, j) as i32);
        let mut out = Out::new(rows, cols, wide, 7f32);
        out.run(|r| scaled_i16(&cubes, m, r, &row_scale, &col_scale, first));
        check(&out, 7.0, same, |i, j| part(7.0, i, j, plain::sum(&cubes, m, i, j)));
    }

    /// The versions for any machine, which this one may have a better one for.
    #[test]
    fn portable_kernels_are_the_index_map(seed: u64, rows in 1usize..90, planes in 1usize..20) {
        let m = rows.next_multiple_of(4);
        let data = Noise(seed).bytes(rows * planes * 16);
        let mut cube = vec![0; m * planes * 16];
        let src = Bytes::new(&data, rows, planes * 16, planes * 16);
        pack::bands(src, m, &mut cube, pack::quad);
        let dims = [rows, planes * 8, planes * 16];
        prop_assert_eq!(cube, plain::feature(&data, DType::Fp16.info(), dims, m, planes * 8));

        let halves = Noise(seed).halves(m * planes * 8);
        let mut out = Out::new(rows, planes * 8, planes * 8 + 1, 7f32);
        out.run(|r| results::store_f16_by(&halves, m, r, None, results::widen));
        check(&out, 7.0, same, |i, j| plain::half_value(halves[plain::at::<f16>(m, i, j)]) as f32);
    }

    /// Rows of one tile need not be equally long.
    #[test]
    fn rows_of_different_lengths(seed: u64, lengths in prop::collection::vec(0usize..40, 8)) {
        let halves = Noise(seed).halves(8 * 40);
        let mut data = vec![7f32; 8 * 40];
        let mut rows: Vec<&mut [f32]> =
            data.chunks_mut(40).zip(&lengths).map(|(r, n)| &mut r[..*n]).collect();
        store_f16(&halves, 8, &mut rows, None);
        for (i, row) in data.chunks(40).enumerate() {
            for (j, x) in row.iter().enumerate() {
                let value = plain::half_value(halves[plain::at::<f16>(8, i, j)]) as f32;
                prop_assert_eq!(same(*x), same(if j < lengths[i] { value } else { 7.0 }));
            }
        }
    }
}
