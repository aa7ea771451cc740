//! Cutting an attention into parts: who computes which rows over which columns.
//!
//! A part is a KV head's rows of some consecutive tokens. Rows lie token by token, in each the heads
//! that share the KV head, so that a part of few tokens sees few columns of a causal mask.

use super::mask::{Columns, Mask};
use super::{Attention, Shape};
use std::ops::Range;
use std::sync::Arc;

/// Bytes of logits that one worker holds at a time, but for a single token's.
pub(super) const LOGIT_BYTES: usize = 16 << 20;

/// Pieces that a part's tokens are made of, at least: no finer cut of a causal mask saves much.
const PIECES: usize = 16;

/// What costs as much as so many logits: reading, transposing and packing an element of K or V is
/// a tenth of multiplying, exponentiating and moving a logit; the two waits of a part are
/// half a millisecond.
const ELEMENT_COST: f64 = 0.1;
const PART_COST: f64 = 100_000.0;

/// Consecutive tokens, and the columns that they see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Block {
    pub tokens: Range<usize>,
    pub columns: Arc<Columns>,
}

/// A block of one stream and KV head.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Part {
    pub stream: usize,
    pub kv_head: usize,
    pub block: Block,
}

impl Part {
    /// Rows of its products.
    pub(super) fn rows(&self, s: Shape) -> usize {
        self.block.tokens.len() * s.group()
    }

    pub(super) fn logits(&self, s: Shape) -> usize {
        self.rows(s) * self.block.columns.len()
    }

    /// Q head and token of a row.
    pub(super) fn row(&self, s: Shape, row: usize) -> [usize; 2] {
        let group = s.group();
        [self.kv_head * group + row % group, self.block.tokens.start + row / group]
    }
}

/// Parts that a worker computes together.
pub(super) type Unit = Vec<Part>;

fn cost(rows: usize, columns: usize, s: Shape) -> f64 {
    let elements = (columns * (s.key + s.value)) as f64;
    (rows * columns) as f64 + ELEMENT_COST * elements + PART_COST
}

/// The parts, so joined that there are some for each of `workers` and the buffers stay small;
/// the largest first.
pub(super) fn units(a: &Attention<'_>, workers: usize) -> Vec<Unit> {
    let s = a.shape;
    let streams = a.mask.map_or(1, |m| m.streams());
    let blocks: Vec<Vec<Block>> =
        (0..streams).map(|stream| blocks(s, a.mask.as_ref(), stream, workers)).collect();
    let mut parts: Vec<Part> = Vec::new();
    for stream in 0..s.streams {
        for kv_head in 0..s.kv_heads {
            let of = |block: &Block| Part { stream, kv_head, block: block.clone() };
            parts.extend(blocks[stream % streams].iter().map(of));
        }
    }
    let price = |p: &Part| cost(p.rows(s), p.block.columns.len(), s);
    let share = parts.iter().map(price).sum::<f64>() / (2 * workers.max(1)) as f64;
    parts.sort_by(|a, b| price(b).total_cmp(&price(a)));
    let mut units: Vec<Unit> = Vec::new();
    let (mut full, mut bytes) = (f64::INFINITY, 0);
    for part in parts {
        let more = part.logits(s) * size_of::<f32>();
        match units.last_mut() {
            Some(unit) if full + price(&part) <= share && bytes + more <= LOGIT_BYTES => {
                full += price(&part);
                bytes += more;
                unit.push(part);
            }
            _ => {
                (full, bytes) = (price(&part), more);
                units.push(vec![part]);
            }
        }
    }
    units
}

/// Cuts the tokens of a stream where that is cheapest.
fn blocks(s: Shape, mask: Option<&Mask<'_>>, stream: usize, workers: usize) -> Vec<Block> {
    let fits = (LOGIT_BYTES / size_of::<f32>() / (s.group() * s.n_kv).max(1)).max(1);
    let piece = s.tokens.div_ceil(PIECES).min(fits);
    let pieces: Vec<(Range<usize>, Vec<bool>)> = (0..s.tokens)
        .step_by(piece)
        .map(|first| {
            let tokens = first..(first + piece).min(s.tokens);
            let mut seen = vec![mask.is_none(); s.n_kv];
            if let Some(mask) = mask {
                mask.mark(stream, tokens.clone(), &mut seen);
            }
            (tokens, seen)
        })
        .collect();
    let alike = s.kv_heads * s.streams;
    let candidates = std::iter::successors(Some(1), |n| (*n < pieces.len()).then_some(2 * n));
    candidates
        .filter_map(|joined| {
            let blocks: Vec<Block> = pieces.chunks(joined).map(join).collect();
            let logits = |b: &Block| b.tokens.len() * s.group() * b.columns.len();
            let small = |b: &Block| logits(b) * size_of::<f32>() <= LOGIT_BYTES;
            // Parts of one piece cannot be smaller.
            if joined > 1 && !blocks.iter().all(small) {
                return None;
            }
            let price = |b: &Block| cost(b.tokens.len() * s.group(), b.columns.len(), s);
            // What the slowest of the workers that have something to do is left with.
            let rounds = (blocks.len() * alike).div_ceil(workers.max(1)) as f64;
            let each = blocks.iter().map(price).sum::<f64>() / blocks.len() as f64;
            Some((rounds * each, blocks))
        })
        .min_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, blocks)| blocks)
        .unwrap_or_default()
}

