//! Attention: one operation with flash attention, else a product with K and one with V.

use super::{Node, computed, facts};
use ggml_rocket::route::{AttentionFacts, Dtype, OpFacts};

/// The rank that hosts declare for the accumulator (ggml-abi 2.6).
const ACCUMULATOR_F32: i32 = 10;

/// Sizes of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Attention {
    /// Elements of a row of K.
    pub key: u64,
    /// Of V.
    pub value: u64,
    pub heads: u64,
    pub kv_heads: u64,
    /// Rows of Q.
    pub tokens: u64,
    /// Rows of K and V.
    pub kv: u64,
    /// With a mask, as all text models have it.
    pub masked: bool,
    pub sinks: bool,
    /// Of K and V where there is no flash attention.
    pub cache: Dtype,
}

impl Attention {
    pub fn nodes(self, flash: bool) -> Vec<Node> {
        let Attention { key, value, heads, kv_heads, tokens, kv, .. } = self;
        if !flash {
            let rows = [tokens, heads];
            return vec![
                computed(self.cache, [key, kv, kv_heads], rows),
                computed(self.cache, [kv, value, kv_heads], rows),
            ];
        }
        let mut op_params = [0; 16];
        op_params[0] = (1.0 / (key.max(1) as f32).sqrt()).to_bits().cast_signed();
        op_params[3] = ACCUMULATOR_F32;
        let of = AttentionFacts {
            q: facts(Dtype::F32, [key, tokens, heads, 1]),
            k: facts(Dtype::F16, [key, kv, kv_heads, 1]),
            v: facts(Dtype::F16, [value, kv, kv_heads, 1]),
            mask: self.masked.then(|| facts(Dtype::F16, [kv, tokens, 1, 1])),
            sinks: self.sinks.then(|| facts(Dtype::F32, [heads, 1, 1, 1])),
            result: facts(Dtype::F32, [value, heads, tokens, 1]),
            more_sources: false,
            in_host_memory: true,
            op_params,
        };
        vec![Node { facts: OpFacts::FlashAttn(of), tensor: None, movable: false, times: 1 }]
    }
}
