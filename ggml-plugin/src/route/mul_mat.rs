//! MUL_MAT: weight `N x K` (K contiguous), activation `M x K` F32, result `M x N` F32, each
//! perhaps batched over two more dimensions (ggml-plugin-behaviour 2 and 3).

use super::numerics::{RANK_F16, RANK_Q4, RANK_Q8, UNDECLARED};
use super::{Dtype, Policy, ProductFacts, Reason, Route};

/// Below this the products of a row cost less than moving it.
pub(super) const MIN_K: usize = 64;
/// Likewise.
pub(super) const MIN_N: usize = 64;
/// More fp16 elements than this in one matrix do not fit a buffer object below 4 GiB beside its
/// tail; the bound also keeps all later arithmetic far from overflow.
pub(super) const MAX_ELEMENTS: usize = 1 << 30;

pub(super) fn decide(op: &ProductFacts, policy: &Policy) -> Result<Route, Reason> {
    let (w, a, r) = (&op.weight, &op.activation, &op.result);
    operands(op)?;
    let dims = w.ne.iter().chain(&a.ne).chain(&r.ne);
    if dims.into_iter().any(|&n| n < 1) {
        return Err(Reason::Empty);
    }
    // A weight of fewer batches serves several of the activation's.
    let serves = |i: usize| a.ne[i] % w.ne[i] == 0;
    if a.ne[0] != w.ne[0]
        || r.ne != [w.ne[1], a.ne[1], a.ne[2], a.ne[3]]
        || !(serves(2) && serves(3))
    {
        return Err(Reason::ShapeMismatch);
    }
    let strided = a.nb.iter().zip(a.ne).any(|(nb, ne)| ne > 1 && !nb.is_multiple_of(4));
    if !w.is_contiguous() || !r.is_contiguous() || !a.rows_are_dense() || strided {
        return Err(Reason::NotContiguous);
    }
    precision(&op.op_params)?;
    let batched = w.ne[2] != 1 || w.ne[3] != 1;
    // One weight for all rows: a batched activation is one long list. Else each weight has the
    // rows of the batches that share it, which lie together in the result.
    let (rows, slices) = match batched {
        false => ([a.ne[1], a.ne[2], a.ne[3]], [1, 1]),
        true => ([a.ne[1], a.ne[2] / w.ne[2], 1], [w.ne[2], a.ne[3]]),
    };
    let product = |dims: &[i64]| {
        dims.iter().try_fold(1usize, |p, &n| p.checked_mul(usize::try_from(n).ok()?))
    };
    let (Some(m), Some(k), Some(n), Some(slices)) =
        (product(&rows), product(&[w.ne[0]]), product(&[w.ne[1]]), product(&slices))
    else {
        return Err(Reason::TooLarge);
    };
    let whole = |x: usize| x.checked_mul(slices).is_some_and(|e| e <= usize::MAX / 8);
    for (x, y) in [(m, k), (k, n), (m, n)] {
        match x.checked_mul(y) {
            Some(e) if e <= MAX_ELEMENTS && whole(e) => {}
            _ => return Err(Reason::TooLarge),
        }
    }
    if k < MIN_K {
        return Err(Reason::KTooSmall);
    }
    if n < MIN_N {
        return Err(Reason::NTooSmall);
    }
    if m < policy.min_rows(w.dtype) {
        return Err(Reason::TooFewRows);
    }
    let numerics = policy.wanted.choose(w.dtype, k, op.op_params[3]);
    Ok(Route::Product { numerics, m, k, n, slices })
}

/// A stored weight that this process reads, beside F32.
pub(super) fn operands(op: &ProductFacts) -> Result<(), Reason> {
    let w = &op.weight;
    if !op.weight_is_leaf {
        return Err(Reason::WeightNotLeaf);
    }
    if op.weight_in_host_memory == Some(false) {
        return Err(Reason::WeightNotInHostMemory);
    }
    if !w.dtype.is_known() || w.block.is_none() {
        return Err(Reason::WeightType);
    }
    if op.activation.dtype != Dtype::F32 {
        return Err(Reason::ActivationType);
    }
    if op.result.dtype != Dtype::F32 {
        return Err(Reason::ResultType);
    }
    Ok(())
}

/// A closed list: what is not known to be satisfied is declined.
pub(super) fn precision(params: &[i32; 16]) -> Result<(), Reason> {
    let f16_is_enough = |rank| matches!(rank, UNDECLARED | RANK_F16 | RANK_Q8 | RANK_Q4);
    for (i, &value) in params.iter().enumerate() {
        match i {
            0 if f16_is_enough(value) => {}
            0 => return Err(Reason::AccumulatorPrecision),
            1 if value == 0 => {}
            1 => return Err(Reason::Hinted),
            3 if f16_is_enough(value) => {}
            3 => return Err(Reason::ActivationPrecision),
            _ if value == 0 => {}
            _ => return Err(Reason::UnknownParameter),
        }
    }
    Ok(())
}
