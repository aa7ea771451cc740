//! The mask, and which columns it leaves.

use super::{Shape, Strided};
use half::f16;
use std::ops::Range;

/// What is added to the logits: rows of one element a position. Heads and streams of Q use those of
/// the mask in turn, so that one of either serves all (ggml-abi 2.6, FLASH_ATTN_EXT).
#[derive(Debug, Clone, Copy)]
pub struct Mask<'a> {
    rows: Strided<'a, f16>,
    heads: usize,
    streams: usize,
}

impl<'a> Mask<'a> {
    /// Rows by stream, head and token, of so many streams and heads.
    pub fn new(rows: Strided<'a, f16>, streams: usize, heads: usize) -> Mask<'a> {
        Mask { rows, heads, streams }
    }

    pub(super) fn fits(&self, s: Shape) -> bool {
        let divides = |n: usize, of: usize| n > 0 && of.is_multiple_of(n);
        divides(self.heads, s.heads)
            && divides(self.streams, s.streams)
            && self.rows.holds([self.streams, self.heads, s.tokens], s.n_kv)
    }

    /// Streams with a mask of their own.
    pub(super) fn streams(&self) -> usize {
        self.streams
    }

    /// Whether all heads have the same.
    pub(super) fn is_shared(&self) -> bool {
        self.heads == 1
    }

    /// The row of a stream, head and token of Q.
    pub(super) fn row(&self, [stream, head, token]: [usize; 3], n_kv: usize) -> &'a [f16] {
        self.rows.row([stream % self.streams, head % self.heads, token], n_kv)
    }

    /// Marks the columns that some head of `stream` sees from one of `tokens`.
    pub(super) fn mark(&self, stream: usize, tokens: Range<usize>, seen: &mut [bool]) {
        for head in 0..self.heads {
            for token in tokens.clone() {
                let row = self.row([stream, head, token], seen.len());
                seen.iter_mut().zip(row).for_each(|(s, m)| *s |= *m != f16::NEG_INFINITY);
            }
        }
    }
}

/// Columns that a part uses: ascending ranges with gaps between them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Columns {
    ranges: Vec<Range<usize>>,
    /// Columns before each range.
    before: Vec<usize>,
    len: usize,
}

impl Columns {
    #[cfg(test)]
    pub(super) fn all(n: usize) -> Columns {
        Columns::marked(&vec![true; n])
    }

    pub(super) fn marked(seen: &[bool]) -> Columns {
        let mut columns = Columns::default();
        let mut at = 0;
        while let Some(skip) = seen[at..].iter().position(|s| *s) {
            let first = at + skip;
            let len = seen[first..].iter().position(|s| !*s).unwrap_or(seen.len() - first);
            columns.ranges.push(first..first + len);
            columns.before.push(columns.len);
            columns.len += len;
            at = first + len;
        }
        columns
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn ranges(&self) -> &[Range<usize>] {
        &self.ranges
    }

    /// The column that is number `i` among these.
    pub(super) fn at(&self, i: usize) -> usize {
        let range = self.before.partition_point(|b| *b <= i) - 1;
        self.ranges[range].start + i - self.before[range]
    }

    /// Those of a whole row, side by side.
    pub(super) fn gather<E: Copy>(&self, row: &[E], dst: &mut [E]) {
        for (range, before) in self.ranges.iter().zip(&self.before) {
            dst[*before..][..range.len()].copy_from_slice(&row[range.clone()]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Against the list of marked columns itself.
        #[test]
        fn columns_are_the_marked_ones(seen in prop::collection::vec(any::<bool>(), 0..80)) {
            let columns = Columns::marked(&seen);
            let list: Vec<usize> = (0..seen.len()).filter(|i| seen[*i]).collect();
            prop_assert_eq!(columns.len(), list.len());
            let ours: Vec<usize> = (0..columns.len()).map(|i| columns.at(i)).collect();
            prop_assert_eq!(&ours, &list);
            let row: Vec<usize> = (0..seen.len()).collect();
            let mut dst = vec![0; list.len()];
            columns.gather(&row, &mut dst);
            prop_assert_eq!(dst, list);
            prop_assert!(columns.ranges().windows(2).all(|w| w[0].end < w[1].start));
        }
    }

    /// A column is used if any head sees it from any token of the range, of this stream alone.
    #[test]
    fn hidden_is_what_nobody_sees() {
        let (hidden, seen) = (f16::NEG_INFINITY, f16::from_f32(-3.0));
        let mut data = vec![hidden; 2 * 2 * 3 * 5]; // streams, heads, tokens, columns
        for (stream, head, token, column) in [(0, 0, 0, 4), (0, 1, 1, 2), (1, 0, 2, 0)] {
            data[((stream * 2 + head) * 3 + token) * 5 + column] = seen;
        }
        let mask = Mask::new(Strided::new(&data, [30, 15, 5]), 2, 2);
        let marked = |stream, tokens| {
            let mut seen = [false; 5];
            mask.mark(stream, tokens, &mut seen);
            let columns = Columns::marked(&seen);
            columns.ranges().iter().map(|r| (r.start, r.end)).collect::<Vec<_>>()
        };
        assert_eq!(marked(0, 0..3), [(2, 3), (4, 5)]);
        assert_eq!(marked(0, 1..2), [(2, 3)]);
        assert_eq!(marked(1, 0..2), []);
        assert_eq!(marked(3, 2..3), [(0, 1)], "streams in turn");
    }
}
