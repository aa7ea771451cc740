//! Operands as integer codes with a scale a group of K: weights while they are packed, rows of
//! activations for a call (npu-rk3588 7.6, ggml-plugin-behaviour 4).

use super::activation::Activation;
use super::weight::Weight;
use super::{Redo, parallel};
use crate::route::{Codes, Numerics};
use rocket_runtime::kernels::{hadamard, quant};
use rocket_runtime::matmul::Weights;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Largest code of a format that has codes: symmetric, so -128 and -8 are not used.
fn limit(numerics: Numerics) -> i8 {
    if let Numerics::Int4(_) = numerics { 7 } else { 127 }
}

/// Rotates a row along K: as a whole where there is a matrix of its length, else in blocks of the
/// largest power of two that divides it. Both operands are rotated alike, so products keep their
/// value.
pub fn rotate(row: &mut [f32]) {
    if hadamard::rotate(row) {
        return;
    }
    let block = 1 << row.len().trailing_zeros();
    row.chunks_exact_mut(block).for_each(|part| {
        hadamard::rotate(part);
    });
}

/// A weight as codes, with the scales that were found while its rows were loaded.
#[derive(Debug)]
pub struct CodedWeight<'a> {
    weight: Weight<'a>,
    codes: Codes,
    limit: i8,
    /// Scales are powers of two.
    shifted: bool,
    /// Groups x N, as [`rocket_runtime::matmul::Scales`] wants them; the bits of F32.
    scales: Vec<AtomicU32>,
    unfit: AtomicBool,
}

thread_local! {
    /// A decoded row and its scales: packing threads load many.
    static ROW: RefCell<(Vec<f32>, Vec<f32>)> = const { RefCell::new((Vec::new(), Vec::new())) };
}

impl<'a> CodedWeight<'a> {
    /// `weight` in the codes of `numerics`, `None` for a format that has none.
    pub fn new(weight: Weight<'a>, numerics: Numerics) -> Option<CodedWeight<'a>> {
        let codes = numerics.codes()?;
        let groups = weight.k().div_ceil(codes.group);
        let scales = (0..groups * weight.n()).map(|_| AtomicU32::new(0)).collect();
        let unfit = AtomicBool::new(false);
        let shifted = matches!(numerics, Numerics::Shifted(_));
        Some(CodedWeight { weight, codes, limit: limit(numerics), shifted, scales, unfit })
    }

    /// Whether every element that was loaded was finite.
    pub fn fit(&self) -> bool {
        !self.unfit.load(Relaxed)
    }

    /// The scales, when all rows were loaded.
    pub fn scales(&self) -> Vec<f32> {
        self.scales.iter().map(|s| f32::from_bits(s.load(Relaxed))).collect()
    }
}

impl Weights<i8> for CodedWeight<'_> {
    fn n(&self) -> usize {
        self.weight.n()
    }

    fn k(&self) -> usize {
        self.weight.k()
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        ROW.with_borrow_mut(|(row, scales)| {
            row.resize(self.weight.k(), 0.0);
            scales.resize(self.weight.k().div_ceil(self.codes.group), 0.0);
            self.weight.decode_row(n, row);
            if self.codes.rotate {
                rotate(row);
            }
            let quantize = match self.shifted {
                true => quant::quantize_row_shifted,
                false => quant::quantize_row,
            };
            if !quantize(row, self.codes.group, self.limit, dst, scales) {
                self.unfit.store(true, Relaxed);
                dst.fill(0);
            }
            for (g, scale) in scales.iter().enumerate() {
                self.scales[g * self.weight.n() + n].store(scale.to_bits(), Relaxed);
            }
        });
    }

    fn notes(&self) -> Vec<u8> {
        let unfit = [u8::from(!self.fit())];
        self.scales.iter().flat_map(|s| s.load(Relaxed).to_le_bytes()).chain(unfit).collect()
    }

    fn recall(&self, notes: &[u8]) -> bool {
        let Some((unfit, scales)) = notes.split_last() else { return false };
        if scales.len() != 4 * self.scales.len() || *unfit > 1 {
            return false;
        }
        for (scale, bytes) in self.scales.iter().zip(scales.chunks_exact(4)) {
            scale.store(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), Relaxed);
        }
        self.unfit.store(*unfit == 1, Relaxed);
        true
    }
}

/// Rows of activations as codes, kept between calls.
#[derive(Debug, Default)]
pub struct CodedRows {
    /// M rows of K codes.
    pub codes: Vec<i8>,
    /// Groups x M.
    pub scales: Vec<f32>,
    /// M rows of a scale a group.
    by_row: Vec<f32>,
}

