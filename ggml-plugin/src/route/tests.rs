//! Every boundary of the routing rules.

mod attention;
mod bias;
mod copy;
mod experts;

use super::mul_mat::{MAX_ELEMENTS, MIN_K, MIN_N};
use super::*;
use proptest::prelude::*;
use std::collections::HashSet;

const POLICY: Policy = Policy {
    engine: true,
    min_m: 128,
    min_m_quant: 128,
    attention: AttentionPolicy { on: true, min_kv: 1024, min_tokens: 16, unmasked: false },
    experts: ExpertsPolicy {
        mode: ExpertsMode::Auto,
        native: true,
        min_tokens: 512,
        min_rows: 64,
        min_work: 340_000_000,
        group: None,
    },
    wanted: Wanted { bf16: false, int8: None, int4: None, native: false },
};

fn fp16(m: usize, k: usize, n: usize, slices: usize) -> Result<Route, Reason> {
    Ok(Route::Product { numerics: Numerics::Fp16, m, k, n, slices })
}

fn op(m: i64, k: i64, n: i64) -> ProductFacts {
    ProductFacts {
        weight: TensorFacts::contiguous(Dtype::F16, [k, n, 1, 1]),
        weight_is_leaf: true,
        weight_in_host_memory: None,
        activation: TensorFacts::contiguous(Dtype::F32, [k, m, 1, 1]),
        result: TensorFacts::contiguous(Dtype::F32, [n, m, 1, 1]),
        op_params: [0; 16],
    }
}

fn decide(op: &ProductFacts, policy: &Policy) -> Result<Route, Reason> {
    super::decide(&OpFacts::MulMat(*op), policy)
}

fn with(change: impl FnOnce(&mut ProductFacts)) -> Result<Route, Reason> {
    let mut o = op(512, 576, 1536);
    change(&mut o);
    decide(&o, &POLICY)
}

/// One of each kind that has no route.
fn others() -> [OpFacts; 1] {
    [OpFacts::Other]
}

#[test]
fn the_plain_case() {
    assert_eq!(with(|_| ()), fp16(512, 576, 1536, 1));
    assert_eq!(with(|o| o.weight_in_host_memory = Some(true)).map(|r| r.name()), Ok("fp16"));
    let f32w = with(|o| o.weight = TensorFacts::contiguous(Dtype::F32, [576, 1536, 1, 1]));
    assert!(f32w.is_ok());
}

#[test]
fn views_always_and_other_ops_never() {
    for engine in [true, false] {
        let policy = Policy { engine, ..POLICY };
        assert_eq!(super::decide(&OpFacts::Nothing, &policy), Ok(Route::Nothing));
        for o in others() {
            assert_eq!(super::decide(&o, &policy), Err(Reason::OpNotSupported));
        }
    }
    assert_eq!(
        decide(&op(512, 576, 576), &Policy { engine: false, ..POLICY }),
        Err(Reason::NoEngine)
    );
}

