//! The first product of each kind, compared with what the CPU would have computed: a few rows and
//! columns, in double precision. A board whose silicon, firmware or driver does something else than
//! this project believes is found before it has produced a sentence.

use super::activation::Prepared;
use super::weight::Weight;
use crate::route::Dtype;
use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// When to compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Never.
    Off,
    /// The first product of each weight type and shape class.
    First,
}

/// Weight type, K, and the magnitudes of M and N: what decides about tiles and layouts.
type Class = (Dtype, usize, u32, u32);

/// What was compared so far.
#[derive(Debug)]
pub struct Verify {
    mode: Mode,
    seen: Mutex<HashSet<Class>>,
}

/// Rows and columns compared, at most: the edges, and evenly spread between them.
const ROWS: usize = 4;
const COLUMNS: usize = 64;

impl Verify {
    /// Nothing compared yet.
    pub fn new(mode: Mode) -> Verify {
        Verify { mode, seen: Mutex::default() }
    }

    /// Compares if this kind is new. `out` is the finished result.
    ///
    /// # Errors
    /// The element that differs most, in words.
    pub fn check(
        &self,
        weight: &Weight<'_>,
        dtype: Dtype,
        a: &Prepared,
        out: &[f32],
    ) -> Result<(), String> {
        let (m, k, n) = (a.scales.len(), weight.k(), weight.n());
        let class = (dtype, k, m.max(1).ilog2(), n.max(1).ilog2());
        if self.mode == Mode::Off
            || !self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(class)
        {
            return Ok(());
        }
        let mut row = vec![0f32; k];
        for column in spread(n, COLUMNS) {
            weight.decode_row(column, &mut row);
            for r in spread(m, ROWS) {
                let pairs = a.rows[r * k..][..k].iter().zip(&row);
                let products = pairs.map(|(a, w)| f64::from(a.to_f32()) * f64::from(*w));
                let (sum, size) = products.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
                let scale = f64::from(a.scales[r]);
                let got = f64::from(out[r * n + column]);
                if !close(got, sum * scale, size * scale, scale) {
                    return Err(format!(
                        "row {r}, column {column} of a {m} x {k} x {n} product is {got:e} and \
                         should be {:e}",
                        sum * scale
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whether a result of the fp16 route can be this far off. Its partial sums are rounded to 2^-11
/// of themselves once every K tile, which random signs keep far below the sum of magnitudes
/// (`size`): honest results of real models stay within 2^-12 of it. A lost tile, a swapped row or a
/// wrong scale is off by about the result itself, which is `size / sqrt(K)`, 2^-7 of it at the
/// largest K in use. Below the normal range of F16 sums are multiples of 2^-24 times the row's
/// scale, or nothing if the silicon flushes them (npu-rk3588 9.3 leaves it open): 2^-14 of it.
fn close(got: f64, want: f64, size: f64, scale: f64) -> bool {
    (got - want).abs() <= want.abs() / 16.0 + size / 512.0 + scale * 2f64.powi(-14)
}

/// Up to `count` numbers below `len`, the first and the last among them.
fn spread(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(len);
    (0..count).map(move |i| if count < 2 { 0 } else { i * (len - 1) / (count - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::activation::Activation;

    const M: usize = 12;
    const K: usize = 256;
    const N: usize = 96;

    fn noise(seed: u32, len: usize) -> Vec<f32> {
        let mut x = seed;
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (x >> 8) as f32 / (1 << 23) as f32 - 1.0
            })
            .collect()
    }

    /// The exact product, then what `damage` makes of it.
    fn compare(damage: impl FnOnce(&mut [f32])) -> Result<(), String> {
        let (a, w) = (noise(1, M * K), noise(2, N * K));
        let mut p = Prepared::default();
        let act = Activation::new(&a, K, [M, 1, 1], [K, 0, 0]).unwrap();
        p.fill(&act, 1).unwrap();
        let mut out: Vec<f32> = (0..M * N)
            .map(|i| {
                let (r, c) = (&a[i / N * K..][..K], &w[i % N * K..][..K]);
                r.iter().zip(c).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32
            })
            .collect();
        damage(&mut out);
        Verify::new(Mode::First).check(&Weight::of_f32(&w, N, K), Dtype::F32, &p, &out)
    }

    #[test]
    fn rounding_passes_and_damage_does_not() {
        assert_eq!(compare(|_| ()), Ok(()));
        assert_eq!(compare(|o| o.iter_mut().for_each(|x| *x *= 1.002)), Ok(()));
        for damage in [
            (|o| o.fill(0.0)) as fn(&mut [f32]),
            |o| o.iter_mut().for_each(|x| *x *= 2.0),
            |o| o.reverse(),
            |o| o[(M - 1) * N..].iter_mut().for_each(|x| *x = -*x),
            |o| o.chunks_exact_mut(N).for_each(|r| r[N - 16..].fill(0.0)),
            |o| o[0] = f32::NAN,
        ] {
            assert!(compare(damage).is_err());
        }
    }

    /// Padding rows of a vocabulary: what they give is below F16, and zero is as good an answer.
    #[test]
    fn results_below_f16_may_be_zero() {
        let (a, mut w) = (noise(1, M * K), noise(2, N * K));
        w.iter_mut().for_each(|x| *x *= 1e-7);
        let mut p = Prepared::default();
        p.fill(&Activation::new(&a, K, [M, 1, 1], [K, 0, 0]).unwrap(), 1).unwrap();
        let out = vec![0f32; M * N];
        let check = |w: &[f32]| {
            Verify::new(Mode::First).check(&Weight::of_f32(w, N, K), Dtype::F32, &p, &out)
        };
        assert_eq!(check(&w), Ok(()));
        w.iter_mut().for_each(|x| *x *= 1e4);
        assert!(check(&w).is_err());
    }

    #[test]
    fn once_a_kind_and_never_when_off() {
        let (w, out) = (noise(3, N * K), vec![9e9f32; M * N]);
        let weight = Weight::of_f32(&w, N, K);
        let a = Prepared { rows: vec![half::f16::ONE; M * K], scales: vec![1.0; M] };
        let v = Verify::new(Mode::First);
        let check = |v: &Verify, d| v.check(&weight, d, &a, &out);
        assert!(check(&v, Dtype::F32).is_err());
        assert!(check(&v, Dtype::F32).is_ok(), "compared a moment ago");
        assert!(check(&v, Dtype(8)).is_err(), "another type");
        assert!(check(&Verify::new(Mode::Off), Dtype::F32).is_ok());
    }

    #[test]
    fn edges_are_among_the_spread() {
        for (len, count) in [(1, 4), (2, 4), (100, 4), (64, 64), (1000, 64)] {
            let all: Vec<_> = spread(len, count).collect();
            assert_eq!((all[0], *all.last().unwrap(), all.len()), (0, len - 1, count.min(len)));
        }
    }
}
