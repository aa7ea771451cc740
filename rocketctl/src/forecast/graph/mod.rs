//! Which operations with weights or a cache a host builds for a model: from the header alone.
//!
//! Everything else in a graph (norms, activations, rope, sampling) has no NPU route and next to no
//! multiplications, and is left out.

mod attention;
mod text;
mod vision;
mod whisper;

use crate::model::{Format, Header, Tensor};
use ggml_rocket::live::Seen;
use ggml_rocket::route::{Dtype, ExpertsFacts, OpFacts, ProductFacts, TensorFacts};

/// An operation, and how often it is computed.
#[derive(Debug, Clone)]
pub struct Node {
    /// What the rules look at.
    pub facts: OpFacts,
    /// Which stored tensor it multiplies with: its number in the header.
    pub tensor: Option<usize>,
    /// Where that lies (see [`super::repack`]): a host never moves a projector's weights.
    pub movable: bool,
    /// How often.
    pub times: u64,
}

impl Node {
    /// Multiply-accumulates, as the counters count them.
    pub fn macs(&self) -> u64 {
        Seen::of(&self.facts).macs.saturating_mul(self.times)
    }

    fn times(self, more: u64) -> Node {
        Node { times: self.times.saturating_mul(more), ..self }
    }
}

/// How a prompt is cut and computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cut {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Most tokens of a micro-batch (`-ub`).
    pub ubatch: u64,
    /// Flash attention.
    pub flash: bool,
    /// Rows that whisper's decoder gets at once: its beams.
    pub beams: u64,
}

/// What a host computes for a model.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    /// For the whole prompt: what is asked of a forecast.
    pub prefill: Vec<Node>,
    /// For one token after it.
    pub decode: Vec<Node>,
    /// As the host plans it: every row wanted, the largest micro-batch.
    pub planned: Vec<Node>,
    /// What is taken for granted and not known, in words.
    pub assumed: Vec<String>,
    /// What the prefill is: tokens, patches or positions of sound.
    pub unit: &'static str,
    /// Rows of the longest of its products.
    pub rows: u64,
}

/// The graph of a model.
pub fn of(header: &Header, cut: Cut) -> Graph {
    match (header.format, header.architecture.as_str()) {
        (Format::Whisper, _) => whisper::graph(header, cut),
        (_, "clip") => vision::graph(header, cut),
        _ => text::graph(header, cut),
    }
}

/// Far beyond every rule's limit, and far from every overflow.
const MOST: u64 = 1 << 40;

fn ne(n: u64) -> i64 {
    n.min(MOST) as i64
}

fn facts(dtype: Dtype, shape: [u64; 4]) -> TensorFacts {
    TensorFacts::contiguous(dtype, shape.map(ne))
}

/// A product of `rows` of activation with the whole of a tensor, batched where the tensor is.
fn product(tensor: (usize, &Tensor), rows: u64) -> Node {
    let (index, t) = tensor;
    let [k, n, batch, more] = t.ne;
    let facts = ProductFacts {
        weight: facts(t.dtype, t.ne),
        weight_is_leaf: true,
        weight_in_host_memory: Some(true),
        activation: facts(Dtype::F32, [k, rows, batch, more]),
        result: facts(Dtype::F32, [n, rows, batch, more]),
        op_params: [0; 16],
    };
    Node { facts: OpFacts::MulMat(facts), tensor: Some(index), movable: true, times: 1 }
}

/// A product where the left operand is computed too.
fn computed(dtype: Dtype, [k, n, batch]: [u64; 3], [rows, batches]: [u64; 2]) -> Node {
    let facts = ProductFacts {
        weight: facts(dtype, [k, n, batch, 1]),
        weight_is_leaf: false,
        weight_in_host_memory: Some(true),
        activation: facts(Dtype::F32, [k, rows, batches, 1]),
        result: facts(Dtype::F32, [n, rows, batches, 1]),
        op_params: [0; 16],
    };
    Node { facts: OpFacts::MulMat(facts), tensor: None, movable: false, times: 1 }
}

/// A product of `tokens` with the experts chosen for each; `rows` of activation a token.
fn experts(tensor: (usize, &Tensor), used: u64, tokens: u64, rows: u64) -> Node {
    let (index, t) = tensor;
    let [k, n, ..] = t.ne;
    let product = ProductFacts {
        weight: facts(t.dtype, t.ne),
        weight_is_leaf: true,
        weight_in_host_memory: Some(true),
        activation: facts(Dtype::F32, [k, rows, tokens, 1]),
        result: facts(Dtype::F32, [n, used, tokens, 1]),
        op_params: [0; 16],
    };
    let mut ids = facts(Dtype::I32, [used, tokens, 1, 1]);
    // A type without blocks of its own.
    let row = 4 * ne(used) as usize;
    ids.nb = [4, row, row, row];
    let facts = OpFacts::MulMatId(ExpertsFacts { product, ids });
    Node { facts, tensor: Some(index), movable: true, times: 1 }
}
