//! Which op runs where, as pure functions: facts in, a [`Route`] or a [`Reason`] out. No pointers
//! and no device, so that tests can enumerate it and tools can call it on a file's header.

mod facts;
mod mul_mat;
mod reason;

pub use crate::abi::ops::OpKind;
pub use facts::{Block, Dtype, OpFacts, TensorFacts};
pub use reason::{REASONS, Reason};

/// What the decision depends on besides the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Something can run accepted ops. Without it only views are accepted.
    pub engine: bool,
    /// Rows from which a product is worth the trip (`ROCKET_MIN_M`).
    pub min_m: usize,
    /// The same for quantized weights (`ROCKET_MIN_M_QUANT`).
    pub min_m_quant: usize,
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
    /// fp16 on the NPU: `slices` products of `m` rows by `k` by `n`.
    Fp16 {
        /// Rows of activation and result that share a weight, batches included.
        m: usize,
        /// Inner dimension.
        k: usize,
        /// Columns of the result, rows of the weight.
        n: usize,
        /// Products: more than one when the weight is batched.
        slices: usize,
    },
}

impl Route {
    /// Stable name, as counters and reports print it.
    pub fn name(&self) -> &'static str {
        match self {
            Route::Nothing => "nothing",
            Route::Fp16 { .. } => "fp16",
        }
    }

    /// Multiply-accumulates of the product itself.
    pub fn macs(&self) -> u64 {
        match *self {
            Route::Nothing => 0,
            Route::Fp16 { m, k, n, slices } => {
                [m, k, n, slices].iter().fold(1u64, |p, &x| p.saturating_mul(x as u64))
            }
        }
    }
}

/// The decision. Nothing it depends on changes within a process (ggml-abi 6: an answer that flips
/// between reserve and run changes the split), but that an NPU that keeps failing is given up.
///
/// # Errors
/// Why the op stays on the CPU.
pub fn decide(op: &OpFacts, policy: &Policy) -> Result<Route, Reason> {
    match op.kind {
        OpKind::None | OpKind::View => Ok(Route::Nothing),
        OpKind::MulMat if policy.engine => mul_mat::decide(op, policy),
        OpKind::MulMat => Err(Reason::NoEngine),
        OpKind::MulMatId | OpKind::FlashAttn | OpKind::Other => Err(Reason::OpNotSupported),
    }
}

/// Whether a node of a graph is to be computed: a host that marks nodes leaves out branches that
/// this evaluation does not take (ggml-abi 2.6).
pub fn is_selected(flags: i32, host_marks: bool) -> bool {
    !host_marks || flags & crate::abi::tensor::FLAG_COMPUTE != 0
}

#[cfg(test)]
mod tests;
