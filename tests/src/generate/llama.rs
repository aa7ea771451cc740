//! Dense models with grouped queries: llama.

use super::{Kind, Recipe, TOKENS, Values, vocabulary};

/// Sizes of one.
struct Sizes {
    width: usize,
    head: usize,
    heads: usize,
    kv_heads: usize,
    inner: usize,
    blocks: usize,
    context: u32,
}

/// Heads of 128 as from 3 billion parameters on, four queries a key, outliers eight times the rest.
pub fn dense() -> Recipe {
    let sizes = Sizes {
        width: 1024,
        head: 128,
        heads: 8,
        kv_heads: 2,
        inner: 2816,
        blocks: 3,
        context: 4096,
    };
    llama("dense", Kind::F16, &sizes)
}

/// As few multiplications as still take the same ways: for many prompts.
pub fn tiny(kind: Kind) -> Recipe {
    let sizes =
        Sizes { width: 256, head: 64, heads: 4, kv_heads: 2, inner: 704, blocks: 2, context: 2048 };
    llama("tiny", kind, &sizes)
}

fn llama(name: &str, kind: Kind, s: &Sizes) -> Recipe {
    let mut r = Recipe::new(name);
    r.architecture(
        "llama",
        &[
            ("context_length", s.context),
            ("embedding_length", s.width as u32),
            ("block_count", s.blocks as u32),
            ("feed_forward_length", s.inner as u32),
            ("attention.head_count", s.heads as u32),
            ("attention.head_count_kv", s.kv_heads as u32),
            ("attention.key_length", s.head as u32),
            ("attention.value_length", s.head as u32),
            ("rope.dimension_count", s.head as u32),
            ("vocab_size", TOKENS as u32),
        ],
    );
    r.key("llama.attention.layer_norm_rms_epsilon", 1e-5f32);
    vocabulary::keys(&mut r);
    ends(&mut r, s.width, kind);
    for i in 0..s.blocks {
        let at = |part: &str| format!("blk.{i}.{part}");
        let (q, kv) = (s.heads * s.head, s.kv_heads * s.head);
        r.vector(at("attn_norm.weight"), &[s.width], Values::Outliers(8.0));
        r.matrix(at("attn_q"), &[s.width, q], kind, 1.0);
        r.matrix(at("attn_k"), &[s.width, kv], kind, 1.0);
        r.matrix(at("attn_v"), &[s.width, kv], kind, 1.0);
        r.matrix(at("attn_output"), &[q, s.width], kind, 1.0);
        feed_forward(&mut r, i, [s.width, s.inner], kind);
    }
    r
}

/// What every model has before its first block and after its last: embedding, norm and head.
pub(super) fn ends(r: &mut Recipe, width: usize, kind: Kind) {
    r.tensor("token_embd.weight".into(), &[width, TOKENS], kind, Values::Normal(1.0));
    r.vector("output_norm.weight".into(), &[width], Values::All(1.0));
    // Logits of deviation four: a few tokens share the probability, as in a trained model.
    r.matrix("output".into(), &[width, TOKENS], kind, 4.0);
}

/// Norm, gate, up and down of one block; `[outer, inner]` width.
pub(super) fn feed_forward(r: &mut Recipe, i: usize, [outer, inner]: [usize; 2], kind: Kind) {
    let at = |part: &str| format!("blk.{i}.{part}");
    r.vector(at("ffn_norm.weight"), &[outer], Values::Outliers(8.0));
    r.matrix(at("ffn_gate"), &[outer, inner], kind, 0.5);
    r.matrix(at("ffn_up"), &[outer, inner], kind, 0.5);
    r.matrix(at("ffn_down"), &[inner, outer], kind, 0.5);
}
