//! Which op runs where, as pure functions: facts in, a [`Route`] or a [`Reason`] out. No pointers
//! and no device, so that tests can enumerate it and tools can call it on a file's header.

mod attention;
mod bias;
mod copy;
mod experts;
mod facts;
mod mul_mat;
mod numerics;
mod reason;
pub mod reference;

pub use attention::{AttentionPolicy, numbers as attention_numbers};
pub use experts::{ExpertsMode, ExpertsPolicy, ExpertsShape};
pub use facts::{
    AttentionFacts, BiasFacts, Block, Copied, CopyFacts, Dtype, ExpertsFacts, Label, OpFacts,
    ProductFacts, TensorFacts,
};
pub use numerics::{Codes, Numerics, Wanted};
pub use reason::{REASONS, Reason};
pub use rocket_runtime::ops::attention::Shape as AttentionShape;

/// What the decision depends on besides the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Something can run accepted ops. Without it only views are accepted.
    pub engine: bool,
    /// Rows from which a product is worth the trip (`ROCKET_MIN_M`).
    pub min_m: usize,
    /// The same for quantized weights (`ROCKET_MIN_M_QUANT`).
    pub min_m_quant: usize,
    /// Which attentions are worth the trip.
    pub attention: AttentionPolicy,
    /// Which products with experts are worth it.
    pub experts: ExpertsPolicy,
    /// Formats besides F16.
    pub wanted: Wanted,
}

impl Policy {
    /// Rows from which a product with a weight of this type is taken.
    pub fn min_rows(&self, weight: Dtype) -> usize {
        if weight.is_quantized() { self.min_m_quant.max(self.min_m) } else { self.min_m }
    }
}

/// How an accepted op runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Nothing to compute: a leaf or a view.
    Nothing,
    /// A bias for the rows of a product of the NPU's, added by the CPU.
    Bias,
    /// A copy of such a product, made by the CPU.
    Copy,
    /// `slices` products of `m` rows by `k` by `n` on the NPU.
    Product {
        /// In which numbers.
        numerics: Numerics,
        /// Rows of activation and result that share a weight, batches included.
        m: usize,
        /// Inner dimension.
        k: usize,
        /// Columns of the result, rows of the weight.
        n: usize,
        /// Products: more than one when the weight is batched.
        slices: usize,
    },
    /// A product of each row with the expert chosen for it.
    Experts {
        /// In which numbers.
        numerics: Numerics,
        /// Sizes.
        shape: ExpertsShape,
    },
    /// Attention on the NPU, the softmax on the host.
    Attention(AttentionShape),
}

impl Route {
    /// Stable name, as counters and reports print it.
    pub fn name(&self) -> &'static str {
        match self {
            Route::Nothing => "nothing",
            Route::Bias => "bias",
            Route::Copy => "copy",
            Route::Product { numerics, .. } => numerics.name(),
            Route::Experts { numerics, .. } => match numerics.codes() {
                Some(_) => "experts-int8",
                None => "experts-fp16",
            },
            Route::Attention(_) => "attention",
        }
    }

    /// Rows, inner dimension, columns and number of products; `None` when there is none. With experts
    /// the rows of all of them, as if they were one. Of an
    /// attention, those of Q and K; a second product of as many multiplies their results with V.
    pub fn products(&self) -> Option<[usize; 4]> {
        match *self {
            Route::Nothing | Route::Bias | Route::Copy => None,
            Route::Product { m, k, n, slices, .. } => Some([m, k, n, slices]),
            Route::Experts { shape: s, .. } => Some([s.results(), s.k, s.n, 1]),
            Route::Attention(s) => Some([s.tokens, s.key, s.n_kv, s.heads * s.streams]),
        }
    }

    /// Multiply-accumulates of the products themselves.
    pub fn macs(&self) -> u64 {
        let all = |p: [usize; 4]| p.iter().fold(1u64, |p, &x| p.saturating_mul(x as u64));
        match self {
            Route::Attention(s) => s.macs(),
            _ => self.products().map_or(0, all),
        }
    }
}

/// The decision. Nothing it depends on changes within a process (ggml-abi 6: an answer that flips
/// between reserve and run changes the split), but that an NPU that keeps failing is given up.
///
/// # Errors
/// Why the op stays on the CPU.
pub fn decide(op: &OpFacts, policy: &Policy) -> Result<Route, Reason> {
    match op {
        OpFacts::Nothing => Ok(Route::Nothing),
        OpFacts::MulMat(_) if !policy.engine => Err(Reason::NoEngine),
        OpFacts::MulMat(product) => mul_mat::decide(product, policy),
        OpFacts::FlashAttn(_) if !policy.engine => Err(Reason::NoEngine),
        OpFacts::FlashAttn(op) => attention::decide(op, &policy.attention).map(Route::Attention),
        OpFacts::MulMatId(_) if !policy.engine => Err(Reason::NoEngine),
        OpFacts::MulMatId(op) => experts::decide(op, &policy.experts, policy.min_m)
            .map(|(shape, numerics)| Route::Experts { numerics, shape }),
        OpFacts::Bias(_) if !policy.engine => Err(Reason::NoEngine),
        OpFacts::Bias(op) => bias::decide(op, policy),
        OpFacts::Copy(_) if !policy.engine => Err(Reason::NoEngine),
        OpFacts::Copy(op) => copy::decide(op, policy),
        OpFacts::Other => Err(Reason::OpNotSupported),
    }
}

/// Whether a node of a graph is to be computed: a host that marks nodes leaves out branches that
/// this evaluation does not take (ggml-abi 2.6).
pub fn is_selected(flags: i32, host_marks: bool) -> bool {
    !host_marks || flags & crate::abi::tensor::FLAG_COMPUTE != 0
}

#[cfg(test)]
mod tests;
