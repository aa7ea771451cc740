//! A picture: SigLIP's encoder with generated weights, in the host's multimodal program, on the
//! device that its user names.

use crate::graph::{Attention, Batch, Graph, Product};
use crate::matrix::CONTROL;
use crate::models::{file_of, host_of};
use crate::{Setup, gguf, graph, macs, run};
use rocket_tests::generate::{self, Kind};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Of the projector's output, as a whole.
const GATE: f64 = 0.999_99;
/// Of the control's weights: about as many as eight-bit ones keep.
const CONTROL_BITS: u32 = 6;
const TEXT_WIDTH: usize = 256;
/// A picture as large as the encoder's is shown whole, and once more as its only tile.
const SHOWN: usize = 2;

struct Seen {
    /// Of the last of them, one token after the other.
    embedding: Vec<f32>,
    /// The description.
    said: String,
    log: String,
}

/// Describes the picture in a few tokens; what the encoder made of it is dumped by the host.
fn see(s: &Setup, mut c: Command, encoder: &Path, picture: &Path) -> Seen {
    let dump = s.scratch.path().join("embedding");
    let _ = std::fs::remove_file(&dump);
    c.env("MTMD_DEBUG_EMBEDDINGS", &dump).arg("-m").arg(&s.model);
    c.arg("--mmproj").arg(encoder).arg("--image").arg(picture);
    c.args(["-p", "What is it?", "-n", "4", "--temp", "0", "--chat-template", "vicuna"]);
    let out = run(c.args(["-nr", "-t", "2", "--no-warmup", "-v"]));
    let bytes = std::fs::read(&dump).expect("the host dumps what its encoder gives");
    let embedding =
        bytes[8..].chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]));
    let [said, rest] = [&out.stdout, &out.stderr].map(|b| String::from_utf8_lossy(b).into_owned());
    Seen { embedding: embedding.collect(), log: rest + &said, said }
}

fn cosine(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    let dot = |a: &[f32], b: &[f32]| -> f64 {
        a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum()
    };
    dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()
}

/// The encoder's products with weights over all patches, and the projector's over the tokens that
/// are made of them. The patches' own is not among them: there the weight is the right operand.
fn encoder_of(header: &gguf::Header) -> Graph {
    let merge = header.number("projector.scale_factor");
    let patches = (header.number("image_size") / header.number("patch_size")).pow(2);
    let matrices = header.tensors.iter().filter(|t| t.shape.len() == 2 && t.kind == "F16");
    let products = matrices.map(|t| Product {
        k: t.shape[0],
        n: t.shape[1],
        m: if t.name.starts_with("v.blk.") { patches } else { patches / (merge * merge) },
        slices: 1,
        kind: t.kind,
    });
    let heads = header.number("attention.head_count");
    let head = header.number("embedding_length") / heads;
    let attention = (0..header.blocks).map(|_| Attention {
        key: head,
        value: head,
        heads,
        kv_heads: heads,
        tokens: patches,
        kv: patches,
    });
    let (products, attention) = (products.collect(), attention.collect());
    Graph::of([Graph { products, attention, experts: vec![] }])
}

#[test]
fn host_sees_a_picture_on_the_device_that_is_named() {
    let begun = Instant::now();
    let s = host_of(&generate::tiny(Kind::F16));
    let recipe = generate::siglip(TEXT_WIDTH);
    let encoder = file_of(&recipe);
    let picture = s.scratch.path().join("picture.ppm");
    std::fs::write(&picture, generate::image()).expect("writes");
    // The patches' weight stays as it is: the host converts pixels to its type.
    let decoded = s.scratch.path().join("decoded.gguf");
    recipe.decoded(|t| t.shape.len() == 2).write(&decoded).expect("writes");
    let exact = see(&s, s.command("llama-mtmd-cli"), &decoded, &picture);
    let rounded = s.scratch.path().join("rounded.gguf");
    recipe.with_rounding(CONTROL_BITS).write(&rounded).expect("writes");
    let coarse = see(&s, s.command("llama-mtmd-cli"), &rounded, &picture);

    let (header, text) = (gguf::read(&encoder), gguf::read(&s.model));
    let encoders = Graph::of((0..SHOWN).map(|_| encoder_of(&header)));
    let tokens = encoders.products.iter().map(|p| p.m).min().expect("a projector");
    let texts = (0..SHOWN).map(|_| graph::expected(&text, Batch::whole(tokens, 0)));
    let texts = Graph::of(texts);

    // Without a word about the device the encoder is the CPU's; the text is not.
    let (mut c, report) = s.on_npu("llama-mtmd-cli");
    c.env("MTMD_DEBUG_GRAPH", "1");
    let unnamed = see(&s, c, &encoder, &picture);
    assert!(unnamed.log.contains("CLIP using CPU backend"));
    assert_eq!(graph::listed(&unnamed.log, &header), encoders, "header and host");
    println!("not named: {}", texts.check(&macs::read(&report)));

    let (mut c, report) = s.on_npu("llama-mtmd-cli");
    c.env("MTMD_BACKEND_DEVICE", "ROCKET");
    let named = see(&s, c, &encoder, &picture);
    assert!(named.log.contains("CLIP using ROCKET backend"), "the device is not honoured");
    let told = macs::read(&report);
    let graphs = told["graphs"].as_u64().expect("a count");
    let products = told["ops"].as_array().expect("ops").len();
    println!("{products} products in {graphs} parts of graphs");
    // Q, K and V of a layer are one part with their biases; the text's products alone save fewer.
    assert!(graphs as usize + 2 * SHOWN * header.blocks <= products, "{graphs}");
    let routes = Graph::of([encoders, texts]).check(&told);
    let [ours, control, own] =
        [&named, &coarse, &unnamed].map(|seen| cosine(&exact.embedding, &seen.embedding));
    println!(
        "named: cosine of {} values with exact {ours:.8}, control {control:.8}, the CPU's own \
         {own:.8}; {routes}; {:.1} s",
        exact.embedding.len(),
        begun.elapsed().as_secs_f64()
    );
    assert!(ours >= GATE, "{ours} is below {GATE}");
    assert!(1.0 - control >= CONTROL * (1.0 - ours), "the control is no coarser");
    assert_eq!(named.said, exact.said, "another description");
}
