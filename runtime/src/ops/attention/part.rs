//! What the host does for one part.

use super::Attention;
use super::cache::{Cached, halves_are_finite, largest, power_above};
use super::mask::Columns;
use super::plan::Part;
use super::run::Trouble;
use super::softmax::{self, Terms, slope};
use crate::kernels::convert;
use crate::matmul::Weights;
use half::f16;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};

thread_local! {
    /// Room for a decoded row.
    static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

fn with_row<R>(len: usize, f: impl FnOnce(&mut [f32]) -> R) -> R {
    ROW.with_borrow_mut(|row| {
        if row.len() < len {
            row.resize(len, 0.0);
        }
        f(&mut row[..len])
    })
}

/// K or V of a part: its columns' rows, in fp16.
#[derive(Debug)]
pub(super) struct Fitted<'a> {
    source: Cached<'a>,
    head: [usize; 2],
    columns: &'a Columns,
    len: usize,
    /// What the stored numbers were divided by.
    pub scale: f32,
    unfit: AtomicBool,
}

impl<'a> Fitted<'a> {
    /// Of a stream and KV head.
    pub(super) fn new(
        source: Cached<'a>,
        head: [usize; 2],
        columns: &'a Columns,
        len: usize,
    ) -> Result<Fitted<'a>, Trouble> {
        let mut fitted =
            Fitted { source, head, columns, len, scale: 1.0, unfit: AtomicBool::new(false) };
        if let Cached::Decoded(source) = source {
            let most = with_row(len, |row| {
                columns.ranges().iter().flat_map(Clone::clone).try_fold(0f32, |most, column| {
                    source.decode([head[0], head[1], column], row);
                    Some(most.max(largest(row)?))
                })
            });
            let most = most.ok_or(Trouble::CacheNotFinite)?;
            fitted.scale = power_above(most).ok_or(Trouble::CacheNotFinite)?;
        }
        Ok(fitted)
    }

    /// Whether all that was loaded was finite.
    pub(super) fn fit(&self) -> Result<(), Trouble> {
        if self.unfit.load(Ordering::Relaxed) { Err(Trouble::CacheNotFinite) } else { Ok(()) }
    }

    /// Columns as rows of V's transpose: `dst[c][i]` is element `c` of column `i`.
    pub(super) fn transpose(&self, dst: &mut [f16]) {
        const BLOCK: usize = 32;
        let (n, len) = (self.columns.len(), self.len);
        let mut block = vec![f16::ZERO; BLOCK * len];
        for first in (0..n).step_by(BLOCK) {
            let count = BLOCK.min(n - first);
            for (i, row) in block.chunks_exact_mut(len).take(count).enumerate() {
                self.load(first + i, row);
            }
            for (c, line) in dst.chunks_exact_mut(n).enumerate() {
                let line = &mut line[first..][..count];
                line.iter_mut().enumerate().for_each(|(i, x)| *x = block[i * len + c]);
            }
        }
    }
}

impl Weights<f16> for Fitted<'_> {
    fn n(&self) -> usize {
        self.columns.len()
    }

    fn k(&self) -> usize {
        self.len
    }

    fn load(&self, n: usize, dst: &mut [f16]) {
        let at = [self.head[0], self.head[1], self.columns.at(n)];
        match self.source {
            Cached::Half(rows) => {
                dst.copy_from_slice(rows.row(at, self.len));
                if !halves_are_finite(dst) {
                    self.unfit.store(true, Ordering::Relaxed);
                }
            }
            Cached::Decoded(source) => with_row(self.len, |row| {
                source.decode(at, row);
                divide(row, self.scale, dst);
            }),
        }
    }
}

/// Exact but for the rounding to fp16: the scale is a power of two.
fn divide(row: &mut [f32], scale: f32, dst: &mut [f16]) {
    let factor = 1.0 / scale;
    row.iter_mut().for_each(|x| *x *= factor);
    convert::f32_to_f16(row, dst);
}

/// Q's rows of a part in fp16, each divided by a power of two; `scales` becomes what their
/// products with K, divided by `keys`, are to be multiplied by to be logits.
pub(super) fn queries(
    a: &Attention<'_>,
    part: &Part,
    keys: f32,
    dst: &mut [f16],
    scales: &mut [f32],
) -> Result<(), Trouble> {
    let len = a.shape.key;
    for (r, (dst, scale)) in dst.chunks_exact_mut(len).zip(scales).enumerate() {
        let [head, token] = part.row(a.shape, r);
        let row = a.q.row([part.stream, head, token], len);
        let most = largest(row).ok_or(Trouble::QueryNotFinite)?;
        let power = power_above(most).ok_or(Trouble::QueryNotFinite)?;
        with_row(len, |copy| {
            copy.copy_from_slice(row);
            divide(copy, power, dst);
        });
        *scale = power * keys * a.scale;
    }
    Ok(())
}

/// Buffers of the softmax.
#[derive(Debug, Default)]
pub(super) struct Rows {
    mask: Vec<f32>,
    gathered: Vec<f16>,
    numerators: Vec<f16>,
}

