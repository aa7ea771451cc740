//! Every boundary of the routing rules.

use super::mul_mat::{MAX_ELEMENTS, MIN_K, MIN_N};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const POLICY: Policy = Policy { engine: true, min_m: 128 };

fn op(m: i64, k: i64, n: i64) -> OpFacts {
    OpFacts {
        kind: OpKind::MulMat,
        weight: TensorFacts::contiguous(Dtype::F16, [k, n, 1, 1]),
        weight_is_leaf: true,
        weight_in_host_memory: None,
        activation: TensorFacts::contiguous(Dtype::F32, [k, m, 1, 1]),
        result: TensorFacts::contiguous(Dtype::F32, [n, m, 1, 1]),
        op_params: [0; 16],
    }
}

fn with(change: impl FnOnce(&mut OpFacts)) -> Result<Route, Reason> {
    let mut o = op(512, 576, 1536);
    change(&mut o);
    decide(&o, &POLICY)
}

#[test]
fn the_plain_case() {
    assert_eq!(with(|_| ()), Ok(Route::Fp16 { m: 512, k: 576, n: 1536 }));
    assert_eq!(with(|o| o.weight_in_host_memory = Some(true)).map(|r| r.name()), Ok("fp16"));
    let f32w = with(|o| o.weight = TensorFacts::contiguous(Dtype::F32, [576, 1536, 1, 1]));
    assert!(f32w.is_ok());
}

#[test]
fn views_always_and_other_ops_never() {
    for engine in [true, false] {
        let policy = Policy { engine, ..POLICY };
        for kind in [OpKind::None, OpKind::View] {
            let o = OpFacts { kind, ..op(1, 1, 1) };
            assert_eq!(decide(&o, &policy), Ok(Route::Nothing));
        }
        for kind in [OpKind::MulMatId, OpKind::FlashAttn, OpKind::Other] {
            let o = OpFacts { kind, ..op(512, 576, 576) };
            assert_eq!(decide(&o, &policy), Err(Reason::OpNotSupported));
        }
    }
    assert_eq!(
        decide(&op(512, 576, 576), &Policy { engine: false, ..POLICY }),
        Err(Reason::NoEngine)
    );
}

#[test]
fn each_reason_has_a_case() {
    let t = TensorFacts::contiguous;
    let cases: Vec<(Result<Route, Reason>, Reason)> = vec![
        (with(|o| o.kind = OpKind::Other), Reason::OpNotSupported),
        (decide(&op(512, 64, 64), &Policy { engine: false, min_m: 8 }), Reason::NoEngine),
        (decide(&op(127, 576, 576), &POLICY), Reason::TooFewRows),
        (decide(&op(512, 63, 576), &POLICY), Reason::KTooSmall),
        (decide(&op(512, 576, 63), &POLICY), Reason::NTooSmall),
        (decide(&op(1 << 20, 1 << 13, 64), &POLICY), Reason::TooLarge),
        (with(|o| o.activation.ne[1] = 0), Reason::Empty),
        (with(|o| o.activation.ne[0] = 575), Reason::ShapeMismatch),
        (with(|o| o.weight_is_leaf = false), Reason::WeightNotLeaf),
        (with(|o| o.weight_in_host_memory = Some(false)), Reason::WeightNotInHostMemory),
        (with(|o| o.weight.dtype = Dtype::BF16), Reason::WeightType),
        (with(|o| o.weight.ne[2] = 2), Reason::WeightBatched),
        (with(|o| o.activation.dtype = Dtype::F16), Reason::ActivationType),
        (with(|o| o.result.dtype = Dtype::F16), Reason::ResultType),
        (with(|o| o.activation.nb[1] += 4), Reason::NotContiguous),
        (with(|o| o.op_params[0] = 10), Reason::AccumulatorPrecision),
        (with(|o| o.op_params[3] = 15), Reason::ActivationPrecision),
        (with(|o| o.op_params[1] = 1), Reason::Hinted),
        (with(|o| o.op_params[2] = 1), Reason::UnknownParameter),
    ];
    for (got, reason) in &cases {
        assert_eq!(*got, Err(*reason));
    }
    let covered: HashSet<_> = cases.iter().map(|(_, r)| *r).collect();
    assert_eq!(covered, REASONS.iter().copied().collect());
    assert!(with(|o| o.weight = t(Dtype::F16, [576, 1536, 1, 2])).is_err());
}

