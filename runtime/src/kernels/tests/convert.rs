//! Conversions and quantization.

use super::*;
use crate::kernels::convert::*;
use crate::kernels::quant::{quantize_row, quantize_row_shifted};
use half::bf16;

#[test]
fn every_half_is_converted() {
    let all: Vec<f16> = (0..=u16::MAX).map(f16::from_bits).collect();
    let mut wide = vec![0f32; all.len()];
    f16_to_f32(&all, &mut wide);
    let mut back = vec![f16::ZERO; all.len()];
    f32_to_f16(&wide, &mut back);
    for ((h, x), b) in all.iter().zip(&wide).zip(&back) {
        assert_eq!(same(*x), same(plain::half_value(*h) as f32), "{:#x}", h.to_bits());
        let portable = results::widen(&[*h; 8]);
        assert!(portable.iter().all(|p| p.to_bits() == x.to_bits()), "{:#x}", h.to_bits());
        assert!(h.to_bits() == b.to_bits() || (h.is_nan() && b.is_nan()), "{:#x}", h.to_bits());
    }
}

/// Every int16 and every pair of int4 codes.
#[test]
fn every_integer_is_split() {
    let all: Vec<i16> = (i16::MIN..=i16::MAX).collect();
    let (mut hi, mut lo) = (vec![0; all.len()], vec![0; all.len()]);
    split_i16(&all, &mut hi, &mut lo);
    for ((x, hi), lo) in all.iter().zip(&hi).zip(&lo) {
        assert_eq!(256 * i32::from(*hi) + i32::from(*lo), i32::from(*x).min(32639));
        assert_eq!(i32::from(*lo), ((i32::from((*x).min(32639)) + 128) & 255) - 128);
    }
    let codes: Vec<i8> = (0..256).flat_map(|i| [i / 16 - 8, i % 16 - 8]).map(|x| x as i8).collect();
    let mut packed = vec![0; 256];
    assert!(nibbles(&codes, &mut packed));
    for (i, c) in codes.iter().enumerate() {
        assert_eq!(plain::get(&packed, 4, i), (*c as u32) & 15);
    }
}

proptest! {
    #[test]
    fn floats_are_narrowed(bits in prop::collection::vec(any::<u32>(), 0..70), near in 0u32..1 << 16) {
        // Also where binary16 rounds, overflows and ends.
        let edges = (0..8).map(|i| 0x3300_0000 + ((near & 0x3ff) << 17) + i * 0x800);
        let src: Vec<f32> = bits.into_iter().chain(edges).map(f32::from_bits).collect();
        let mut h = vec![f16::ZERO; src.len()];
        f32_to_f16(&src, &mut h);
        let mut b = vec![bf16::ZERO; src.len()];
        f32_to_bf16(&src, &mut b);
        for ((x, h), b) in src.iter().zip(h).zip(b) {
            prop_assert_eq!(same(plain::half_value(h) as f32), same(plain::nearest_half(*x) as f32));
            prop_assert_eq!(b.to_bits(), (x.to_bits() >> 16) as u16);
        }
    }

    #[test]
    fn nibbles_are_packed_and_checked(codes in prop::collection::vec(-8i8..=7, 0..100), bad: i8, at: usize) {
        let mut codes = codes;
        let mut out = vec![0xa5; codes.len().div_ceil(2)];
        prop_assert!(nibbles(&codes, &mut out));
        for i in 0..2 * out.len() {
            let want = codes.get(i).map_or(0, |c| *c as u32 & 15);
            prop_assert_eq!(plain::get(&out, 4, i), want);
        }
        if !codes.is_empty() {
            let at = at % codes.len();
            codes[at] = bad;
            prop_assert_eq!(nibbles(&codes, &mut out), (-8..=7).contains(&bad));
        }
    }

    /// A code is within half a step of its value: the quotient is off by at most 2^-24 of itself,
    /// which is at most limit, and so is limit * scale against the largest value.
    #[test]
    fn quantization_is_off_by_half_a_step(
        seed: u64, len in 1usize..200, group in 1usize..80, four: bool, zero in 0usize..8, exponent in -90i32..100,
    ) {
        let limit = if four { 7 } else { 127 };
        let mut src: Vec<f32> = Noise(seed).floats(len).iter().map(|x| x * 2f32.powi(exponent)).collect();
        if let Some(g) = src.chunks_mut(group).nth(zero) {
            g.fill(0.0);
        }
        let mut codes = vec![99; len];
        let mut scales = vec![-1f32; len.div_ceil(group)];
        prop_assert!(quantize_row(&src, group, limit, &mut codes, &mut scales));
        for ((x, c), s) in src.chunks(group).zip(codes.chunks(group)).zip(scales) {
            let max = x.iter().fold(0f32, |a, x| a.max(x.abs()));
            prop_assert_eq!(s, max / f32::from(limit));
            for (x, c) in x.iter().zip(c) {
                let off = f64::from(*x) - f64::from(*c) * f64::from(s);
                prop_assert!(off.abs() <= f64::from(s) * (0.5 + f64::from(limit) * 2f64.powi(-23)));
                prop_assert!(c.abs() <= limit && (x.abs() < max || max == 0.0 || c.abs() == limit));
            }
        }
    }

    #[test]
    fn what_is_not_finite_is_refused(at in 0usize..50, bad in prop::sample::select(vec![f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY])) {
        let mut src = vec![1f32; 50];
        src[at] = bad;
        prop_assert!(!quantize_row(&src, 16, 127, &mut [0; 50], &mut [0.0; 4]));
    }
}

