//! The host's part of a row: from logits to the numerators of its softmax.

use crate::kernels::convert;
use half::f16;

/// What is done to the logits of a row before the softmax.
#[derive(Debug, Clone, Copy)]
pub(super) struct Terms<'a> {
    /// 0 for none.
    pub softcap: f32,
    /// The mask at the row's columns.
    pub mask: Option<&'a [f32]>,
    /// What the mask is multiplied by.
    pub slope: f32,
    /// A logit that takes part in the sum and has no value.
    pub sink: Option<f32>,
}

/// What ALiBi multiplies the mask of head `h` of `heads` with; 1 without a bias (ggml-abi 2.6).
///
/// With n the largest power of two up to `heads`: 2^(-bias/n) to the power of h + 1 for the first n
/// heads, 2^(-bias/2n) to the power of 2 (h - n) + 1 for the others.
pub fn slope(h: usize, heads: usize, max_bias: f32) -> f32 {
    if max_bias <= 0.0 || heads == 0 {
        return 1.0;
    }
    let n = 1usize << heads.ilog2();
    let (bias, power) = if h < n { (max_bias, h + 1) } else { (max_bias / 2.0, 2 * (h - n) + 1) };
    2f32.powf(-bias / n as f32).powi(power as i32)
}

/// Turns the logits of a row into numerators: `out[j] = exp(logit[j] - largest)`, at most 1.
/// Returns what the row of P V is to be multiplied by: 0 when nothing is seen (ggml's CPU then gives
/// zeros, with a sink as well), else one by the sum of exactly these numbers and the sink's.
/// `None` when a logit that is seen is not a number or all of them are beyond F32.
///
/// `logits` holds no result afterwards.
pub(super) fn row(logits: &mut [f32], terms: Terms<'_>, out: &mut [f16]) -> Option<f32> {
    if terms.softcap != 0.0 {
        let cap = terms.softcap;
        logits.iter_mut().for_each(|x| *x = cap * tanh(*x / cap));
    }
    let mut hidden = false;
    if let Some(mask) = terms.mask {
        let slope = terms.slope;
        logits.iter_mut().zip(mask).for_each(|(x, m)| *x += slope * m);
        hidden = mask.iter().all(|m| *m == f32::NEG_INFINITY);
    }
    let most = largest(logits);
    if hidden || logits.is_empty() {
        out.fill(f16::ZERO);
        return Some(0.0);
    }
    if !most.is_finite() {
        return None;
    }
    logits.iter_mut().for_each(|x| *x = exp(*x - most));
    convert::f32_to_f16(logits, out);
    // Of the rounded numbers: they are what V is multiplied with.
    convert::f16_to_f32(out, logits);
    let mut sum = sum(logits);
    if let Some(sink) = terms.sink {
        sum += (f64::from(sink) - f64::from(most)).exp();
    }
    // The largest is 1, so the sum is at least that; what is no number shows in it.
    (!sum.is_nan()).then_some((1.0 / sum) as f32)
}

const LANES: usize = 16;

/// The largest; what is not a number is passed over, and shows in the sum.
fn largest(row: &[f32]) -> f32 {
    let (whole, rest) = row.as_chunks::<LANES>();
    let mut most = [f32::NEG_INFINITY; LANES];
    for chunk in whole {
        most.iter_mut().zip(chunk).for_each(|(m, x)| *m = m.max(*x));
    }
    most.iter().chain(rest).fold(f32::NEG_INFINITY, |m, x| m.max(*x))
}

/// In a fixed order, so that every machine gives the same.
fn sum(row: &[f32]) -> f64 {
    row.chunks(256)
        .map(|part| {
            let (whole, rest) = part.as_chunks::<LANES>();
            let mut sums = [0f32; LANES];
            for chunk in whole {
                sums.iter_mut().zip(chunk).for_each(|(s, x)| *s += x);
            }
            sums.iter().chain(rest).map(|x| f64::from(*x)).sum::<f64>()
        })
        .sum()
}

/// exp of a number that is not above 0; below -87 it is 0, which P in fp16 is from -17 on. NaN
/// stays NaN. Written so that it vectorises; how near it is, the tests say.
fn exp(x: f32) -> f32 {
    // 1.5 * 2^23: adding it leaves the nearest whole number in the low bits.
    const MAGIC: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has so few bits that a product with a whole number is exact.
    const HIGH: f32 = 355.0 / 512.0;
    const LOW: f32 = -2.121_944_4e-4;
    let inside = if x < -87.0 { -87.0 } else { x };
    let shifted = inside * std::f32::consts::LOG2_E + MAGIC;
    let whole = shifted - MAGIC;
    let r = inside - whole * HIGH - whole * LOW;
    // The Taylor series on |r| <= ln 2 / 2: the next term is 1.2e-7 of the result at most.
    let p = 1.0 / 720.0;
    let p = p * r + 1.0 / 120.0;
    let p = p * r + 1.0 / 24.0;
    let p = p * r + 1.0 / 6.0;
    let p = p * r + 0.5;
    let p = p * r + 1.0;
    let p = p * r + 1.0;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(127 << 23));
    if x < -87.0 { 0.0 } else { p * power }
}