impl CodedRows {
    /// Fills this from `a`, on up to `threads` threads.
    ///
    /// # Errors
    /// A row that is not finite.
    pub fn fill(
        &mut self,
        a: &Activation<'_>,
        numerics: Numerics,
        threads: usize,
    ) -> Result<(), Redo> {
        let Some(Codes { group, rotate: rotated }) = numerics.codes() else {
            return Err(Redo::NotRouted);
        };
        let limit = limit(numerics);
        let (m, k) = (a.len(), a.k());
        let groups = k.div_ceil(group);
        self.codes.resize(m * k, 0);
        self.by_row.resize(m * groups, 0.0);
        self.scales.resize(m * groups, 0.0);
        let rows = self.codes.chunks_mut(k).zip(self.by_row.chunks_mut(groups)).enumerate();
        parallel::each(
            rows,
            m,
            k,
            threads,
            || vec![0f32; k],
            |buffer, (i, (codes, scales))| {
                buffer.copy_from_slice(a.row(i));
                if rotated {
                    rotate(buffer);
                }
                match quant::quantize_row(buffer, group, limit, codes, scales) {
                    true => Ok(()),
                    false => Err(Redo::ActivationNotFinite),
                }
            },
        )?;
        for (i, row) in self.by_row.chunks_exact(groups).enumerate() {
            for (g, scale) in row.iter().enumerate() {
                self.scales[g * m + i] = *scale;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::test_noise::noise;
    use proptest::prelude::*;

    fn numerics(bits: usize, group: usize, rotate: bool) -> Numerics {
        let codes = Codes { group, rotate };
        if bits == 4 { Numerics::Int4(codes) } else { Numerics::Int8(codes) }
    }

    /// The codes times their scales: the rows as the NPU sees them.
    fn decoded(codes: &[i8], scales: &[f32], [rows, k, group]: [usize; 3]) -> Vec<f32> {
        let at = |i: usize| (i / k, i % k);
        (0..rows * k)
            .map(|i| {
                let (row, column) = at(i);
                f32::from(codes[i]) * scales[column / group * rows + row]
            })
            .collect()
    }

    proptest! {
        /// Codes stand for the rows they were made from to half a step of their group, which is
        /// the group's largest magnitude over the limit; rotated ones for the rotated rows.
        #[test]
        fn codes_stand_for_the_rows(
            bits in prop_oneof![Just(4usize), Just(8)],
            rows in 1usize..5,
            k in prop_oneof![Just(64usize), Just(96), Just(120), Just(65), Just(33)],
            group in prop_oneof![Just(32usize), Just(64), Just(128)],
            rotated: bool,
            seed: u32,
        ) {
            let data = noise(seed, rows * k);
            let numerics = numerics(bits, group, rotated);
            let mut want = data.clone();
            if rotated {
                want.chunks_exact_mut(k).for_each(rotate);
            }
            let a = Activation::new(&data, k, [rows, 1, 1], [k, 0, 0]).unwrap();
            let mut coded = CodedRows::default();
            coded.fill(&a, numerics, 2).unwrap();
            let w = CodedWeight::new(Weight::of_f32(&data, rows, k), numerics).unwrap();
            let mut codes = vec![0i8; rows * k];
            for (n, row) in codes.chunks_exact_mut(k).enumerate() {
                w.load(n, row);
            }
            prop_assert!(w.fit());
            prop_assert_eq!((&codes, w.scales()), (&coded.codes, coded.scales.clone()));
            let top = if bits == 4 { 7 } else { 127 };
            prop_assert!(codes.iter().all(|c| c.abs() <= top));
            let got = decoded(&codes, &w.scales(), [rows, k, group]);
            for (i, (g, v)) in got.iter().zip(&want).enumerate() {
                let (row, column) = (i / k, i % k);
                let first = row * k + column / group * group;
                let part = &want[first..(first + group).min((row + 1) * k)];
                let most = part.iter().fold(0f32, |m, x| m.max(x.abs()));
                prop_assert!((g - v).abs() <= most / f32::from(top) * 0.501, "{}: {} {}", i, g, v);
            }
        }

        /// A rotation keeps every product, whatever the length.
        #[test]
        fn rotated_rows_have_the_same_products(k in 1usize..300, seed: u32) {
            let dot = |a: &[f32], b: &[f32]| {
                a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>()
            };
            let (mut a, mut b) = (noise(seed, k), noise(!seed, k));
            let want = dot(&a, &b);
            rotate(&mut a);
            rotate(&mut b);
            prop_assert!((dot(&a, &b) - want).abs() < 1e-4, "{} {}", dot(&a, &b), want);
        }
    }

    #[test]
    fn notes_stand_for_the_scales() {
        let data: Vec<f32> = (0..128).map(|i| i as f32 - 60.0).collect();
        let numerics = numerics(8, 32, false);
        let make = || CodedWeight::new(Weight::of_f32(&data, 2, 64), numerics).unwrap();
        let (a, b) = (make(), make());
        (0..2).for_each(|n| a.load(n, &mut [0; 64]));
        assert!(b.recall(&a.notes()));
        assert_eq!((b.scales(), b.fit()), (a.scales(), true));
        for bad in [&a.notes()[1..], &[], &[0; 16], &[[9u8; 16].as_slice(), &[2]].concat()] {
            assert!(!make().recall(bad));
        }
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        let mut data = vec![1f32; 128];
        data[70] = f32::NAN;
        let numerics = numerics(8, 64, true);
        let w = CodedWeight::new(Weight::of_f32(&data, 2, 64), numerics).unwrap();
        (0..2).for_each(|n| w.load(n, &mut [0; 64]));
        assert!(!w.fit());
        let other = CodedWeight::new(Weight::of_f32(&data, 2, 64), numerics).unwrap();
        assert!(other.recall(&w.notes()) && !other.fit());
        let a = Activation::new(&data, 64, [2, 1, 1], [64, 0, 0]).unwrap();
        let refused = CodedRows::default().fill(&a, numerics, 1);
        assert_eq!(refused, Err(Redo::ActivationNotFinite));
        assert!(CodedWeight::new(Weight::of_f32(&data, 2, 64), Numerics::Fp16).is_none());
    }
}
