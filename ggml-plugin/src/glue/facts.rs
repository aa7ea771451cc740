//! From the host's tensor to the facts the routing rules work on.

use crate::abi::host::Host;
use crate::abi::ops::OpKind;
use crate::abi::tensor::Tensor;
use crate::route::{Dtype, OpFacts, TensorFacts};

/// The facts; `None` when an op lacks a source it must have.
pub(super) fn of(host: &Host, op: &Tensor) -> Option<OpFacts> {
    let kind = host.ops.kind(op.op);
    if !matches!(kind, OpKind::MulMat) {
        // Nothing but the kind decides about these.
        let own = op.facts(None);
        return Some(facts(kind, own, own, own));
    }
    let (weight, activation) = (op.source(0)?, op.source(1)?);
    let describe = |t: &Tensor| t.facts(host.format(Dtype(t.dtype)).map(|f| f.block));
    Some(OpFacts {
        weight_is_leaf: host.ops.kind(weight.op) == OpKind::None,
        weight_in_host_memory: host.in_host_memory(weight),
        op_params: op.op_params,
        ..facts(kind, describe(weight), describe(activation), describe(op))
    })
}

fn facts(
    kind: OpKind,
    weight: TensorFacts,
    activation: TensorFacts,
    result: TensorFacts,
) -> OpFacts {
    OpFacts {
        kind,
        weight,
        weight_is_leaf: false,
        weight_in_host_memory: None,
        activation,
        result,
        op_params: [0; 16],
    }
}
