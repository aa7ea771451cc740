//! CPY of a product that is the NPU's, with its bias or without: into a cache, most often in F16. It is
//! made on the CPU by this plugin, for the same reason as a bias is added.

use super::{Copied, CopyFacts, Dtype, Policy, Reason, Route, bias, mul_mat};

pub(super) fn decide(op: &CopyFacts, policy: &Policy) -> Result<Route, Reason> {
    match &op.of {
        Copied::Product(p) => mul_mat::decide(p, policy)?,
        Copied::Sum(b) => bias::decide(b, policy)?,
    };
    let (from, to) = (op.of.result(), &op.result);
    let plain = from.is_contiguous() && to.is_contiguous();
    let types = from.dtype == Dtype::F32 && matches!(to.dtype, Dtype::F32 | Dtype::F16);
    let count = |ne: &[i64; 4]| ne.iter().fold(1i64, |p, &n| p.saturating_mul(n));
    let fits = count(&from.ne) == count(&to.ne);
    if !plain || !types || !fits || op.result_in_host_memory == Some(false) {
        return Err(Reason::OpNotSupported);
    }
    Ok(Route::Copy)
}
