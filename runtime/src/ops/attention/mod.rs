//! Flash attention: `softmax(mask + slope * softcap(scale * Q K^T)) V`, a head at a time, on all cores.
//!
//! Q heads that share a KV head are stacked as rows of one product, so that K and V are packed once
//! for all of them. A worker takes a part at a time: Q K^T with fp32 results from the chip
//! (a logit never passes through fp16, whose 65 504 a raw product of Q and K may exceed), the softmax
//! in fp32 on the host while other workers' products run, then P V with K steps added up by the
//! host. P is exp(logit - largest of the row) in fp16, so at most 1, and the row is divided at
//! the end by the sum of exactly those rounded numbers: the weights of an output add up to 1.
//!
//! Columns that the mask hides from every row of a part are neither read nor multiplied.
//!
//! How far off: Q is rounded to fp16 within its row's power of two, P to fp16; everything else is
//! fp32 or finer. `tests/tests/attention` derives the bound of each element from that and holds the
//! results to it.

mod cache;
mod exact;
mod mask;
mod part;
mod plan;
mod run;
mod softmax;

pub use cache::{Cached, Decode, Strided};
pub use exact::Exact;
pub use mask::Mask;
pub use run::{Outcome, Scratch, Trouble, attention};
pub use softmax::slope;

use crate::{Error, Result};

/// Sizes of an attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Rows of Q of one head and stream.
    pub tokens: usize,
    /// Positions of K and V.
    pub n_kv: usize,
    /// Heads of Q and of the result.
    pub heads: usize,
    /// Heads of K and V; a divisor of `heads`.
    pub kv_heads: usize,
    /// Elements of a row of Q and K.
    pub key: usize,
    /// Elements of a row of V and of the result.
    pub value: usize,
    /// Independent sequences.
    pub streams: usize,
}

impl Shape {
    /// Q heads that share a KV head.
    pub fn group(&self) -> usize {
        self.heads / self.kv_heads.max(1)
    }

    /// Multiply-accumulates of both products, with nothing left out.
    pub fn macs(&self) -> u64 {
        let rows = (self.tokens * self.heads * self.streams) as u64;
        rows * self.n_kv as u64 * (self.key + self.value) as u64
    }

    /// Elements of the result.
    pub fn results(&self) -> usize {
        self.tokens * self.heads * self.streams * self.value
    }
}

/// One attention (ggml-abi 2.6, FLASH_ATTN_EXT). All strides are in elements.
#[derive(Debug, Clone, Copy)]
pub struct Attention<'a> {
    /// Sizes.
    pub shape: Shape,
    /// Q: rows of `key` elements, by stream, head and token.
    pub q: Strided<'a, f32>,
    /// K: rows of `key` elements, by stream, KV head and position.
    pub k: Cached<'a>,
    /// V: rows of `value` elements, by stream, KV head and position.
    pub v: Cached<'a>,
    /// What is added to the logits, minus infinity to hide a position.
    pub mask: Option<Mask<'a>>,
    /// A logit for each head that takes part in the sum and has no value.
    pub sinks: Option<&'a [f32]>,
    /// What the products of Q and K are multiplied by.
    pub scale: f32,
    /// ALiBi: the mask is multiplied by a [`slope`] of each head; 0 for 1 everywhere.
    pub max_bias: f32,
    /// Logits become `softcap * tanh(logit / softcap)` before the mask is added; 0 for no cap.
    pub softcap: f32,
}

impl Attention<'_> {
    /// Whether the operands belong together.
    fn check(&self, out: usize) -> Result<()> {
        let s = self.shape;
        let all = [s.tokens, s.n_kv, s.heads, s.kv_heads, s.key, s.value, s.streams];
        let why = if all.contains(&0) {
            "every dimension must be at least 1".to_owned()
        } else if !s.heads.is_multiple_of(s.kv_heads) {
            format!("{} heads cannot share {} KV heads alike", s.heads, s.kv_heads)
        } else if out != s.results() {
            format!("the result holds {out} elements, not {}", s.results())
        } else if !self.q.holds([s.streams, s.heads, s.tokens], s.key) {
            "Q does not hold its last row".to_owned()
        } else if !self.k.holds([s.streams, s.kv_heads, s.n_kv], s.key) {
            "K does not hold its last row".to_owned()
        } else if !self.v.holds([s.streams, s.kv_heads, s.n_kv], s.value) {
            "V does not hold its last row".to_owned()
        } else if !self.mask.is_none_or(|m| m.fits(s)) {
            "the mask does not hold a row for each token, or its heads or streams do not divide Q's"
                .to_owned()
        } else if self.sinks.is_some_and(|x| x.len() != s.heads) {
            format!("there must be one sink for each of {} heads", s.heads)
        } else if ![self.scale, self.max_bias, self.softcap].iter().all(|x| x.is_finite()) {
            "scale, bias and cap must be numbers".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Shape { what: format!("an attention of {s:?}"), why })
    }
}
