//! The first product of each kind, compared with what the CPU would have computed: a few rows and
//! columns, in double precision. A board whose silicon, firmware or driver does something else than
//! this project believes is found before it has produced a sentence.

use super::activation::Rows;
use super::codes::CodedWeight;
use super::weight::Weight;
use crate::route::{Dtype, Numerics};
use rocket_runtime::matmul::Weights;
use rocket_runtime::ops::attention::Attention;
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

/// What decides about tiles and layouts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Class {
    /// Weight type, numbers, K, and the magnitudes of M and N.
    Product(Dtype, Numerics, usize, u32, u32),
    /// Sizes of a row of K and V, and the magnitudes of rows and positions.
    Attention(usize, usize, u32, u32),
}

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

    /// Whether anything is compared.
    pub fn is_on(&self) -> bool {
        self.mode != Mode::Off
    }

    fn is_new(&self, class: Class) -> bool {
        self.mode != Mode::Off
            && self.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(class)
    }

    /// Compares rows of an attention if this kind is new: of the first and last head, token and
    /// stream and some between.
    ///
    /// # Errors
    /// An element that differs, in words.
    pub fn attention(&self, op: &Attention<'_>, out: &[f32]) -> Result<(), String> {
        let s = op.shape;
        let rows = s.tokens * s.group();
        if !self.is_new(Class::Attention(s.key, s.value, rows.ilog2(), s.n_kv.ilog2())) {
            return Ok(());
        }
        for r in spread(s.streams * s.tokens * s.heads, 2 * ROWS) {
            let (stream, token, head) =
                (r / s.heads / s.tokens, r / s.heads % s.tokens, r % s.heads);
            let want = op.exact([stream, head, token]);
            let got = &out[r * s.value..][..s.value];
            for (c, (got, want)) in got.iter().zip(want.values.iter().zip(&want.bounds)).enumerate()
            {
                let (want, bound) = want;
                // Not a number is not near.
                let near = (f64::from(*got) - want).abs() <= bound + 2f64.powi(-14) * want.abs();
                if !near {
                    return Err(format!(
                        "element {c} of head {head}, token {token}, stream {stream} of an \
                         attention over {} positions is {got:e} and should be {want:e}",
                        s.n_kv
                    ));
                }
            }
        }
        Ok(())
    }

    /// Compares if this kind is new. `out` is the finished result.
    ///
    /// # Errors
    /// The element that differs most, in words.
    pub fn check(&self, what: Subject<'_>, a: Rows<'_>, out: &[f32]) -> Result<(), String> {
        let (k, n) = (what.weight.k(), what.weight.n());
        let m = out.len() / n.max(1);
        let magnitudes = [m, n].map(|x| x.max(1).ilog2());
        if !self.is_new(Class::Product(what.dtype, what.numerics, k, magnitudes[0], magnitudes[1]))
        {
            return Ok(());
        }
        let mut column = Column::new(what);
        for c in spread(n, COLUMNS) {
            column.load(c);
            for r in spread(m, ROWS) {
                let got = f64::from(out[r * n + c]);
                let (want, slack) = column.product(a, r, m);
                let off = (got - want).abs();
                if off > slack || off.is_nan() {
                    return Err(format!(
                        "row {r}, column {c} of a {m} x {k} x {n} product in {} is {got:e} and \
                         should be {want:e}",
                        what.numerics.name()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Whose product is compared.
#[derive(Debug, Clone, Copy)]
pub struct Subject<'a> {
    /// The weight.
    pub weight: &'a Weight<'a>,
    /// Its type.
    pub dtype: Dtype,
    /// The numbers of the product.
    pub numerics: Numerics,
}

/// One row of the weight, as the product sees it.
struct Column<'a> {
    weight: &'a Weight<'a>,
    /// Decoded.
    row: Vec<f32>,
    /// In codes, with the scales of their groups.
    codes: Option<(CodedWeight<'a>, Vec<i8>)>,
    scales: Vec<f32>,
    group: usize,
    n: usize,
}

impl<'a> Column<'a> {
    fn new(what: Subject<'a>) -> Column<'a> {
        let k = what.weight.k();
        let coded = CodedWeight::new(*what.weight, what.numerics);
        Column {
            weight: what.weight,
            row: vec![0.0; k],
            codes: coded.map(|c| (c, vec![0; k])),
            scales: Vec::new(),
            group: what.numerics.codes().map_or(k, |c| c.group),
            n: 0,
        }
    }

    fn load(&mut self, n: usize) {
        self.n = n;
        match &mut self.codes {
            Some((source, codes)) => {
                source.load(n, codes);
                self.scales = source.scales();
            }
            None => self.weight.decode_row(n, &mut self.row),
        }
    }

    /// The product with row `r` of `m`, and how far a result may be from it.
    fn product(&self, a: Rows<'_>, r: usize, m: usize) -> (f64, f64) {
        let k = self.row.len();
        let dot = |row: &mut dyn Iterator<Item = f64>| {
            row.zip(&self.row).fold((0.0, 0.0), |(sum, size), (a, w)| {
                let p = a * f64::from(*w);
                (sum + p, size + p.abs())
            })
        };
        match a {
            Rows::Fp16 { rows, scales } => {
                let scale = f64::from(scales[r]);
                let row = rows[r * k..][..k].iter();
                let (sum, size) = dot(&mut row.map(|a| f64::from(a.to_f32()) * scale));
                (sum, slack(sum, size, scale))
            }
            Rows::Bf16(rows) => {
                let row = rows[r * k..][..k].iter();
                let (sum, size) = dot(&mut row.map(|a| f64::from(a.to_f32())));
                (sum, slack(sum, size, 0.0))
            }
            Rows::Codes { codes, scales } => {
                let Some((_, weights)) = &self.codes else { return (0.0, 0.0) };
                let row = codes[r * k..][..k].chunks(self.group);
                let (sum, size) = row.zip(weights.chunks(self.group)).enumerate().fold(
                    (0.0, 0.0),
                    |(sum, size), (g, (a, w))| {
                        let pairs = a.iter().zip(w);
                        let p: i64 = pairs.map(|(a, w)| i64::from(*a) * i64::from(*w)).sum();
                        let column = self.scales[g * self.weight.n() + self.n];
                        let term = p as f64 * f64::from(scales[g * m + r]) * f64::from(column);
                        (sum + term, size + term.abs())
                    },
                );
                // Exact integers; three roundings of F32 a group.
                (sum, size * 2f64.powi(-20))
            }
        }
    }
}

/// How far a result of the fp16 route can be off. Its partial sums are rounded to 2^-11
/// of themselves once every K tile, which random signs keep far below the sum of magnitudes
/// (`size`): honest results of real models stay within 2^-12 of it. A lost tile, a swapped row or a
/// wrong scale is off by about the result itself, which is `size / sqrt(K)`, 2^-7 of it at the
/// largest K in use. Below the normal range of F16 sums are multiples of 2^-24 times the row's
/// scale, or nothing if the silicon flushes them (npu-rk3588 9.3 leaves it open): 2^-14 of it.
fn slack(want: f64, size: f64, scale: f64) -> f64 {
    want.abs() / 16.0 + size / 512.0 + scale * 2f64.powi(-14)
}

/// Up to `count` numbers below `len`, the first and the last among them.
fn spread(len: usize, count: usize) -> impl Iterator<Item = usize> {
    let count = count.min(len);
    (0..count).map(move |i| if count < 2 { 0 } else { i * (len - 1) / (count - 1) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::activation::{Activation, Prepared};
    use crate::exec::test_noise::noise;

    const M: usize = 12;
    const K: usize = 256;
    const N: usize = 96;

    /// The exact product, then what `damage` makes of it.
    fn compare(damage: impl FnOnce(&mut [f32])) -> Result<(), String> {
        let (a, w) = (noise(1, M * K), noise(2, N * K));
        let mut p = Prepared::default();
        let act = Activation::new(&a, K, [M, 1, 1], [K, 0, 0]).unwrap();
        p.fill(&act, Numerics::Fp16, 1).unwrap();
        let mut out: Vec<f32> = (0..M * N)
            .map(|i| {
                let (r, c) = (&a[i / N * K..][..K], &w[i % N * K..][..K]);
                r.iter().zip(c).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32
            })
            .collect();
        damage(&mut out);
        let w = Weight::of_f32(&w, N, K);
        Verify::new(Mode::First).check(subject(&w, Dtype::F32), p.rows(Numerics::Fp16), &out)
    }

    fn subject<'a>(weight: &'a Weight<'a>, dtype: Dtype) -> Subject<'a> {
        Subject { weight, dtype, numerics: Numerics::Fp16 }
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
        let act = Activation::new(&a, K, [M, 1, 1], [K, 0, 0]).unwrap();
        p.fill(&act, Numerics::Fp16, 1).unwrap();
        let out = vec![0f32; M * N];
        let check = |w: &[f32]| {
            let w = Weight::of_f32(w, N, K);
            Verify::new(Mode::First).check(subject(&w, Dtype::F32), p.rows(Numerics::Fp16), &out)
        };
        assert_eq!(check(&w), Ok(()));
        w.iter_mut().for_each(|x| *x *= 1e4);
        assert!(check(&w).is_err());
    }

    #[test]
    fn once_a_kind_and_never_when_off() {
        let (w, out) = (noise(3, N * K), vec![9e9f32; M * N]);
        let weight = Weight::of_f32(&w, N, K);
        let (ones, scales) = (vec![half::f16::ONE; M * K], vec![1.0; M]);
        let a = Rows::Fp16 { rows: &ones, scales: &scales };
        let v = Verify::new(Mode::First);
        let check = |v: &Verify, d| v.check(subject(&weight, d), a, &out);
        assert!(check(&v, Dtype::F32).is_err());
        assert!(check(&v, Dtype::F32).is_ok(), "compared a moment ago");
        assert!(check(&v, Dtype(8)).is_err(), "another type");
        assert!(check(&Verify::new(Mode::Off), Dtype::F32).is_ok());
    }

    /// Codes and BF16: exact products pass, and a thousandth of one is noticed in codes.
    #[test]
    fn every_format_is_compared() {
        let (a, w) = (noise(1, M * K), noise(2, N * K));
        let (act, w) =
            (Activation::new(&a, K, [M, 1, 1], [K, 0, 0]).unwrap(), Weight::of_f32(&w, N, K));
        let codes = crate::route::Codes { group: 64, rotate: true };
        for numerics in [
            Numerics::Fp16,
            Numerics::Bf16,
            Numerics::Int8(codes),
            Numerics::Int4(codes),
            Numerics::Native(codes),
        ] {
            let subject = Subject { weight: &w, dtype: Dtype::F32, numerics };
            let mut p = Prepared::default();
            p.fill(&act, numerics, 1).unwrap();
            let rows = p.rows(numerics);
            let mut column = Column::new(subject);
            let mut out = vec![0f32; M * N];
            for c in 0..N {
                column.load(c);
                (0..M).for_each(|r| out[r * N + c] = column.product(rows, r, M).0 as f32);
            }
            let check = |out: &[f32]| Verify::new(Mode::First).check(subject, rows, out);
            assert_eq!(check(&out), Ok(()), "{numerics:?}");
            let off = if numerics.codes().is_some() { 1.001 } else { 1.5 };
            out.iter_mut().for_each(|x| *x *= off);
            assert!(check(&out).is_err(), "{numerics:?}");
        }
    }

    #[test]
    fn edges_are_among_the_spread() {
        for (len, count) in [(1, 4), (2, 4), (100, 4), (64, 64), (1000, 64)] {
            let all: Vec<_> = spread(len, count).collect();
            assert_eq!((all[0], *all.last().unwrap(), all.len()), (0, len - 1, count.min(len)));
        }
    }
}
