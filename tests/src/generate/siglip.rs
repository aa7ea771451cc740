//! SigLIP's shape-optimised encoder as a projector file, and an image for it.

use super::draw::Random;
use super::{Kind, Recipe, Value, Values};

const WIDTH: usize = 1152;
const HEADS: u32 = 16;
/// No multiple of 32.
const INNER: usize = 4304;
const PATCH: usize = 14;
/// 27 patches in each direction.
const IMAGE: usize = 378;
/// So many patches in each direction become one token.
const MERGE: usize = 3;
const BLOCKS: usize = 2;

/// Two blocks and a projector for a text model of this width.
pub fn siglip(text_width: usize) -> Recipe {
    let mut r = Recipe::new("siglip");
    r.key("general.architecture", "clip");
    r.key("general.type", "mmproj");
    r.key("clip.has_vision_encoder", true);
    r.key("clip.projector_type", "idefics3");
    r.key("clip.use_gelu", true);
    for (key, n) in [
        ("image_size", IMAGE as u32),
        ("patch_size", PATCH as u32),
        ("embedding_length", WIDTH as u32),
        ("feed_forward_length", INNER as u32),
        ("projection_dim", text_width as u32),
        ("block_count", BLOCKS as u32),
        ("attention.head_count", HEADS),
        ("projector.scale_factor", MERGE as u32),
    ] {
        r.key(format!("clip.vision.{key}"), n);
    }
    r.key("clip.vision.attention.layer_norm_epsilon", 1e-6f32);
    r.key("clip.vision.image_mean", Value::F32s(vec![0.5; 3]));
    r.key("clip.vision.image_std", Value::F32s(vec![0.5; 3]));
    let patches = (IMAGE / PATCH).pow(2);
    let pixels = (3 * PATCH * PATCH) as f32;
    r.tensor(
        "v.patch_embd.weight".into(),
        &[PATCH, PATCH, 3, WIDTH],
        Kind::F16,
        Values::Normal(2.0 / pixels.sqrt()),
    );
    r.vector("v.patch_embd.bias".into(), &[WIDTH], Values::Normal(0.1));
    r.matrix("v.position_embd".into(), &[WIDTH, patches], Kind::F32, WIDTH as f32);
    let norm = |r: &mut Recipe, name: String, times: f32| {
        r.vector(format!("{name}.weight"), &[WIDTH], Values::Outliers(times));
        r.vector(format!("{name}.bias"), &[WIDTH], Values::Normal(0.1));
    };
    for i in 0..BLOCKS {
        let at = |part: &str| format!("v.blk.{i}.{part}");
        norm(&mut r, at("ln1"), 4.0);
        norm(&mut r, at("ln2"), 4.0);
        for (part, shape) in [
            ("attn_q", [WIDTH, WIDTH]),
            ("attn_k", [WIDTH, WIDTH]),
            ("attn_v", [WIDTH, WIDTH]),
            ("attn_out", [WIDTH, WIDTH]),
            ("ffn_up", [WIDTH, INNER]),
            ("ffn_down", [INNER, WIDTH]),
        ] {
            r.matrix(at(part), &shape, Kind::F16, 1.0);
            r.vector(at(&format!("{part}.bias")), &shape[1..], Values::Normal(0.1));
        }
    }
    norm(&mut r, "v.post_ln".into(), 1.0);
    r.matrix("mm.model.fc".into(), &[WIDTH * MERGE * MERGE, text_width], Kind::F16, 1.0);
    r
}

/// A picture of coloured noise over a slope, as a binary PPM: the encoder sees as many pixels as it
/// takes, and no two patches are alike.
pub fn image() -> Vec<u8> {
    let mut rng = Random::of("image");
    let mut out = format!("P6\n{IMAGE} {IMAGE}\n255\n").into_bytes();
    for y in 0..IMAGE {
        for x in 0..IMAGE {
            let noise = rng.next();
            for c in 0..3 {
                let slope = (x * (c + 1) + y * (3 - c)) * 128 / (4 * IMAGE);
                out.push((slope as u64 + ((noise >> (8 * c)) & 127)) as u8);
            }
        }
    }
    out
}
