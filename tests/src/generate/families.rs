//! The smallest models of families that differ in what they multiply: norms of heads, windows, one matrix
//! for Q, K and V, experts with and without a shared one. For what a host computes, not for how well.

use super::llama::{ends, feed_forward};
use super::{Kind, Recipe, TOKENS, Values, vocabulary};

const WIDTH: usize = 256;
const HEAD: usize = 64;
const HEADS: usize = 4;
const KV_HEADS: usize = 2;
const INNER: usize = 704;
const BLOCKS: usize = 4;
const EXPERTS: usize = 8;
/// Of an expert.
const NARROW: usize = 128;
/// Tokens that a layer with a window sees.
const WINDOW: u32 = 96;

/// One by its architecture's name: qwen2, qwen2moe, qwen3, qwen3moe, gemma2, gemma3 or phi3.
pub fn family(name: &str) -> Recipe {
    // A host takes special words for granted where a name has phi3 in it.
    let mut r = Recipe::new(if name == "phi3" { "fused-qkv" } else { name });
    let experts = name.ends_with("moe");
    let gemma = name.starts_with("gemma");
    let mut numbers = vec![
        ("context_length", 4096),
        ("embedding_length", WIDTH as u32),
        ("block_count", BLOCKS as u32),
        ("feed_forward_length", INNER as u32),
        ("attention.head_count", HEADS as u32),
        ("attention.head_count_kv", KV_HEADS as u32),
        ("attention.key_length", HEAD as u32),
        ("attention.value_length", HEAD as u32),
        ("rope.dimension_count", HEAD as u32),
        ("vocab_size", TOKENS as u32),
    ];
    if gemma {
        numbers.push(("attention.sliding_window", WINDOW));
    }
    if experts {
        numbers.extend([
            ("expert_count", EXPERTS as u32),
            ("expert_used_count", 2),
            ("expert_feed_forward_length", NARROW as u32),
            ("expert_shared_feed_forward_length", 2 * NARROW as u32),
        ]);
    }
    r.architecture(name, &numbers);
    r.key(format!("{name}.attention.layer_norm_rms_epsilon"), 1e-5f32);
    if name == "gemma2" {
        r.key("gemma2.attn_logit_softcapping", 50.0f32);
        r.key("gemma2.final_logit_softcapping", 30.0f32);
    }
    vocabulary::keys(&mut r);
    ends(&mut r, WIDTH, Kind::F16);
    if gemma {
        // The embedding is the head as well.
        r.tensors.retain(|t| t.name != "output.weight");
    }
    for i in 0..BLOCKS {
        block(&mut r, name, i);
    }
    r
}

fn block(r: &mut Recipe, name: &str, i: usize) {
    let at = |part: &str| format!("blk.{i}.{part}");
    let norm = |r: &mut Recipe, part: &str, n: usize| {
        r.vector(format!("blk.{i}.{part}.weight"), &[n], Values::All(1.0));
    };
    let (q, kv) = (HEADS * HEAD, KV_HEADS * HEAD);
    norm(r, "attn_norm", WIDTH);
    if name == "phi3" {
        r.matrix(at("attn_qkv"), &[WIDTH, q + 2 * kv], Kind::F16, 1.0);
    } else {
        for (part, n) in [("attn_q", q), ("attn_k", kv), ("attn_v", kv)] {
            r.matrix(at(part), &[WIDTH, n], Kind::F16, 1.0);
            if name.starts_with("qwen2") {
                r.vector(at(&format!("{part}.bias")), &[n], Values::Normal(0.1));
            }
        }
    }
    if name.starts_with("qwen3") || name == "gemma3" {
        norm(r, "attn_q_norm", HEAD);
        norm(r, "attn_k_norm", HEAD);
    }
    r.matrix(at("attn_output"), &[q, WIDTH], Kind::F16, 1.0);
    if name.starts_with("gemma") {
        norm(r, "post_attention_norm", WIDTH);
        norm(r, "post_ffw_norm", WIDTH);
    }
    match name {
        "phi3" => {
            norm(r, "ffn_norm", WIDTH);
            r.matrix(at("ffn_up"), &[WIDTH, 2 * INNER], Kind::F16, 0.5);
            r.matrix(at("ffn_down"), &[INNER, WIDTH], Kind::F16, 0.5);
        }
        _ if name.ends_with("moe") => {
            norm(r, "ffn_norm", WIDTH);
            r.matrix(at("ffn_gate_inp"), &[WIDTH, EXPERTS], Kind::F32, 4.0);
            for (part, [k, n]) in
                [("gate", [WIDTH, NARROW]), ("up", [WIDTH, NARROW]), ("down", [NARROW, WIDTH])]
            {
                r.matrix(at(&format!("ffn_{part}_exps")), &[k, n, EXPERTS], Kind::Q8_0, 0.5);
            }
            if name == "qwen2moe" {
                r.matrix(at("ffn_gate_inp_shexp"), &[WIDTH], Kind::F32, 1.0);
                let wide = 2 * NARROW;
                for (part, shape) in
                    [("gate", [WIDTH, wide]), ("up", [WIDTH, wide]), ("down", [wide, WIDTH])]
                {
                    r.matrix(at(&format!("ffn_{part}_shexp")), &shape, Kind::F16, 0.5);
                }
            }
        }
        _ => feed_forward(r, i, [WIDTH, INNER], Kind::F16),
    }
}
