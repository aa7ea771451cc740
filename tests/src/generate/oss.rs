//! Experts in MXFP4, attention with sinks and a sliding window: gpt-oss.

use super::llama::ends;
use super::{Kind, Recipe, TOKENS, Values, vocabulary};

const WIDTH: usize = 2880;
const HEAD: usize = 64;
const HEADS: usize = 64;
const KV_HEADS: usize = 8;
/// A third of the real one, for the file's size.
const INNER: usize = 960;
const EXPERTS: usize = 32;
/// The first block attends to so many tokens, the second to all.
const WINDOW: u32 = 128;

/// Two blocks of 32 experts, four a token.
pub fn oss() -> Recipe {
    let mut r = Recipe::new("oss");
    r.architecture(
        "gpt-oss",
        &[
            ("context_length", 4096),
            ("embedding_length", WIDTH as u32),
            ("block_count", 2),
            ("feed_forward_length", INNER as u32),
            ("expert_feed_forward_length", INNER as u32),
            ("expert_count", EXPERTS as u32),
            ("expert_used_count", 4),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", KV_HEADS as u32),
            ("attention.key_length", HEAD as u32),
            ("attention.value_length", HEAD as u32),
            ("attention.sliding_window", WINDOW),
            ("rope.dimension_count", HEAD as u32),
            ("vocab_size", TOKENS as u32),
        ],
    );
    r.key("gpt-oss.attention.layer_norm_rms_epsilon", 1e-5f32);
    r.key("gpt-oss.rope.freq_base", 150_000.0f32);
    vocabulary::keys(&mut r);
    ends(&mut r, WIDTH, Kind::Q8_0);
    for i in 0..2 {
        let at = |part: &str| format!("blk.{i}.{part}");
        let (q, kv) = (HEADS * HEAD, KV_HEADS * HEAD);
        r.vector(at("attn_norm.weight"), &[WIDTH], Values::Outliers(8.0));
        r.vector(at("post_attention_norm.weight"), &[WIDTH], Values::Outliers(4.0));
        for (part, shape) in [
            ("attn_q", [WIDTH, q]),
            ("attn_k", [WIDTH, kv]),
            ("attn_v", [WIDTH, kv]),
            ("attn_output", [q, WIDTH]),
        ] {
            r.matrix(at(part), &shape, Kind::Q8_0, 1.0);
            r.vector(at(&format!("{part}.bias")), &shape[1..], Values::Normal(0.1));
        }
        // Some heads attend to nothing with most of their weight.
        r.vector(at("attn_sinks.weight"), &[HEADS], Values::Ramp(-2.0, 6.0));
        // Where a rounding swaps the last expert for the next, neither must weigh much.
        r.matrix(at("ffn_gate_inp"), &[WIDTH, EXPERTS], Kind::F32, 4.0);
        r.vector(at("ffn_gate_inp.bias"), &[EXPERTS], Values::Normal(0.5));
        for (part, shape) in [
            ("ffn_gate_exps", [WIDTH, INNER]),
            ("ffn_up_exps", [WIDTH, INNER]),
            ("ffn_down_exps", [INNER, WIDTH]),
        ] {
            let [k, n] = shape;
            r.matrix(at(part), &[k, n, EXPERTS], Kind::Mxfp4, 0.5);
            r.vector(at(&format!("{part}.bias")), &[n, EXPERTS], Values::Normal(0.1));
        }
    }
    r
}
