//! MUL_MAT_ID: a stack of experts `K x N x experts`, activations `K x (1 or used) x tokens`, the
//! experts of each token `used x tokens`, result `N x used x tokens` (ggml-plugin-behaviour 3
//! and 8).

use super::mul_mat::{self, MAX_ELEMENTS, MIN_K, MIN_N, precision};
use super::numerics::RANK_F16;
use super::{Dtype, ExpertsFacts, Numerics, Reason};

/// Which products with experts are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpertsMode {
    /// None.
    Off,
    /// Those of quantized stacks that are worth it and may stay whole.
    Auto,
    /// All that can be computed.
    Forced,
}

/// What is worth the trip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertsPolicy {
    /// `ROCKET_MOE`.
    pub mode: ExpertsMode,
    /// `ROCKET_MOE_NATIVE`: quantized stacks in int8.
    pub native: bool,
    /// `ROCKET_MOE_MIN_TOKENS`.
    pub min_tokens: usize,
    /// Rows of an expert, on average (`ROCKET_MOE_M_BUCKET`).
    pub min_rows: usize,
    /// Multiply-adds of an expert (`ROCKET_MOE_MIN_WORK`).
    pub min_work: u64,
    /// `ROCKET_MOE_GROUP`: elements of K that share a scale, `None` for what suits K.
    pub group: Option<usize>,
}

/// Sizes of an accepted product with experts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ExpertsShape {
    /// Inner dimension.
    pub k: usize,
    /// Columns of the result.
    pub n: usize,
    /// Experts of the stack.
    pub experts: usize,
    /// Experts of each token.
    pub used: usize,
    /// Tokens.
    pub tokens: usize,
    /// Rows of activation of each token: 1 for all its experts, or one each.
    pub rows: usize,
}

impl ExpertsShape {
    /// Rows of the result: each is a product of one row with one expert.
    pub fn results(&self) -> usize {
        self.used * self.tokens
    }
}

const MXFP4: Dtype = Dtype(39);

/// Sizes and numbers; whether the stack may stay is asked afterwards.
pub(super) fn decide(
    op: &ExpertsFacts,
    policy: &ExpertsPolicy,
    min_m: usize,
) -> Result<(ExpertsShape, Numerics), Reason> {
    let (w, a, r) = (&op.product.weight, &op.product.activation, &op.product.result);
    if policy.mode == ExpertsMode::Off {
        return Err(Reason::ExpertsOff);
    }
    mul_mat::operands(&op.product)?;
    if op.ids.dtype != Dtype::I32 {
        return Err(Reason::ExpertsIds);
    }
    let all = [w.ne, a.ne, r.ne, op.ids.ne];
    if all.iter().flatten().any(|&n| n < 1) {
        return Err(Reason::Empty);
    }
    let [used, tokens, ids2, ids3] = op.ids.ne;
    let belongs = a.ne[0] == w.ne[0]
        && w.ne[3] == 1
        && [ids2, ids3] == [1, 1]
        && (a.ne[1] == 1 || a.ne[1] == used)
        && [a.ne[2], a.ne[3]] == [tokens, 1]
        && r.ne == [w.ne[1], used, tokens, 1]
        && used <= w.ne[2];
    if !belongs {
        return Err(Reason::ShapeMismatch);
    }
    if op.ids.nb[0] != 4 || (tokens > 1 && !op.ids.nb[1].is_multiple_of(4)) {
        return Err(Reason::ExpertsIds);
    }
    let strided = a.nb.iter().zip(a.ne).any(|(nb, ne)| ne > 1 && !nb.is_multiple_of(4));
    if !w.is_contiguous() || !r.is_contiguous() || !a.rows_are_dense() || strided {
        return Err(Reason::NotContiguous);
    }
    precision(&op.product.op_params)?;
    let size = |n: i64| usize::try_from(n).map_err(|_| Reason::TooLarge);
    let shape = ExpertsShape {
        k: size(w.ne[0])?,
        n: size(w.ne[1])?,
        experts: size(w.ne[2])?,
        used: size(used)?,
        tokens: size(tokens)?,
        rows: size(a.ne[1])?,
    };
    let ExpertsShape { k, n, experts, .. } = shape;
    let results = shape.used.checked_mul(shape.tokens).ok_or(Reason::TooLarge)?;
    for (x, y) in [(k, n), (results, k), (results, n)] {
        if x.checked_mul(y).is_none_or(|e| e > MAX_ELEMENTS) {
            return Err(Reason::TooLarge);
        }
    }
    if k.checked_mul(n).and_then(|e| e.checked_mul(experts)).is_none_or(|e| e > usize::MAX / 8) {
        return Err(Reason::TooLarge);
    }
    if k < MIN_K {
        return Err(Reason::KTooSmall);
    }
    if n < MIN_N {
        return Err(Reason::NTooSmall);
    }
    let numerics = numerics(w.dtype, k, policy, op.product.op_params[3]);
    if policy.mode == ExpertsMode::Auto {
        worth(&shape, w.dtype, numerics, policy, min_m)?;
    } else if shape.tokens < min_m {
        return Err(Reason::ExpertsFewTokens);
    }
    Ok((shape, numerics))
}

/// Whether a stack pays (ggml-plugin-behaviour 8.6), by the rows that an expert gets on average: who
/// gets how many is known only when it runs.
fn worth(
    s: &ExpertsShape,
    dtype: Dtype,
    numerics: Numerics,
    policy: &ExpertsPolicy,
    min_m: usize,
) -> Result<(), Reason> {
    if !dtype.is_quantized() || numerics.codes().is_none() {
        return Err(Reason::ExpertsUnquantized);
    }
    if s.tokens < policy.min_tokens.max(min_m) {
        return Err(Reason::ExpertsFewTokens);
    }
    let rows = s.results() / s.experts;
    if rows < policy.min_rows {
        return Err(Reason::ExpertsFewRows);
    }
    // Of all experts together, so that nothing is lost by rounding.
    let work = s.results() as u128 * (s.k * s.n) as u128;
    if work < u128::from(policy.min_work) * s.experts as u128 {
        return Err(Reason::ExpertsLittleWork);
    }
    Ok(())
}

/// MXFP4 as it is, other quantized types rotated and rounded once, the rest in fp16; fp16 also where
/// the model declares that 8 bits are too few for its activations.
fn numerics(dtype: Dtype, k: usize, policy: &ExpertsPolicy, rank: i32) -> Numerics {
    if !dtype.is_quantized() || !policy.native || rank == RANK_F16 {
        return Numerics::Fp16;
    }
    let codes = Numerics::native(k, policy.group);
    if dtype == MXFP4 { Numerics::Shifted(codes.unrotated()) } else { Numerics::Native(codes) }
}
