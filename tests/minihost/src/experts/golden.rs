//! The product of each row with its expert in double precision, what a result must keep to, and
//! results of wrong weights, which must not.

use super::case::{Batch, Stack};
use crate::values::{Wanted, product};

/// Least cosine of a whole op in int8, and of the rows of each expert (ggml-plugin-behaviour 14).
const OP: f64 = 0.9999;
const EXPERT: f64 = 0.9990;
/// Most of the root mean square error of one column of one expert, in units of |row| |column| /
/// sqrt(K), what such elements are like. Codes of 8 bits round by 1/254 of the largest magnitude of
/// a group at most, 1/(127 sqrt 12) of it in the mean square; the largest is at most five root mean
/// squares where numbers are nearly normal, and there are two operands: 0.016. A single row may have
/// three times the mean twice over. A group of a quarter of K whose scale is doubled makes 0.5.
const COLUMN: f64 = 0.1;

/// How a route rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounding {
    /// The bound of each element, as for other products.
    Fp16,
    /// Cosines.
    Int8,
}

/// All of one op.
#[derive(Debug)]
pub struct Golden<'a> {
    stack: &'a Stack,
    /// Experts of the result's rows.
    ids: Vec<usize>,
    /// Rows of activation, one for each of the result's.
    rows: Vec<&'a [f32]>,
    weights: &'a [f32],
    wanted: Vec<Wanted>,
}

/// Weights that are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrong {
    /// The scale of one group of one column of one expert is doubled.
    Scale,
    /// One expert is nothing but zeros.
    Dropped,
    /// Two experts in each other's place.
    Swapped,
    /// Half of the range of one group of one expert is cut off.
    Saturated,
}

pub const WRONG: [Wrong; 4] = [Wrong::Scale, Wrong::Dropped, Wrong::Swapped, Wrong::Saturated];

fn dot(a: &[f32], w: &[f32]) -> f64 {
    a.iter().zip(w).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
}

/// 1 - cosine, 1 where one side is nothing; not a number if one is not.
fn off(pairs: impl Iterator<Item = (f64, f64)>) -> f64 {
    let [mut both, mut left, mut right] = [0f64; 3];
    for (x, y) in pairs {
        both += x * y;
        left += x * x;
        right += y * y;
    }
    match (left == 0.0, right == 0.0) {
        (true, true) => 0.0,
        (false, false) => 1.0 - both / (left * right).sqrt(),
        _ => 1.0,
    }
}

fn most(a: f64, b: f64) -> f64 {
    if b > a || b.is_nan() { b } else { a }
}

impl<'a> Golden<'a> {
    /// Of a batch whose ids are those of experts.
    pub fn new(
        stack: &'a Stack,
        batch: &Batch,
        weights: &'a [f32],
        activation: &'a [f32],
    ) -> Golden<'a> {
        let Stack { k, n, experts, .. } = *stack;
        let ids: Vec<usize> = batch.ids(experts).iter().map(|&e| e as usize).collect();
        let rows = |i: usize| match batch.own_rows {
            true => &activation[i * k..][..k],
            false => &activation[i / batch.used * k..][..k],
        };
        let rows: Vec<&[f32]> = (0..ids.len()).map(rows).collect();
        let of = |(&e, row): (&usize, &&[f32])| product(row, &weights[e * n * k..][..n * k], k);
        let wanted = ids.iter().zip(&rows).flat_map(of).collect();
        Golden { stack, ids, rows, weights, wanted }
    }

    /// The experts with rows, those with most first, and how many.
    fn used(&self) -> Vec<(usize, usize)> {
        let count = |e| self.ids.iter().filter(|&&id| id == e).count();
        let mut used: Vec<_> = (0..self.stack.experts).map(|e| (e, count(e))).collect();
        used.retain(|(_, rows)| *rows > 0);
        used.sort_by_key(|(_, rows)| std::cmp::Reverse(*rows));
        used
    }

    /// A row of weights of an expert.
    fn column(&self, expert: usize, c: usize) -> &[f32] {
        let Stack { k, n, .. } = *self.stack;
        &self.weights[(expert * n + c) * k..][..k]
    }

    /// What wrong weights would give; `None` where there is nothing to tell.
    fn instead(&self, wrong: Wrong) -> Option<Vec<f64>> {
        let Stack { k, n, .. } = *self.stack;
        let used = self.used();
        let (target, rows) = *used.first()?;
        // In few rows one group's part of one column may be nothing by chance.
        if wrong == Wrong::Scale && rows < 16 {
            return None;
        }
        let group = k / 4..k / 2;
        let value = |row: &[f32], expert: usize, c: usize| match wrong {
            Wrong::Scale if c != n / 2 => None,
            Wrong::Scale => {
                let w = self.column(expert, c);
                Some(dot(row, w) + dot(&row[group.clone()], &w[group.clone()]))
            }
            Wrong::Dropped => Some(0.0),
            Wrong::Swapped => None,
            Wrong::Saturated => {
                let mut w = self.column(expert, c).to_vec();
                let peak = w[group.clone()].iter().fold(0f32, |m, x| m.max(x.abs())) / 2.0;
                w[group.clone()].iter_mut().for_each(|x| *x = x.clamp(-peak, peak));
                Some(dot(row, &w))
            }
        };
        let mut values: Vec<f64> = self.wanted.iter().map(|w| w.value).collect();
        let other = used.get(1).map(|(e, _)| *e);
        for ((row, out), &id) in self.rows.iter().zip(values.chunks_exact_mut(n)).zip(&self.ids) {
            for (c, out) in out.iter_mut().enumerate() {
                let new = match (wrong, other?) {
                    (Wrong::Swapped, other) if id == target => {
                        Some(dot(row, self.column(other, c)))
                    }
                    (Wrong::Swapped, other) if id == other => {
                        Some(dot(row, self.column(target, c)))
                    }
                    _ if id == target => value(row, id, c),
                    _ => None,
                };
                *out = new.unwrap_or(*out);
            }
        }
        Some(values)
    }

    /// How far off a result is, in units of what is allowed: up to 1 is right.
    pub fn units(&self, got: &[f32], rounding: Rounding) -> f64 {
        self.compare(got, rounding, self.wanted.iter().map(|w| w.value).collect())
    }

    /// The same against wrong weights.
    pub fn control(&self, got: &[f32], rounding: Rounding, wrong: Wrong) -> Option<f64> {
        Some(self.compare(got, rounding, self.instead(wrong)?))
    }

    fn compare(&self, got: &[f32], rounding: Rounding, wanted: Vec<f64>) -> f64 {
        if got.len() != wanted.len() {
            return f64::NAN;
        }
        match rounding {
            Rounding::Fp16 => {
                let each = got.iter().zip(&wanted).zip(&self.wanted).map(|((g, value), w)| {
                    let off = (f64::from(*g) - value).abs();
                    if off == 0.0 { 0.0 } else { off / w.bound }
                });
                each.fold(0.0, most)
            }
            Rounding::Int8 => {
                let got: Vec<f64> = got.iter().map(|x| f64::from(*x)).collect();
                self.cosines(&got, &wanted)
            }
        }
    }

    fn cosines(&self, got: &[f64], wanted: &[f64]) -> f64 {
        let Stack { k, n, .. } = *self.stack;
        let pair = |i: usize| (got[i], wanted[i]);
        let mut worst = off((0..got.len()).map(pair)) / (1.0 - OP);
        let sizes: Vec<f64> = self.rows.iter().map(|row| dot(row, row).sqrt()).collect();
        for (e, count) in self.used() {
            let rows: Vec<usize> = (0..self.ids.len()).filter(|&r| self.ids[r] == e).collect();
            let elements = rows.iter().flat_map(|r| r * n..(r + 1) * n);
            worst = most(worst, off(elements.map(pair)) / (1.0 - EXPERT));
            for c in 0..n {
                let w = self.column(e, c);
                let size = (dot(w, w) / k as f64).sqrt();
                let square = |&r: &usize| ((got[r * n + c] - wanted[r * n + c]) / sizes[r]).powi(2);
                let error = (rows.iter().map(square).sum::<f64>() / count as f64).sqrt();
                let units = if error == 0.0 { 0.0 } else { error / size / COLUMN };
                worst = most(worst, units);
            }
        }
        worst
    }
}

