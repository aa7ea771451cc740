//! whisper.cpp: the encoder over all positions of 30 s of sound, the keys and values of the decoder's
//! cross attention, and the decoder a few rows at a time.

use super::attention::Attention;
use super::{Cut, Graph, Node, computed, product};
use crate::model::{Header, Tensor};
use ggml_rocket::route::Dtype;

/// A host hands out the cross cache in steps of so many positions.
const STEP: u64 = 256;
/// Samples of a step of the mel spectrogram that the second convolution joins.
const STRIDE: u64 = 2;

pub(super) fn graph(header: &Header, cut: Cut) -> Graph {
    let n = |name: &str| header.number(name).unwrap_or(0);
    let rows = n("audio_ctx");
    let matrices = || header.tensors.iter().enumerate().filter(|(_, t)| is_matrix(t));
    let encoder = |t: &Tensor| t.name.starts_with("encoder.blocks.") || is_cross_cache(t);
    let mut prefill: Vec<Node> =
        matrices().filter(|(_, t)| encoder(t)).map(|t| product(t, rows)).collect();
    // The kernels' products have what is convolved on the left.
    for (name, positions) in
        [("encoder.conv1.weight", STRIDE * rows), ("encoder.conv2.weight", rows)]
    {
        if let Some(t) = header.tensor(name) {
            let [width, channels, out, _] = t.ne;
            prefill.push(computed(
                Dtype::F16,
                [width.saturating_mul(channels), positions, 1],
                [out, 1],
            ));
        }
    }
    let of = |part: &str, tokens, kv, masked| {
        let (state, heads) = (n(&format!("{part}_state")), n(&format!("{part}_head")).max(1));
        let size = state / heads;
        let a = Attention {
            key: size,
            value: size,
            heads,
            kv_heads: heads,
            tokens,
            kv,
            masked,
            sinks: false,
            cache: Dtype::F16,
        };
        let layers = n(&format!("{part}_layer"));
        a.nodes(cut.flash).into_iter().map(move |node| node.times(layers))
    };
    let padded = rows.next_multiple_of(STEP);
    prefill.extend(of("audio", rows, if cut.flash { padded } else { rows }, false));

    let beams = cut.beams.max(1);
    let decoder = |t: &Tensor| {
        (t.name.starts_with("decoder.blocks.") && !is_cross_cache(t))
            || t.name == "decoder.token_embedding.weight"
    };
    let mut decode: Vec<Node> =
        matrices().filter(|(_, t)| decoder(t)).map(|t| product(t, beams)).collect();
    decode.extend(of("text", beams, n("text_ctx").min(STEP), true));
    decode.extend(of("text", beams, if cut.flash { padded } else { rows }, false));
    Graph {
        planned: prefill.clone(),
        prefill,
        decode,
        assumed: Vec::new(),
        unit: "positions",
        rows,
    }
}

fn is_matrix(t: &Tensor) -> bool {
    t.dims == 2 && t.name.ends_with(".weight")
}

/// Key and value of the decoder's cross attention see the encoder's rows, once.
fn is_cross_cache(t: &Tensor) -> bool {
    let ends = |part: &str| t.name.ends_with(&format!(".cross_attn.{part}.weight"));
    t.name.starts_with("decoder.blocks.") && (ends("key") || ends("value"))
}