fn tanh(x: f32) -> f32 {
    let e = exp(-2.0 * x.abs());
    ((1.0 - e) / (1.0 + e)).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn exponentials(x in -87f32..=0.0) {
            let want = f64::from(x).exp();
            prop_assert!((f64::from(exp(x)) - want).abs() <= want * 5e-7, "{} {want}", exp(x));
        }

        #[test]
        fn hyperbolic_tangents(x in -60f32..60.0) {
            prop_assert!((f64::from(tanh(x)) - f64::from(x).tanh()).abs() <= 4e-7, "{}", tanh(x));
        }

        /// Against the definition in double precision, one feature after another.
        #[test]
        fn rows(
            logits in prop::collection::vec(-50f32..50.0, 1..70),
            masked in prop::collection::vec(prop_oneof![Just(f32::NEG_INFINITY), Just(0.0), -5f32..0.0], 70),
            with_mask in any::<bool>(), slope in prop_oneof![Just(1.0), 0.01f32..1.0],
            softcap in prop_oneof![Just(0.0), 5f32..60.0],
            sink in prop_oneof![Just(None), (-60f32..60.0).prop_map(Some)],
        ) {
            let mask = with_mask.then(|| &masked[..logits.len()]);
            let terms = Terms { softcap, mask, slope, sink };
            let x: Vec<f64> = logits.iter().enumerate().map(|(j, l)| {
                let (l, c) = (f64::from(*l), f64::from(softcap));
                let l = if c == 0.0 { l } else { c * (l / c).tanh() };
                l + mask.map_or(0.0, |m| f64::from(slope) * f64::from(m[j]))
            }).collect();
            let most = x.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let mut out = vec![f16::NAN; logits.len()];
            let factor = row(&mut logits.clone(), terms, &mut out).unwrap();
            if most == f64::NEG_INFINITY {
                prop_assert_eq!(factor, 0.0);
                prop_assert!(out.iter().all(|p| *p == f16::ZERO));
                return Ok(());
            }
            let sum = x.iter().map(|x| (x - most).exp()).sum::<f64>()
                + sink.map_or(0.0, |s| (f64::from(s) - most).exp());
            for (p, x) in out.iter().zip(&x) {
                let want = (x - most).exp();
                // Half a unit of fp16, and the logit's own rounding.
                let bound = want * (2f64.powi(-11) + 1e-4) + 2f64.powi(-25);
                prop_assert!((f64::from(p.to_f32()) - want).abs() <= bound, "{p} {want}");
            }
            let want = 1.0 / sum;
            let lost = 2f64.powi(-11) + 1e-4 + logits.len() as f64 * 2f64.powi(-25);
            prop_assert!((f64::from(factor) - want).abs() <= want * lost, "{factor} {want}");
        }

        /// The rounded weights of a row without a sink add up to 1.
        #[test]
        fn weights_add_up_to_one(mut logits in prop::collection::vec(-9f32..9.0, 1..3000)) {
            let mut out = vec![f16::ZERO; logits.len()];
            let terms = Terms { softcap: 0.0, mask: None, slope: 1.0, sink: None };
            let factor = row(&mut logits, terms, &mut out).unwrap();
            let sum: f64 = out.iter().map(|p| f64::from(p.to_f32())).sum();
            prop_assert!((sum * f64::from(factor) - 1.0).abs() < 1e-6);
        }
    }

    #[test]
    fn rows_that_see_nothing_and_rows_that_are_no_numbers() {
        let none = Terms { softcap: 0.0, mask: None, slope: 1.0, sink: None };
        let all = [f32::NEG_INFINITY; 3];
        let mut out = [f16::NAN; 3];
        for sink in [None, Some(2.0)] {
            let terms = Terms { mask: Some(&all), sink, ..none };
            assert_eq!(row(&mut [1.0, 2.0, 3.0], terms, &mut out), Some(0.0));
            assert_eq!(out, [f16::ZERO; 3]);
        }
        assert_eq!(row(&mut [], none, &mut []), Some(0.0));
        for bad in [f32::NAN, f32::INFINITY] {
            assert_eq!(row(&mut [1.0, bad, 0.0], none, &mut out), None);
        }
        assert_eq!(
            row(&mut [f32::NEG_INFINITY; 3], none, &mut out),
            None,
            "beyond F32, not hidden"
        );
        // A sink far above the logits leaves nothing, and no infinity.
        let far = Terms { sink: Some(3e38), ..none };
        assert_eq!(row(&mut [1.0, 2.0, 3.0], far, &mut out), Some(0.0));
    }

    /// By hand: 8 heads and a bias of 8 halve from head to head; with 12, four more lie between.
    #[test]
    fn slopes() {
        for h in 0..8 {
            assert_eq!(slope(h, 8, 8.0), 0.5f32.powi(h as i32 + 1));
            assert_eq!(slope(h, 12, 8.0), 0.5f32.powi(h as i32 + 1));
        }
        for h in 8..12 {
            let want = 2f64.powf(-0.5 * (2 * (h - 8) + 1) as f64);
            assert!((f64::from(slope(h, 12, 8.0)) - want).abs() < 1e-6);
        }
        assert_eq!([slope(0, 8, 0.0), slope(7, 8, -1.0)], [1.0; 2]);
    }
}
