//! Attention through a latent vector, and experts: deepseek2.

use super::llama::{ends, feed_forward};
use super::{Kind, Recipe, TOKENS, Values, vocabulary};

const WIDTH: usize = 2048;
const HEADS: usize = 16;
const LATENT: usize = 512;
const QUERY_LATENT: usize = 768;
const ROPE: usize = 64;
/// Of a head, without the rotated part.
const KEY: usize = 128;
const VALUE: usize = 128;
const INNER: usize = 1408;
const EXPERTS: usize = 16;

/// One dense block and one of sixteen experts, four a token, beside a shared one. `absorbed`: keys
/// and values stay latent in the cache (heads of 576 and 512); else heads are 192 and 128.
pub fn mla(absorbed: bool) -> Recipe {
    let mut r = Recipe::new(if absorbed { "mla-absorbed" } else { "mla" });
    let (key, value) = if absorbed { (LATENT + ROPE, LATENT) } else { (KEY + ROPE, VALUE) };
    r.architecture(
        "deepseek2",
        &[
            ("context_length", 4096),
            ("embedding_length", WIDTH as u32),
            ("block_count", 2),
            ("leading_dense_block_count", 1),
            ("feed_forward_length", 2 * INNER as u32),
            ("expert_feed_forward_length", INNER as u32),
            ("expert_count", EXPERTS as u32),
            ("expert_used_count", 4),
            ("expert_shared_count", 1),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", if absorbed { 1 } else { HEADS as u32 }),
            ("attention.q_lora_rank", QUERY_LATENT as u32),
            ("attention.kv_lora_rank", LATENT as u32),
            ("attention.key_length", key as u32),
            ("attention.value_length", value as u32),
            ("rope.dimension_count", ROPE as u32),
            ("vocab_size", TOKENS as u32),
        ],
    );
    if absorbed {
        r.key("deepseek2.attention.key_length_mla", (KEY + ROPE) as u32);
        r.key("deepseek2.attention.value_length_mla", VALUE as u32);
    }
    r.key("deepseek2.attention.layer_norm_rms_epsilon", 1e-6f32);
    r.key("deepseek2.expert_weights_scale", 1.0f32);
    vocabulary::keys(&mut r);
    ends(&mut r, WIDTH, Kind::Q8_0);
    for i in 0..2 {
        let at = |part: &str| format!("blk.{i}.{part}");
        r.vector(at("attn_norm.weight"), &[WIDTH], Values::Outliers(4.0));
        r.vector(at("attn_q_a_norm.weight"), &[QUERY_LATENT], Values::All(1.0));
        r.vector(at("attn_kv_a_norm.weight"), &[LATENT], Values::All(1.0));
        r.matrix(at("attn_q_a"), &[WIDTH, QUERY_LATENT], Kind::Q4K, 1.0);
        r.matrix(at("attn_q_b"), &[QUERY_LATENT, HEADS * (KEY + ROPE)], Kind::Q4K, 1.0);
        r.matrix(at("attn_kv_a_mqa"), &[WIDTH, LATENT + ROPE], Kind::Q8_0, 1.0);
        if absorbed {
            r.matrix(at("attn_k_b"), &[KEY, LATENT, HEADS], Kind::Q8_0, 0.5);
            r.matrix(at("attn_v_b"), &[LATENT, VALUE, HEADS], Kind::Q8_0, 1.0);
        } else {
            r.matrix(at("attn_kv_b"), &[LATENT, HEADS * (KEY + VALUE)], Kind::Q8_0, 1.0);
        }
        r.matrix(at("attn_output"), &[HEADS * VALUE, WIDTH], Kind::Q4K, 1.0);
        if i == 0 {
            feed_forward(&mut r, i, [WIDTH, 2 * INNER], Kind::Q4K);
            continue;
        }
        r.vector(at("ffn_norm.weight"), &[WIDTH], Values::Outliers(4.0));
        // Where a rounding swaps the last expert for the next, neither must weigh much.
        r.matrix(at("ffn_gate_inp"), &[WIDTH, EXPERTS], Kind::F32, 4.0);
        for (part, shape) in
            [("ffn_gate", [WIDTH, INNER]), ("ffn_up", [WIDTH, INNER]), ("ffn_down", [INNER, WIDTH])]
        {
            let [k, n] = shape;
            let (experts, shared) = match k % 256 {
                0 => (Kind::Q4K, Kind::Q4K),
                _ => (Kind::Q8_0, Kind::Q8_0),
            };
            r.matrix(at(&format!("{part}_exps")), &[k, n, EXPERTS], experts, 0.5);
            r.matrix(at(&format!("{part}_shexp")), &[k, n], shared, 0.5);
        }
    }
    r
}
