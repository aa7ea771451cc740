//! From the host's tensor to the facts the routing rules work on.

use crate::abi::host::Host;
use crate::abi::ops::OpKind;
use crate::abi::tensor::Tensor;
use crate::route::{
    AttentionFacts, BiasFacts, Copied, CopyFacts, Dtype, ExpertsFacts, OpFacts, ProductFacts,
    TensorFacts,
};

/// The facts; `None` when an op lacks a source it must have.
pub(super) fn of(host: &Host, op: &Tensor) -> Option<OpFacts> {
    Some(match host.ops.kind(op.op) {
        OpKind::None | OpKind::View => OpFacts::Nothing,
        OpKind::MulMat => OpFacts::MulMat(product(host, op)?),
        OpKind::MulMatId => OpFacts::MulMatId(ExpertsFacts {
            product: product(host, op)?,
            ids: describe(host, op.source(2)?),
        }),
        OpKind::FlashAttn => OpFacts::FlashAttn(attention(host, op)?),
        OpKind::Add => bias(host, op).map_or(OpFacts::Other, OpFacts::Bias),
        OpKind::Cpy => copy(host, op).map_or(OpFacts::Other, OpFacts::Copy),
        OpKind::Other => OpFacts::Other,
    })
}

fn describe(host: &Host, t: &Tensor) -> TensorFacts {
    t.facts(host.format(Dtype(t.dtype)).map(|f| f.block))
}

fn product(host: &Host, op: &Tensor) -> Option<ProductFacts> {
    let (weight, activation) = (op.source(0)?, op.source(1)?);
    Some(ProductFacts {
        weight: describe(host, weight),
        weight_is_leaf: host.ops.kind(weight.op) == OpKind::None,
        weight_in_host_memory: host.in_host_memory(weight),
        activation: describe(host, activation),
        result: describe(host, op),
        op_params: op.op_params,
    })
}

/// Of a sum with a product, `None` for any other.
fn bias(host: &Host, op: &Tensor) -> Option<BiasFacts> {
    let (sum, bias) = (op.source(0)?, op.source(1)?);
    if host.ops.kind(sum.op) != OpKind::MulMat || host.ops.kind(bias.op) != OpKind::None {
        return None;
    }
    Some(BiasFacts {
        product: product(host, sum)?,
        bias: describe(host, bias),
        bias_in_host_memory: host.in_host_memory(bias),
        result: describe(host, op),
    })
}

/// Of a copy of a product or of such a sum, `None` for any other.
fn copy(host: &Host, op: &Tensor) -> Option<CopyFacts> {
    let from = op.source(0)?;
    Some(CopyFacts {
        of: match host.ops.kind(from.op) {
            OpKind::MulMat => Copied::Product(product(host, from)?),
            OpKind::Add => Copied::Sum(bias(host, from)?),
            _ => return None,
        },
        result: describe(host, op),
        result_in_host_memory: host.in_host_memory(op),
    })
}

fn attention(host: &Host, op: &Tensor) -> Option<AttentionFacts> {
    let sources = [0, 1, 2, 3, 4].map(|i| op.source(i));
    let [q, k, v, mask, sinks] = sources;
    let here = |t: &&Tensor| host.in_host_memory(t) != Some(false);
    Some(AttentionFacts {
        q: describe(host, q?),
        k: describe(host, k?),
        v: describe(host, v?),
        mask: mask.map(|t| describe(host, t)),
        sinks: sinks.map(|t| describe(host, t)),
        result: describe(host, op),
        more_sources: (5..op.src.len()).any(|i| op.source(i).is_some()),
        in_host_memory: sources.iter().flatten().all(here),
        op_params: op.op_params,
    })
}
