//! A projector file: an encoder of pictures over all patches, and what makes tokens of them.

use super::attention::Attention;
use super::{Cut, Graph, Node, computed, product};
use crate::model::{Header, Tensor};
use ggml_rocket::route::Dtype;

pub(super) fn graph(header: &Header, cut: Cut) -> Graph {
    let n = |name: &str| header.number(&format!("vision.{name}")).unwrap_or(0);
    let side = n("image_size") / n("patch_size").max(1);
    let patches = side.saturating_mul(side);
    let merge = n("projector.scale_factor").max(1);
    let tokens = patches / merge.saturating_mul(merge);
    let mut assumed =
        vec!["one picture of the encoder's own size; hosts cut larger ones in tiles".to_owned()];
    if header.text("clip.projector_type") != Some("idefics3") {
        assumed.push("the projector's rows, from the patches of the encoder".to_owned());
    }
    if patches == 0 {
        assumed.push("no sizes of a picture: rows are not known".to_owned());
    }
    let rows = |t: &Tensor| match t.dims == 2 && t.name.ends_with(".weight") {
        true if t.name.starts_with("v.blk.") => Some(patches),
        true if t.name.starts_with("mm.") => Some(tokens),
        _ => None,
    };
    let all = header.tensors.iter().enumerate();
    let mut prefill: Vec<Node> = all
        .filter_map(|(i, t)| rows(t).filter(|r| *r > 0).map(|r| product((i, t), r)))
        .map(|node| Node { movable: false, ..node })
        .collect();
    if let Some(t) = header.tensor("v.patch_embd.weight").filter(|_| patches > 0) {
        let [w, h, channels, out] = t.ne;
        let k = w.saturating_mul(h).saturating_mul(channels);
        // The kernel is the right operand, in its own type.
        prefill.push(computed(Dtype::F16, [k, patches, 1], [out, 1]));
    }
    let heads = n("attention.head_count").max(1);
    let size = n("embedding_length") / heads;
    let layers = header.blocks() as u64;
    if size > 0 && patches > 0 {
        let a = Attention {
            key: size,
            value: size,
            heads,
            kv_heads: heads,
            tokens: patches,
            kv: patches,
            masked: false,
            sinks: false,
            cache: Dtype::F32,
        };
        prefill.extend(a.nodes(cut.flash).into_iter().map(|node| node.times(layers)));
    }
    Graph {
        planned: prefill.clone(),
        prefill,
        decode: Vec::new(),
        assumed,
        unit: "patches",
        rows: patches,
    }
}
