//! Q, K and V as they lie in the caller's memory.

use half::f16;
use std::fmt::Debug;

/// Rows over three dimensions (stream, head, row), each with a stride in elements.
#[derive(Debug, Clone, Copy)]
pub struct Strided<'a, E> {
    data: &'a [E],
    strides: [usize; 3],
}

impl<'a, E> Strided<'a, E> {
    /// Strides of stream, head and row. That every row lies inside is checked with the shape.
    pub fn new(data: &'a [E], strides: [usize; 3]) -> Strided<'a, E> {
        Strided { data, strides }
    }

    /// Whether rows of `len` elements lie inside for every index below `counts`.
    pub(super) fn holds(&self, counts: [usize; 3], len: usize) -> bool {
        let last = counts.iter().zip(self.strides).try_fold(len, |sum, (n, stride)| {
            sum.checked_add(n.checked_sub(1)?.checked_mul(stride)?)
        });
        last.is_some_and(|last| last <= self.data.len())
    }

    /// Row `at`: stream, head, row.
    pub(super) fn row(&self, at: [usize; 3], len: usize) -> &'a [E] {
        let first: usize = at.iter().zip(self.strides).map(|(i, s)| i * s).sum();
        &self.data[first..][..len]
    }
}

/// A source of rows that are stored in some other type.
pub trait Decode: Sync + Debug {
    /// Whether a row of `len` elements is there for every index below `counts`.
    fn holds(&self, counts: [usize; 3], len: usize) -> bool;
    /// Writes row `at` (stream, head, position) into `dst`.
    fn decode(&self, at: [usize; 3], dst: &mut [f32]);
}

/// K or V.
#[derive(Debug, Clone, Copy)]
pub enum Cached<'a> {
    /// fp16, used as it is.
    Half(Strided<'a, f16>),
    /// Another type. The rows of a head are divided by a common power of two and rounded to fp16.
    Decoded(&'a dyn Decode),
}

impl Cached<'_> {
    pub(super) fn holds(&self, counts: [usize; 3], len: usize) -> bool {
        match self {
            Cached::Half(rows) => rows.holds(counts, len),
            Cached::Decoded(source) => source.holds(counts, len),
        }
    }
}

/// Largest magnitude; `None` when an element is not finite.
pub(super) fn largest(row: &[f32]) -> Option<f32> {
    // The bits of a non-negative float order like it, and what is not finite comes last.
    let bits = row.iter().fold(0u32, |max, x| max.max(x.to_bits() & 0x7fff_ffff));
    (bits < 0x7f80_0000).then(|| f32::from_bits(bits))
}

/// The smallest power of two that is at least `max`, of those that are normal and whose
/// reciprocals are finite: dividing by it and multiplying back lose nothing. `None` beyond 2^126.
pub(super) fn power_above(max: f32) -> Option<f32> {
    const LEAST: f32 = f32::MIN_POSITIVE;
    const MOST: f32 = f32::from_bits(253 << 23);
    if max == 0.0 {
        return Some(1.0);
    }
    if max > MOST {
        return None;
    }
    let power = f32::from_bits(max.to_bits() & 0x7f80_0000);
    Some(if max <= LEAST {
        LEAST
    } else if power == max {
        max
    } else {
        power * 2.0
    })
}

pub(super) fn halves_are_finite(row: &[f16]) -> bool {
    row.iter().fold(true, |all, x| all & (x.to_bits() & 0x7c00 != 0x7c00))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn powers_are_tight(bits in 1u32..0x7f80_0000) {
            let max = f32::from_bits(bits);
            match power_above(max) {
                Some(p) => {
                    prop_assert_eq!(p.to_bits() & 0x007f_ffff, 0);
                    prop_assert!(p >= max && (1.0 / p).is_normal());
                    prop_assert!(p == f32::MIN_POSITIVE || f64::from(p) < 2.0 * f64::from(max));
                }
                None => prop_assert!(max > 2f32.powi(126)),
            }
        }

        /// A row is where the strides say, and nothing is read beyond the slice.
        #[test]
        fn rows_are_where_their_strides_say(
            counts in prop::array::uniform3(1usize..4), strides in prop::array::uniform3(0usize..50),
            len in 1usize..9, short in 0usize..2,
        ) {
            let last: usize = counts.iter().zip(strides).map(|(n, s)| (n - 1) * s).sum();
            let data: Vec<usize> = (0..last + len - short).collect();
            let rows = Strided::new(&data, strides);
            prop_assert_eq!(rows.holds(counts, len), short == 0);
            if short == 0 {
                let at = counts.map(|n| n - 1);
                prop_assert_eq!(rows.row(at, len)[len - 1], last + len - 1);
            }
        }
    }

    #[test]
    fn what_is_not_finite() {
        assert_eq!(largest(&[1.0, -3.0, 0.0]), Some(3.0));
        for x in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(largest(&[1.0, x]), None);
            assert!(!halves_are_finite(&[f16::ONE, f16::from_f32(x)]));
        }
        assert!(halves_are_finite(&[f16::MAX, f16::MIN, f16::ZERO]));
    }
}