/// Scale 1 makes the values the quotients: halves go to the even code.
#[test]
fn ties_go_to_even_codes() {
    let src = [127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, 0.49999997, -0.0];
    let mut codes = [9; 11];
    let mut scale = [0.0];
    assert!(quantize_row(&src, 11, 127, &mut codes, &mut scale));
    assert_eq!((codes, scale), ([127, 0, 2, 2, 0, -2, -2, 126, -126, 0, 0], [1.0]));
}

/// Too small for a scale of full precision: nothing, and no division by zero. Just large enough.
#[test]
fn the_smallest_values() {
    let mut codes = [9; 2];
    let mut scale = [9.0];
    for small in [f32::from_bits(1), f32::MIN_POSITIVE, 126.9 * f32::MIN_POSITIVE] {
        assert!(quantize_row(&[small, -small], 2, 127, &mut codes, &mut scale));
        assert_eq!((codes, scale), ([0, 0], [0.0]));
    }
    assert!(quantize_row(&[127.0 * f32::MIN_POSITIVE, 0.0], 2, 127, &mut codes, &mut scale));
    assert_eq!((codes, scale), ([127, 0], [f32::MIN_POSITIVE]));
    assert!(quantize_row(&[f32::MAX, f32::MIN], 2, 7, &mut codes, &mut scale));
    assert_eq!(codes, [7, -7]);
}

proptest! {
    /// Scales are powers of two, codes within the limit, no value further from its code than half a
    /// step, and the step never wider than it must be; multiples of a step are kept.
    #[test]
    fn shifted_rows_keep_multiples_of_their_step(
        row in prop::collection::vec(-127i8..=127, 1..40),
        power in -40i32..40,
        shrink in 1f32..2.0,
        group in 1usize..20,
    ) {
        let row: Vec<f32> = row.iter().map(|c| f32::from(*c) * 2f32.powi(power)).collect();
        for exact in [true, false] {
            let row: Vec<f32> = row.iter().map(|x| if exact { *x } else { x / shrink }).collect();
            let mut codes = vec![0i8; row.len()];
            let mut scales = vec![0f32; row.len().div_ceil(group)];
            prop_assert!(quantize_row_shifted(&row, group, 127, &mut codes, &mut scales));
            for ((x, c), scale) in row.chunks(group).zip(codes.chunks(group)).zip(&scales) {
                let max = x.iter().fold(0f32, |m, x| m.max(x.abs()));
                prop_assert!(max == 0.0 || (scale.to_bits() & 0x7f_ffff) == 0, "{}", scale);
                prop_assert!(max <= 127.0 * scale && 63.5 * scale <= max);
                for (x, c) in x.iter().zip(c) {
                    let off = (f32::from(*c) * scale - x).abs();
                    let most = if exact { 0.0 } else { 0.5 * scale };
                    prop_assert!(c.unsigned_abs() <= 127 && off <= most, "{} {}", off, scale);
                }
            }
        }
    }
}