#[test]
fn every_declared_precision() {
    for rank in -1..=64 {
        let enough = matches!(rank, 0 | 20 | 30 | 40);
        assert_eq!(with(|o| o.op_params[0] = rank).is_ok(), enough, "accumulator {rank}");
        assert_eq!(with(|o| o.op_params[3] = rank).is_ok(), enough, "activation {rank}");
        assert_eq!(with(|o| o.op_params[1] = rank).is_ok(), rank == 0, "hint {rank}");
    }
    for i in (4..16).chain([2]) {
        assert_eq!(with(|o| o.op_params[i] = i32::MIN), Err(Reason::UnknownParameter));
    }
}

#[test]
fn every_weight_type() {
    for number in -1..64 {
        let d = Dtype(number);
        let got = with(|o| o.weight = TensorFacts::contiguous(d, [576, 1536, 1, 1]));
        assert_eq!(got.is_ok(), number == 0 || number == 1, "{}", d.name());
    }
}

#[test]
fn batches_are_rows() {
    let mut o = op(4, 576, 64);
    o.activation = TensorFacts::contiguous(Dtype::F32, [576, 4, 8, 4]);
    o.result = TensorFacts::contiguous(Dtype::F32, [64, 4, 8, 4]);
    assert_eq!(decide(&o, &POLICY), Ok(Route::Fp16 { m: 128, k: 576, n: 64 }));
    // A stride over a dimension of one element says nothing.
    o = op(128, 576, 64);
    o.activation.nb[2] = 12345;
    o.activation.nb[3] = 7;
    assert!(decide(&o, &POLICY).is_ok());
    o.activation.nb[0] = 8;
    assert_eq!(decide(&o, &POLICY), Err(Reason::NotContiguous));
}

#[test]
fn a_transposed_operand_is_not_contiguous() {
    for pick in [0, 1, 2] {
        let got = with(|o| {
            let t = [&mut o.weight, &mut o.activation, &mut o.result];
            let t = t.into_iter().nth(pick).unwrap();
            t.nb.swap(0, 1);
        });
        assert_eq!(got, Err(Reason::NotContiguous));
    }
}

#[test]
fn names_and_sentences() {
    let names: HashSet<_> = REASONS.iter().map(|r| r.name()).collect();
    assert_eq!(names.len(), REASONS.len());
    for r in REASONS {
        assert!(r.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'));
        assert!(r.sentence().ends_with('.'));
    }
}

#[test]
fn nodes_without_the_mark() {
    assert!(is_selected(0, false) && is_selected(16, false) && is_selected(16 | 2, true));
    assert!(!is_selected(0, true) && !is_selected(!16, true));
}

proptest! {
    /// The rule restated in one line, over everything near and far from its bounds.
    #[test]
    fn sizes(
        m in prop_oneof![1i64..300, 1i64..1 << 34],
        k in prop_oneof![1i64..130, 1i64..1 << 34],
        n in prop_oneof![1i64..130, 1i64..1 << 34],
        min_m in 8usize..256,
    ) {
        let policy = Policy { engine: true, min_m };
        let (mu, ku, nu) = (m as usize, k as usize, n as usize);
        let fits = [(m, k), (k, n), (m, n)]
            .iter()
            .all(|&(x, y)| (x as u128) * (y as u128) <= MAX_ELEMENTS as u128);
        let take = fits && mu >= min_m && ku >= MIN_K && nu >= MIN_N;
        let got = decide(&op(m, k, n), &policy);
        prop_assert_eq!(got.ok(), take.then_some(Route::Fp16 { m: mu, k: ku, n: nu }));
    }

    /// No combination of numbers panics, and nothing with odd strides or dimensions is accepted
    /// unless it is exactly contiguous.
    #[test]
    fn garbage(
        ne in prop::array::uniform4(any::<i64>()),
        nb in prop::array::uniform4(any::<usize>()),
        params in prop::array::uniform16(any::<i32>()),
        dtype in -2i32..50,
    ) {
        let facts = TensorFacts { dtype: Dtype(dtype), ne, nb };
        let o = OpFacts { weight: facts, activation: facts, result: facts, op_params: params, ..op(1, 1, 1) };
        prop_assert!(decide(&o, &POLICY).is_err());
        let _ = facts.is_contiguous();
    }
}