/// The softmax of a part's logits, in place: row `r` of P lies at the beginning of the memory that
/// row `r` of the logits had. `factors` becomes what the rows of P V are to be multiplied by.
pub(super) fn softmax(
    a: &Attention<'_>,
    part: &Part,
    values: f32,
    logits: &mut [f32],
    factors: &mut [f32],
    rows: &mut Rows,
) -> Result<(), Trouble> {
    let (s, columns) = (a.shape, &*part.block.columns);
    let n = columns.len();
    rows.mask.resize(n, 0.0);
    rows.gathered.resize(n, f16::ZERO);
    rows.numerators.resize(n, f16::ZERO);
    let mut held = None;
    for (r, (line, factor)) in logits.chunks_exact_mut(n).zip(factors).enumerate() {
        let [head, token] = part.row(s, r);
        if let Some(mask) = a.mask {
            // The heads of a token mostly share it.
            let which = (token, if mask.is_shared() { 0 } else { head });
            if held != Some(which) {
                columns.gather(mask.row([part.stream, head, token], s.n_kv), &mut rows.gathered);
                convert::f16_to_f32(&rows.gathered, &mut rows.mask);
                held = Some(which);
            }
        }
        let terms = Terms {
            softcap: a.softcap,
            mask: a.mask.map(|_| &rows.mask[..]),
            slope: slope(head, s.heads, a.max_bias),
            sink: a.sinks.map(|x| x[head]),
        };
        let sum = softmax::row(line, terms, &mut rows.numerators);
        *factor = sum.ok_or(Trouble::ResultNotFinite)? * values;
        bytemuck::cast_slice_mut::<f32, f16>(line)[..n].copy_from_slice(&rows.numerators);
    }
    Ok(())
}

/// Puts the rows of a part's result where they belong.
pub(super) fn deliver(context: &[f32], len: usize, out: &mut [&mut [f32]]) -> Result<(), Trouble> {
    for (row, out) in context.chunks_exact(len).zip(out) {
        largest(row).ok_or(Trouble::ResultNotFinite)?;
        out.copy_from_slice(row);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{Decode, Strided};
    use super::*;

    #[derive(Debug)]
    struct Table(Vec<Vec<f32>>);

    impl Decode for Table {
        fn holds(&self, _: [usize; 3], _: usize) -> bool {
            true
        }

        fn decode(&self, at: [usize; 3], dst: &mut [f32]) {
            dst.copy_from_slice(&self.0[at[2]]);
        }
    }

    /// Element c of column i, for both kinds of source, with columns left out.
    #[test]
    fn transposed() {
        let (n, len) = (70, 5);
        let value = |column: usize, c: usize| (column * 8 + c) as f32;
        let seen: Vec<bool> = (0..n).map(|i| i % 7 != 3).collect();
        let columns = Columns::marked(&seen);
        let table = Table((0..n).map(|i| (0..len).map(|c| value(i, c)).collect()).collect());
        let halves: Vec<f16> = table.0.iter().flatten().map(|x| f16::from_f32(*x)).collect();
        for source in [Cached::Half(Strided::new(&halves, [0, 0, len])), Cached::Decoded(&table)] {
            let v = Fitted::new(source, [0, 0], &columns, len).unwrap();
            let mut t = vec![f16::NAN; len * columns.len()];
            v.transpose(&mut t);
            for c in 0..len {
                for i in 0..columns.len() {
                    let got = t[c * columns.len() + i].to_f32() * v.scale;
                    assert_eq!(got, value(columns.at(i), c));
                }
            }
            assert_eq!(v.fit(), Ok(()));
        }
    }

    /// Beyond fp16 either way: divided by a common power of two.
    #[test]
    fn decoded_rows_fit() {
        let columns = Columns::all(2);
        for size in [1e30f32, 1.0, 1e-30] {
            let table = Table(vec![vec![3.0 * size, -size], vec![0.5 * size, 0.0]]);
            let k = Fitted::new(Cached::Decoded(&table), [0, 0], &columns, 2).unwrap();
            let mut row = [f16::ZERO; 2];
            k.load(0, &mut row);
            for (got, want) in row.iter().zip(&table.0[0]) {
                let back = f64::from(got.to_f32()) * f64::from(k.scale);
                assert!((back / f64::from(*want) - 1.0).abs() < 1.0 / 2048.0, "{back} {want}");
            }
        }
    }

    /// What is not a number is found where it is used, and only there.
    #[test]
    fn unfit_rows() {
        let mut halves = vec![f16::ONE; 6];
        halves[3] = f16::INFINITY;
        let table = Table(vec![vec![1.0; 2], vec![1.0, f32::NAN], vec![1.0; 2]]);
        for (columns, fits) in
            [(Columns::all(3), false), (Columns::marked(&[true, false, true]), true)]
        {
            let rows = Cached::Half(Strided::new(&halves, [0, 0, 2]));
            let v = Fitted::new(rows, [0, 0], &columns, 2).unwrap();
            v.transpose(&mut vec![f16::ZERO; 2 * columns.len()]);
            assert_eq!(v.fit().is_ok(), fits);
            let decoded = Fitted::new(Cached::Decoded(&table), [0, 0], &columns, 2);
            assert_eq!(decoded.is_ok(), fits);
        }
    }
}
