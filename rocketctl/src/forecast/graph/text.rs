//! Text models, by the names that GGUF gives their tensors: every matrix of a block over all tokens,
//! but that the last block's feed-forward part and the head see only the rows whose logits are wanted.

use super::attention::Attention;
use super::{Cut, Graph, Node, computed, experts, product};
use crate::model::{Header, Tensor};
use ggml_rocket::route::Dtype;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Architectures whose graphs are known to be of this form: hosts list the same (`tests/tests/host/forecast.rs`).
const KNOWN: [&str; 12] = [
    "llama",
    "qwen2",
    "qwen2moe",
    "qwen3",
    "qwen3moe",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt-oss",
    "deepseek2",
    "falcon-h1",
    "bert",
];

/// Those that embed: no cache, no head, every row wanted.
const EMBEDDERS: [&str; 5] = ["bert", "nomic-bert", "jina-bert-v2", "modern-bert", "neo-bert"];

/// Matrices that are no factors of a product: looked up, or used by other operations.
const TABLES: [&str; 9] = [
    "ssm_conv1d.weight",
    "ssm_norm.weight",
    "token_embd.weight",
    "position_embd.weight",
    "token_types.weight",
    "per_layer_token_embd.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
    "attn_rel_b.weight",
];

/// A host hands out its cache in steps of so many positions.
const STEP: u64 = 256;
/// Of `pooling_type`.
const MEAN: u64 = 1;
/// What the last of several micro-batches wants: the logits after the prompt.
const LAST: u64 = 1;

/// A micro-batch: tokens, those whose logits are wanted, positions in the cache after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Batch {
    tokens: u64,
    wanted: u64,
    cached: u64,
}

pub(super) fn graph(header: &Header, cut: Cut) -> Graph {
    let model = Model::new(header);
    let (prompt, ubatch) = (cut.prompt.max(1), cut.ubatch.clamp(1, cut.prompt.max(1)));
    let (full, rest) = (prompt / ubatch, prompt % ubatch);
    let mut prefill = Vec::new();
    // The products of all micro-batches but the last are alike.
    let last =
        Batch { tokens: if rest == 0 { ubatch } else { rest }, wanted: LAST, cached: prompt };
    let before = if rest == 0 { full - 1 } else { full };
    if before > 0 {
        let batch = Batch { tokens: ubatch, wanted: 0, cached: 0 };
        prefill.extend(model.products(batch).into_iter().map(|n| n.times(before)));
    }
    prefill.extend(model.products(last));
    // Attentions differ by the positions that are there.
    let mut caches: BTreeMap<u64, u64> = BTreeMap::new();
    for i in 1..=before {
        *caches.entry((i * ubatch).next_multiple_of(STEP)).or_default() += 1;
    }
    for (kv, times) in caches {
        let batch = Batch { tokens: ubatch, wanted: 0, cached: kv };
        prefill.extend(model.attention(batch, cut).into_iter().map(|n| n.times(times)));
    }
    prefill.extend(model.attention(last, cut));

    let one = Batch { tokens: 1, wanted: 1, cached: prompt + 1 };
    let mut decode = Vec::new();
    if !model.embeds {
        decode = model.products(one);
        decode.extend(model.attention(one, cut));
    }
    let planned = model.products(Batch { tokens: ubatch, wanted: ubatch, cached: prompt });
    Graph { prefill, decode, planned, assumed: model.assumed(), unit: "tokens", rows: ubatch }
}

struct Model<'a> {
    header: &'a Header,
    /// Numbers of the blocks: a file may leave some out.
    blocks: BTreeSet<usize>,
    names: HashSet<&'a str>,
    /// Feed-forward tensors of the last block.
    last: String,
    /// The head's name.
    head: &'static str,
    embeds: bool,
    used: u64,
}