#[test]
fn each_reason_has_a_case() {
    let mut cases: Vec<(Result<Route, Reason>, Reason)> = vec![
        (super::decide(&OpFacts::Other, &POLICY), Reason::OpNotSupported),
        (
            decide(&op(512, 64, 64), &Policy { engine: false, min_m: 8, min_m_quant: 8, ..POLICY }),
            Reason::NoEngine,
        ),
        (decide(&op(127, 576, 576), &POLICY), Reason::TooFewRows),
        (decide(&op(512, 63, 576), &POLICY), Reason::KTooSmall),
        (decide(&op(512, 576, 63), &POLICY), Reason::NTooSmall),
        (decide(&op(1 << 20, 1 << 13, 64), &POLICY), Reason::TooLarge),
        (with(|o| o.activation.ne[1] = 0), Reason::Empty),
        (with(|o| o.activation.ne[0] = 575), Reason::ShapeMismatch),
        (with(|o| o.weight_is_leaf = false), Reason::WeightNotLeaf),
        (with(|o| o.weight_in_host_memory = Some(false)), Reason::WeightNotInHostMemory),
        (with(|o| o.weight.dtype = Dtype(43)), Reason::WeightType),
        (with(|o| o.activation.dtype = Dtype::F16), Reason::ActivationType),
        (with(|o| o.result.dtype = Dtype::F16), Reason::ResultType),
        (with(|o| o.result.nb[1] += 4), Reason::NotContiguous),
        (with(|o| o.op_params[0] = 10), Reason::AccumulatorPrecision),
        (with(|o| o.op_params[3] = 15), Reason::ActivationPrecision),
        (with(|o| o.op_params[1] = 1), Reason::Hinted),
        (with(|o| o.op_params[2] = 1), Reason::UnknownParameter),
    ];
    cases.extend(attention::cases());
    cases.extend(experts::cases());
    for (got, reason) in &cases {
        assert_eq!(*got, Err(*reason));
    }
    let mut covered: HashSet<_> = cases.iter().map(|(_, r)| *r).collect();
    // What depends on where a stack lies and on what else is resident is asked after the rules.
    covered.extend([Reason::ExpertsNotKept, Reason::ExpertsNoRoom]);
    assert_eq!(covered, REASONS.iter().copied().collect());
    // A host that cannot decode the type, or stores it otherwise than the file format says.
    assert_eq!(with(|o| o.weight.block = None), Err(Reason::WeightType));
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

/// ggml-abi 2.9: the numbers, each with its block's size in elements and bytes.
#[test]
fn every_weight_type() {
    let numbers = [0, 1, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23];
    let known: HashSet<i32> = numbers.into_iter().chain([29, 30, 34, 35, 39, 40, 41, 42]).collect();
    let unsized_here = [40, 41, 42];
    for number in -1..64 {
        let d = Dtype(number);
        let mut weight = TensorFacts::contiguous(d, [512, 1536, 1, 1]);
        if unsized_here.contains(&number) {
            // As a host describes it.
            let block = Block { elements: 64, bytes: 36 };
            weight = TensorFacts { block: Some(block), nb: [36, 288, 442_368, 442_368], ..weight };
        }
        let got = with(|o| {
            o.weight = weight;
            o.activation = TensorFacts::contiguous(Dtype::F32, [512, 512, 1, 1]);
        });
        assert_eq!(got.is_ok(), known.contains(&number), "{} {got:?}", d.name());
        assert_eq!(d.is_known(), known.contains(&number));
        assert_eq!(d.is_quantized(), ![0, 1, 30].contains(&number));
    }
}

/// Quantized weights have a threshold of their own, never below the other one.
#[test]
fn thresholds_by_weight_type() {
    let policy = Policy { min_m: 32, min_m_quant: 100, ..POLICY };
    let low = Policy { min_m: 32, min_m_quant: 8, ..POLICY };
    let at = |d, m, policy: &Policy| {
        let mut o = op(m, 512, 576);
        o.weight = TensorFacts::contiguous(d, [512, 576, 1, 1]);
        decide(&o, policy).is_ok()
    };
    for d in Dtype::all().filter(|d| d.block().is_some()) {
        let bound = if d.is_quantized() { 100 } else { 32 };
        assert!(at(d, bound, &policy) && !at(d, bound - 1, &policy), "{}", d.name());
        assert!(at(d, 32, &low) && !at(d, 31, &low), "{}", d.name());
    }
}

/// A row must be whole blocks; ggml itself never makes another.
#[test]
fn a_row_of_part_blocks_is_declined() {
    let q8 = |k| {
        let mut o = op(512, k, 576);
        o.weight = TensorFacts::contiguous(Dtype(8), [k, 576, 1, 1]);
        decide(&o, &POLICY)
    };
    assert!(q8(96).is_ok());
    assert_eq!(q8(97), Err(Reason::NotContiguous));
}

/// Off every grid of the hardware: padded, not declined (SigLIP's K = 4304).
#[test]
fn sizes_off_the_grid() {
    for (m, k, n) in [(729, 4304, 1152), (129, 65, 67), (130, 4097, 1001)] {
        assert_eq!(decide(&op(m as i64, k as i64, n as i64), &POLICY), fp16(m, k, n, 1));
    }
}

/// Weights over more dimensions: one product for each weight and outer batch, whose rows are those
/// of the batches that share it.
#[test]
fn batched_weights() {
    let batched = |w: [i64; 2], a: [i64; 2], m: i64| {
        let mut o = op(m, 576, 64);
        o.weight = TensorFacts::contiguous(Dtype::F16, [576, 64, w[0], w[1]]);
        o.activation = TensorFacts::contiguous(Dtype::F32, [576, m, a[0], a[1]]);
        o.result = TensorFacts::contiguous(Dtype::F32, [64, m, a[0], a[1]]);
        decide(&o, &POLICY)
    };
    let fp16 = |m, slices| fp16(m, 576, 64, slices);
    assert_eq!(batched([4, 1], [4, 1], 128), fp16(128, 4));
    assert_eq!(batched([4, 1], [8, 1], 64), fp16(128, 4));
    assert_eq!(batched([2, 3], [4, 6], 100), fp16(200, 12));
    assert_eq!(batched([1, 2], [8, 2], 16), fp16(128, 2));
    assert_eq!(batched([4, 1], [4, 1], 127), Err(Reason::TooFewRows));
    for (w, a) in [([4, 1], [6, 1]), ([4, 1], [2, 1]), ([1, 3], [1, 4]), ([3, 1], [4, 1])] {
        assert_eq!(batched(w, a, 512), Err(Reason::ShapeMismatch), "{w:?} {a:?}");
    }
}

/// Rows may lie anywhere, as long as each is dense and the distances are whole floats.
#[test]
fn strided_activations() {
    let strided = |nb: [usize; 4]| {
        let mut o = op(64, 576, 64);
        o.activation = TensorFacts { nb, ..TensorFacts::contiguous(Dtype::F32, [576, 64, 4, 2]) };
        o.result = TensorFacts::contiguous(Dtype::F32, [64, 64, 4, 2]);
        decide(&o, &POLICY)
    };
    let fp16 = fp16(512, 576, 64, 1);
    // Gaps; dimensions permuted; one row for all.
    for nb in [[4, 4096, 1 << 20, 1 << 22], [4, 9216, 2304, 589_824], [4, 0, 0, 0]] {
        assert_eq!(strided(nb), fp16);
    }
    for nb in [[8, 4608, 1 << 20, 1 << 22], [4, 2306, 1 << 20, 1 << 22], [4, 2304, 3, 8]] {
        assert_eq!(strided(nb), Err(Reason::NotContiguous));
    }
}

#[test]
fn batches_are_rows() {
    let mut o = op(4, 576, 64);
    o.activation = TensorFacts::contiguous(Dtype::F32, [576, 4, 8, 4]);
    o.result = TensorFacts::contiguous(Dtype::F32, [64, 4, 8, 4]);
    assert_eq!(decide(&o, &POLICY), fp16(128, 576, 64, 1));
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
        let policy = Policy { min_m, min_m_quant: 8, ..POLICY };
        let (mu, ku, nu) = (m as usize, k as usize, n as usize);
        let fits = [(m, k), (k, n), (m, n)]
            .iter()
            .all(|&(x, y)| (x as u128) * (y as u128) <= MAX_ELEMENTS as u128);
        let take = fits && mu >= min_m && ku >= MIN_K && nu >= MIN_N;
        let got = decide(&op(m, k, n), &policy);
        prop_assert_eq!(got.ok(), take.then(|| fp16(mu, ku, nu, 1).unwrap()));
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
        let facts = TensorFacts { dtype: Dtype(dtype), block: Dtype(dtype).block(), ne, nb };
        let o = ProductFacts { weight: facts, activation: facts, result: facts, op_params: params, ..op(1, 1, 1) };
        prop_assert!(decide(&o, &POLICY).is_err());
        let _ = facts.is_contiguous();
    }
}