#[cfg(test)]
mod tests {
    use super::super::case;
    use super::*;
    use crate::ggml::Type;
    use crate::values::Values;

    /// Exact results pass and are not those of wrong weights; neither is one with an element that
    /// is no number.
    #[test]
    fn gates_tell_right_from_wrong() {
        let stack = case::small(Type::F32);
        let batch = &Batch { tokens: 48, ..stack.batches[0] };
        let weights = Values::new(1).take(stack.k * stack.n * stack.experts);
        let a = batch.activation(stack.k, &mut Values::new(2));
        let golden = Golden::new(&stack, batch, &weights, &a);
        let right: Vec<f32> = golden.wanted.iter().map(|w| w.value as f32).collect();
        for rounding in [Rounding::Fp16, Rounding::Int8] {
            assert!(golden.units(&right, rounding) < 0.01);
            for wrong in WRONG {
                let units = golden.control(&right, rounding, wrong).unwrap();
                assert!(units > 1.5, "{wrong:?} {rounding:?}: {units}");
            }
            let mut bad = right.clone();
            bad[9] = f32::NAN;
            let units = golden.units(&bad, rounding);
            assert!(units.is_nan(), "{units}");
            assert!(golden.units(&right[1..], rounding).is_nan());
        }
    }

    /// One column of many hardly moves a cosine.
    #[test]
    fn a_column_among_thousands_is_seen() {
        let stack = Stack { n: 2000, ..case::small(Type::F32) };
        let batch = &Batch { tokens: 48, ..stack.batches[0] };
        let weights = Values::new(1).take(stack.k * stack.n * stack.experts);
        let a = batch.activation(stack.k, &mut Values::new(2));
        let golden = Golden::new(&stack, batch, &weights, &a);
        let right: Vec<f32> = golden.wanted.iter().map(|w| w.value as f32).collect();
        let units = golden.control(&right, Rounding::Int8, Wrong::Scale).unwrap();
        assert!(units > 1.5, "{units}");
    }

    /// An element by hand: the second token's second expert.
    #[test]
    fn rows_meet_their_experts() {
        let stack = Stack { k: 2, n: 1, ..case::small(Type::F32) };
        let weights = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        // Ids 0 1, 2 0.
        for (own_rows, a, values) in [
            (false, vec![1.0, -1.0, 0.5, 2.0], [-1.0, -1.0, 14.5, 4.5]),
            (true, vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0, 10.0, 0.0], [1.0, 4.0, 11.0, 10.0]),
        ] {
            let batch = Batch { own_rows, ..Batch::new(2, 2) };
            let golden = Golden::new(&stack, &batch, &weights, &a);
            let got: Vec<f64> = golden.wanted.iter().map(|w| w.value).collect();
            assert_eq!(got, values);
        }
    }
}