impl<'a> Model<'a> {
    fn new(header: &'a Header) -> Model<'a> {
        let blocks: BTreeSet<usize> = header.tensors.iter().filter_map(Tensor::layer).collect();
        let last = blocks.last().copied().unwrap_or(0);
        let names = header.tensors.iter().map(|t| t.name.as_str()).collect();
        let head = match header.tensor("output.weight") {
            Some(_) => "output.weight",
            None => "token_embd.weight",
        };
        Model {
            header,
            blocks,
            names,
            last: format!("blk.{last}.ffn_"),
            head,
            embeds: EMBEDDERS.contains(&header.architecture.as_str()),
            used: header.number("expert_used_count").unwrap_or(1),
        }
    }

    /// Products with stored weights. Rows that nobody wants are none.
    fn products(&self, batch: Batch) -> Vec<Node> {
        let all = self.header.tensors.iter().enumerate();
        let mut nodes: Vec<Node> = all.filter_map(|(i, t)| self.node((i, t), batch)).collect();
        // The mean of a sequence is a product of its rows with a row of weights.
        if self.embeds && self.header.number("pooling_type") == Some(MEAN) {
            let width = self.header.number("embedding_length").unwrap_or(0);
            nodes.push(computed(Dtype::F32, [batch.tokens, width, 1], [1, 1]));
        }
        nodes
    }

    fn node(&self, (i, t): (usize, &Tensor), batch: Batch) -> Option<Node> {
        let head = t.name == self.head && !self.embeds;
        let table = TABLES.iter().any(|table| t.name.ends_with(table));
        let projection = t.name == "per_layer_model_proj.weight";
        if !(head || projection || (t.name.starts_with("blk.") && !table))
            || !t.name.ends_with(".weight")
        {
            return None;
        }
        let cut = !self.embeds && (head || t.name.starts_with(&self.last));
        let tokens = if cut { batch.wanted } else { batch.tokens };
        if tokens == 0 {
            return None;
        }
        let stack = t.name.contains("_exps.");
        match t.dims {
            3 if stack => {
                // The last one of an expert has a row of its own for each.
                let rows = if t.name.contains("_down_") { self.used } else { 1 };
                Some(experts((i, t), self.used, tokens, rows))
            }
            2 | 3 if !stack => Some(product((i, t), tokens)),
            1 if t.name.ends_with("ffn_gate_inp_shexp.weight") => Some(product((i, t), tokens)),
            _ => None,
        }
    }

    fn attention(&self, batch: Batch, cut: Cut) -> Vec<Node> {
        let mut alike: Vec<(Attention, u64)> = Vec::new();
        for a in self.blocks.iter().filter_map(|i| self.attends(*i, batch, cut)) {
            match alike.iter_mut().find(|(known, _)| *known == a) {
                Some((_, times)) => *times += 1,
                None => alike.push((a, 1)),
            }
        }
        let nodes = alike
            .into_iter()
            .flat_map(|(a, times)| a.nodes(cut.flash).into_iter().map(move |n| n.times(times)));
        nodes.collect()
    }

    fn attends(&self, layer: usize, batch: Batch, cut: Cut) -> Option<Attention> {
        let h = self.header;
        let has = |part: &str| self.names.contains(format!("blk.{layer}.{part}.weight").as_str());
        if !["attn_q", "attn_qkv", "attn_q_a", "attn_q_b"].into_iter().any(has) {
            return None;
        }
        let heads = h.number_of("attention.head_count", layer).filter(|n| *n > 0)?;
        let kv_heads =
            h.number_of("attention.head_count_kv", layer).filter(|n| *n > 0).unwrap_or(heads);
        let width = h.number("embedding_length").unwrap_or(0) / heads;
        let size = |key| h.number(key).unwrap_or(width);
        Some(Attention {
            key: size("attention.key_length"),
            value: size("attention.value_length"),
            heads,
            kv_heads,
            tokens: batch.tokens,
            kv: self.positions(layer, batch, cut),
            masked: true,
            sinks: has("attn_sinks"),
            cache: if self.embeds { Dtype::F32 } else { Dtype::F16 },
        })
    }

    /// Positions that a layer's attention is computed over.
    fn positions(&self, layer: usize, batch: Batch, cut: Cut) -> u64 {
        if self.embeds {
            return batch.tokens.next_multiple_of(STEP);
        }
        let all = batch.cached.next_multiple_of(STEP);
        match self.window(layer) {
            // What lies outside the window is overwritten: the cache holds it and one micro-batch.
            Some(window) => all.min((window + cut.ubatch).next_multiple_of(STEP)),
            None => all,
        }
    }

    /// Tokens that a layer sees at most.
    fn window(&self, layer: usize) -> Option<u64> {
        let window = self.header.number("attention.sliding_window").filter(|n| *n > 0)?;
        let window = window.min(1 << 24);
        if let Some(own) = self.header.number_of("attention.sliding_window_pattern", layer) {
            let whole = match self.header.number("attention.sliding_window_pattern") {
                // One of so many layers sees all.
                Some(period) => {
                    period > 0 && (layer as u64).saturating_add(1).is_multiple_of(period)
                }
                None => own == 0,
            };
            return (!whole).then_some(window);
        }
        let period = match self.header.architecture.as_str() {
            "gpt-oss" | "gemma2" => 2,
            "cohere2" | "exaone4" | "olmo2" => 4,
            "gemma3n" => 5,
            "gemma3" => 6,
            _ => return None,
        };
        (!layer.saturating_add(1).is_multiple_of(period)).then_some(window)
    }

    fn assumed(&self) -> Vec<String> {
        let name = &self.header.architecture;
        let mut list = Vec::new();
        if !KNOWN.contains(&name.as_str()) {
            let name = if name.is_empty() { "no architecture" } else { name };
            list.push(format!(
                "{name} is not known here: its products are assumed from its tensors' names"
            ));
        }
        list
    }
}
