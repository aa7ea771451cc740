//! Which op runs where, as pure functions: facts in, a [`Route`] or a [`Reason`] out. No pointers
//! and no device, so that tests can enumerate it and tools can call it on a file's header.

mod facts;
mod mul_mat;
mod reason;

pub use crate::abi::ops::OpKind;
pub use facts::{Dtype, OpFacts, TensorFacts};
pub use reason::{REASONS, Reason};

/// What the decision depends on besides the op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Something can run accepted ops. Without it only views are accepted.
    pub engine: bool,
    /// Rows from which a product is worth the trip (`ROCKET_MIN_M`).
    pub min_m: usize,
}

/// How an accepted op runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Route {
    /// Nothing to compute: a leaf or a view.
    Nothing,
    /// fp16 on the NPU: `m` rows (all of the activation's, batches included) by `k` by `n`.
    Fp16 {
        /// Rows of activation and result.
        m: usize,
        /// Inner dimension.
        k: usize,
        /// Columns of the result, rows of the weight.
        n: usize,
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
}

/// The decision. It depends on nothing that changes within a process (ggml-abi 6: an answer that
/// flips between reserve and run changes the split).
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
