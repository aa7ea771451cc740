//! The rotation by its mathematics.

use super::*;
use crate::kernels::hadamard::{can_rotate, rotate};

const LENGTHS: [usize; 16] =
    [1, 2, 4, 8, 16, 32, 64, 256, 1024, 4096, 60, 120, 240, 480, 960, 3840];

/// A bound on one element's error, of a unit roundoff (2^-24) per operation on its way: at most 60
/// in the block, one a halving, two for the factor. The block's difference of sums can be three
/// times the sum of magnitudes. Doubled, against all that is of second order.
fn bound(x: &[f32]) -> f64 {
    let len = x.len() as f64;
    let sum: f64 = x.iter().map(|x| f64::from(x.abs())).sum();
    2.0 * 3.0 * (62.0 + len.log2()) * 2f64.powi(-24) * sum / len.sqrt()
}

fn rotated(x: &[f32]) -> Vec<f32> {
    let mut y = x.to_vec();
    assert!(rotate(&mut y));
    y
}

#[test]
fn lengths() {
    for len in 0..=8192 {
        let known = (0..14).any(|p| len == 1 << p || len == 60 << p);
        assert_eq!(can_rotate(len), known, "{len}");
        let mut row = vec![1.0; len];
        assert_eq!(rotate(&mut row), known);
        assert!(known || row.iter().all(|x| *x == 1.0));
    }
}

/// Rows of the model are orthogonal: it is a Hadamard matrix, and a symmetric one.
#[test]
fn the_model_is_a_symmetric_hadamard_matrix() {
    for len in [1, 2, 8, 60, 120] {
        for i in 0..len {
            for j in 0..len {
                let dot: i32 =
                    (0..len).map(|k| plain::hadamard(len, i, k) * plain::hadamard(len, j, k)).sum();
                assert_eq!(dot, if i == j { len as i32 } else { 0 });
                assert_eq!(plain::hadamard(len, i, j), plain::hadamard(len, j, i));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn rotation_is_the_matrix(len in prop::sample::select(LENGTHS[..15].to_vec()), seed: u64) {
        let x: Vec<f32> = Noise(seed).floats(len);
        let y = rotated(&x);
        for i in (0..len).step_by(1 + len / 64) {
            let want: f64 = (0..len).map(|j| f64::from(plain::hadamard(len, i, j)) * f64::from(x[j])).sum();
            prop_assert!((f64::from(y[i]) - want / (len as f64).sqrt()).abs() <= bound(&x));
        }
    }

    /// Twice gives the row back: the second time passes the first error on, spread over the row, so
    /// at most sqrt(len) times the largest of it.
    #[test]
    fn twice_is_nothing(len in prop::sample::select(LENGTHS.to_vec()), seed: u64) {
        let x: Vec<f32> = Noise(seed).floats(len);
        let y = rotated(&x);
        let limit = bound(&x) * (len as f64).sqrt() + bound(&y);
        for (a, b) in x.iter().zip(rotated(&y)) {
            prop_assert!((f64::from(*a) - f64::from(b)).abs() <= limit);
        }
    }

    /// Products of two rotated rows are what they were.
    #[test]
    fn products_are_kept(len in prop::sample::select(LENGTHS.to_vec()), seed: u64) {
        let mut noise = Noise(seed);
        let (x, w) = (noise.floats(len), noise.floats(len));
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
        let (rx, rw) = (rotated(&x), rotated(&w));
        let norm1 = |a: &[f32]| a.iter().map(|x| f64::from(x.abs())).sum::<f64>();
        let limit = bound(&x) * norm1(&rw) + bound(&w) * (norm1(&rx) + len as f64 * bound(&x));
        prop_assert!((dot(&x, &w) - dot(&rx, &rw)).abs() <= limit);
    }
}

/// One outlier becomes a row of equal magnitudes: what the rotation is for.
#[test]
fn an_outlier_is_spread() {
    for len in [64, 960, 4096] {
        let mut x = vec![0f32; len];
        x[len / 3] = 1.0;
        let want = 1.0 / (len as f32).sqrt();
        assert!(rotated(&x).iter().all(|y| (y.abs() - want).abs() <= 2.0 * f32::EPSILON * want));
    }
}
