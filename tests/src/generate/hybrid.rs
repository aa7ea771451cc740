//! State space and attention side by side in every block: falcon-h1. Its convolution and its scan
//! are operations that the plugin never sees.

use super::llama::{ends, feed_forward};
use super::{Kind, Recipe, TOKENS, Values, vocabulary};

const WIDTH: usize = 1024;
const HEAD: usize = 64;
const HEADS: usize = 8;
const KV_HEADS: usize = 2;
/// Of the state space: inner width, state, heads, groups, convolution.
const INNER: usize = 1536;
const STATE: usize = 128;
const SSM_HEADS: usize = 24;
const GROUPS: usize = 1;
const CONVOLUTION: usize = 4;

/// Two blocks of the 0.5 billion parameter model's shapes. The state space's first matrix has 3352
/// columns, which is no multiple of 16.
pub fn hybrid() -> Recipe {
    let mut r = Recipe::new("hybrid");
    r.architecture(
        "falcon-h1",
        &[
            ("context_length", 4096),
            ("embedding_length", WIDTH as u32),
            ("block_count", 2),
            ("feed_forward_length", 2 * WIDTH as u32),
            ("attention.head_count", HEADS as u32),
            ("attention.head_count_kv", KV_HEADS as u32),
            ("attention.key_length", HEAD as u32),
            ("attention.value_length", HEAD as u32),
            ("ssm.conv_kernel", CONVOLUTION as u32),
            ("ssm.inner_size", INNER as u32),
            ("ssm.state_size", STATE as u32),
            ("ssm.time_step_rank", SSM_HEADS as u32),
            ("ssm.group_count", GROUPS as u32),
            ("rope.dimension_count", HEAD as u32),
            ("vocab_size", TOKENS as u32),
        ],
    );
    r.key("falcon-h1.attention.layer_norm_rms_epsilon", 1e-5f32);
    vocabulary::keys(&mut r);
    ends(&mut r, WIDTH, Kind::F16);
    for i in 0..2 {
        let at = |part: &str| format!("blk.{i}.{part}");
        let convolved = INNER + 2 * GROUPS * STATE;
        r.vector(at("attn_norm.weight"), &[WIDTH], Values::Outliers(4.0));
        r.matrix(at("ssm_in"), &[WIDTH, INNER + convolved + SSM_HEADS], Kind::F16, 0.7);
        r.vector(at("ssm_conv1d.weight"), &[CONVOLUTION, convolved], Values::Normal(0.5));
        r.vector(at("ssm_conv1d.bias"), &[convolved], Values::Normal(0.1));
        r.vector(at("ssm_dt.bias"), &[SSM_HEADS], Values::Ramp(-4.0, -1.0));
        r.vector(at("ssm_a"), &[1, SSM_HEADS], Values::Ramp(-1.0, -8.0));
        r.vector(at("ssm_d"), &[1, SSM_HEADS], Values::All(1.0));
        r.vector(at("ssm_norm.weight"), &[INNER / GROUPS, GROUPS], Values::All(1.0));
        r.matrix(at("ssm_out"), &[INNER, WIDTH], Kind::F16, 1.0);
        r.matrix(at("attn_q"), &[WIDTH, HEADS * HEAD], Kind::F16, 1.0);
        r.matrix(at("attn_k"), &[WIDTH, KV_HEADS * HEAD], Kind::F16, 1.0);
        r.matrix(at("attn_v"), &[WIDTH, KV_HEADS * HEAD], Kind::F16, 1.0);
        r.matrix(at("attn_output"), &[HEADS * HEAD, WIDTH], Kind::F16, 1.0);
        feed_forward(&mut r, i, [WIDTH, 2 * WIDTH], Kind::F16);
    }
    // This architecture has it without the ending.
    for t in &mut r.tensors {
        if t.name.ends_with(".ffn_norm.weight") {
            t.name.truncate(t.name.len() - ".weight".len());
        }
    }
    r
}