fn join(pieces: &[(Range<usize>, Vec<bool>)]) -> Block {
    let mut seen = Vec::new();
    let (mut first, mut end) = (usize::MAX, 0);
    for (tokens, more) in pieces {
        (first, end) = (first.min(tokens.start), end.max(tokens.end));
        seen.resize(more.len(), false);
        seen.iter_mut().zip(more).for_each(|(s, m)| *s |= m);
    }
    Block { tokens: first..end, columns: Arc::new(Columns::marked(&seen)) }
}

#[cfg(test)]
mod tests {
    use super::super::{Cached, Strided};
    use super::*;
    use half::f16;
    use proptest::prelude::*;
    use std::collections::HashMap;

    /// Units of a mask that `sees` describes; nothing else of the operands is looked at.
    fn of(
        s: Shape,
        sees: Option<&dyn Fn(usize, usize, usize) -> bool>,
        workers: usize,
    ) -> Vec<Unit> {
        let mut data = Vec::new();
        if let Some(sees) = sees {
            for i in 0..s.streams * s.tokens * s.n_kv {
                let (stream, token) = (i / s.n_kv / s.tokens, i / s.n_kv % s.tokens);
                let hidden = !sees(stream, token, i % s.n_kv);
                data.push(if hidden { f16::NEG_INFINITY } else { f16::ZERO });
            }
        }
        let rows = Strided::new(&data[..], [s.tokens * s.n_kv, 0, s.n_kv]);
        let nothing = Cached::Half(Strided::new(&[], [0; 3]));
        let a = Attention {
            shape: s,
            q: Strided::new(&[], [0; 3]),
            k: nothing,
            v: nothing,
            mask: sees.map(|_| Mask::new(rows, s.streams, 1)),
            sinks: None,
            scale: 1.0,
            max_bias: 0.0,
            softcap: 0.0,
        };
        units(&a, workers)
    }

    fn shape(tokens: usize, n_kv: usize, heads: usize, kv_heads: usize, streams: usize) -> Shape {
        Shape { tokens, n_kv, heads, kv_heads, key: 128, value: 128, streams }
    }

    proptest! {
        /// Every row of every head is in one part, whose columns hold all that the row sees; no
        /// column is hidden from every row of its part; no worker holds more than it may.
        #[test]
        fn parts_cover_everything_once(
            tokens in 1usize..40, n_kv in 1usize..50, kv_heads in 1usize..4, group in 1usize..4,
            streams in 1usize..3, workers in 1usize..6, window in 1usize..60, seed in any::<u64>(),
        ) {
            let s = shape(tokens, n_kv, kv_heads * group, kv_heads, streams);
            let sees = |stream: usize, token: usize, column: usize| {
                let x = (seed >> ((stream * 7 + token + column) % 60)) & 1 == 1;
                x && column <= token && column + window > token
            };
            let mut rows: HashMap<[usize; 3], usize> = HashMap::new();
            for part in of(s, Some(&sees), workers).iter().flatten() {
                let columns: Vec<usize> =
                    (0..part.block.columns.len()).map(|i| part.block.columns.at(i)).collect();
                for row in 0..part.rows(s) {
                    let [head, token] = part.row(s, row);
                    prop_assert_eq!(head / group, part.kv_head);
                    *rows.entry([part.stream, head, token]).or_default() += 1;
                    let seen = (0..n_kv).filter(|&c| sees(part.stream, token, c));
                    prop_assert!(seen.into_iter().all(|c| columns.contains(&c)));
                }
                let mut tokens = part.block.tokens.clone();
                prop_assert!(columns.iter().all(|&c| tokens.clone().any(|t| sees(part.stream, t, c))));
                prop_assert!(tokens.next().is_some());
            }
            prop_assert_eq!(rows.len(), tokens * s.heads * streams);
            prop_assert!(rows.values().all(|n| *n == 1));
        }
    }

    #[test]
    fn a_causal_mask_is_cut_and_a_full_one_is_not() {
        // A first micro-batch of 2048 tokens: nearly half of the logits are hidden.
        let s = shape(2048, 2048, 24, 8, 1);
        let causal = of(s, Some(&|_, token, column| column <= token), 5);
        let logits: usize = causal.iter().flatten().map(|p| p.logits(s)).sum();
        let all = s.tokens * s.heads * s.n_kv;
        assert!(logits * 100 < all * 60, "{logits} of {all}");
        // The same tokens over a context that all of them see: cut for memory and balance only.
        let full: Vec<Unit> = of(s, None, 5);
        assert_eq!(full.iter().flatten().map(|p| p.logits(s)).sum::<usize>(), all);
    }

    /// Sequences of one cache: each sees its own columns, and no part sees all.
    #[test]
    fn sequences_do_not_read_each_other() {
        let s = shape(64, 4096, 8, 2, 1);
        let units = of(s, Some(&|_, token, column| column / 1024 == token / 16), 4);
        for part in units.iter().flatten() {
            assert!(part.block.columns.len() <= 2048, "{:?}", part.block);
        }
    }

    #[test]
    fn memory_is_bounded_and_everyone_has_work() {
        for s in [
            shape(512, 8192, 24, 8, 1),
            shape(512, 32768, 32, 1, 1),
            shape(16, 1024, 9, 3, 1),
            shape(4096, 4096, 4, 4, 2),
            shape(3, 1 << 20, 8, 1, 1),
        ] {
            let units = of(s, None, 5);
            for unit in &units {
                let bytes: usize = unit.iter().map(|p| p.logits(s) * 4).sum();
                let one_token = s.group() * s.n_kv * 4;
                assert!(bytes <= LOGIT_BYTES.max(one_token), "{s:?}: {bytes}");
            }
            let parts: usize = units.iter().map(Vec::len).sum();
            assert!(units.len() >= parts.min(5), "{s:?}: {} units of {parts} parts", units.len());
        }
    }
}
