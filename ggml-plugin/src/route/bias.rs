//! ADD of a bias to a product that is the NPU's. It is computed on the CPU by this plugin: were it the
//! host's, it would end what is asked of the plugin at once, and the projections of an encoder's layer,
//! each with a bias, could not run together.

use super::{BiasFacts, Dtype, Policy, Reason, Route, mul_mat};

pub(super) fn decide(op: &BiasFacts, policy: &Policy) -> Result<Route, Reason> {
    mul_mat::decide(&op.product, policy)?;
    let (product, bias, result) = (&op.product.result, &op.bias, &op.result);
    let plain = [bias, result].iter().all(|t| t.dtype == Dtype::F32 && t.is_contiguous());
    let fits = result.ne == product.ne && bias.ne == [product.ne[0], 1, 1, 1];
    if !plain || !fits || op.bias_in_host_memory == Some(false) {
        return Err(Reason::OpNotSupported);
    }
    Ok(Route::Bias)
}
