//! MUL_MAT_ID: every boundary, in the three modes.

use super::*;

const Q4_K: Dtype = Dtype(12);
const MXFP4: Dtype = Dtype(39);

/// gpt-oss-20b's: 32 experts, 4 of them for each of 512 tokens, so 64 rows each.
fn op() -> ExpertsFacts {
    of(MXFP4, [2880, 2880, 32], [4, 512], 1)
}

fn of(
    dtype: Dtype,
    [k, n, experts]: [i64; 3],
    [used, tokens]: [i64; 2],
    rows: i64,
) -> ExpertsFacts {
    let product = ProductFacts {
        weight: TensorFacts::contiguous(dtype, [k, n, experts, 1]),
        weight_is_leaf: true,
        weight_in_host_memory: None,
        activation: TensorFacts::contiguous(Dtype::F32, [k, rows, tokens, 1]),
        result: TensorFacts::contiguous(Dtype::F32, [n, used, tokens, 1]),
        op_params: [0; 16],
    };
    let mut ids = TensorFacts::contiguous(Dtype::I32, [used, tokens, 1, 1]);
    // A view of a sorted list of all experts, as hosts make them; of a type that needs no decoder.
    ids.nb =
        [4, 4 * experts as usize, 4 * (experts * tokens) as usize, 4 * (experts * tokens) as usize];
    ids.block = None;
    ExpertsFacts { product, ids }
}

fn decide(op: ExpertsFacts, policy: &ExpertsPolicy) -> Result<Route, Reason> {
    super::super::decide(&OpFacts::MulMatId(op), &Policy { experts: *policy, min_m: 32, ..POLICY })
}

fn with(change: impl FnOnce(&mut ExpertsFacts)) -> Result<Route, Reason> {
    let mut o = op();
    change(&mut o);
    decide(o, &POLICY.experts)
}

fn under(op: ExpertsFacts, change: impl FnOnce(&mut ExpertsPolicy)) -> Result<Route, Reason> {
    let mut policy = POLICY.experts;
    change(&mut policy);
    decide(op, &policy)
}

fn forced(op: ExpertsFacts) -> Result<Route, Reason> {
    under(op, |p| p.mode = ExpertsMode::Forced)
}

/// Each reason of experts, beside those that products share. Two are the ledger's: the rules alone never
/// give them.
pub(super) fn cases() -> Vec<(Result<Route, Reason>, Reason)> {
    vec![
        (under(op(), |p| p.mode = ExpertsMode::Off), Reason::ExpertsOff),
        (
            decide(of(Dtype::F16, [2880, 2880, 32], [4, 512], 1), &POLICY.experts),
            Reason::ExpertsUnquantized,
        ),
        (under(op(), |p| p.native = false), Reason::ExpertsUnquantized),
        (under(op(), |p| p.min_tokens = 513), Reason::ExpertsFewTokens),
        (under(op(), |p| p.min_rows = 65), Reason::ExpertsFewRows),
        (under(op(), |p| p.min_work = 64 * 2880 * 2880 + 1), Reason::ExpertsLittleWork),
        (with(|o| o.ids.dtype = Dtype(24)), Reason::ExpertsIds),
        (with(|o| o.ids.nb[0] = 8), Reason::ExpertsIds),
    ]
}

#[test]
fn the_plain_cases() {
    let route = with(|_| ()).unwrap();
    let shape = ExpertsShape { k: 2880, n: 2880, experts: 32, used: 4, tokens: 512, rows: 1 };
    let codes = Codes { group: 576, rotate: false };
    assert_eq!(route, Route::Experts { numerics: Numerics::Shifted(codes), shape });
    assert_eq!((route.name(), route.macs()), ("experts-int8", 4 * 512 * 2880 * 2880));
    // DeepSeek-V2-Lite's at 2048 tokens; down projections have a row for each expert of a token.
    for rows in [1, 6] {
        let o = of(Q4_K, [2048, 1408, 64], [6, 2048], rows);
        let Ok(Route::Experts { numerics, shape }) = decide(o, &POLICY.experts) else {
            panic!("{o:?}")
        };
        assert_eq!(numerics, Numerics::Native(Codes { group: 512, rotate: true }));
        assert_eq!(shape.rows as i64, rows);
    }
    let half = forced(of(Dtype::F16, [2880, 2880, 32], [4, 512], 1)).unwrap();
    assert_eq!(half.name(), "experts-fp16");
    assert_eq!(
        under(op(), |p| (p.mode, p.native) = (ExpertsMode::Forced, false)).unwrap().name(),
        "experts-fp16"
    );
}

/// The last value that is taken and the first that is not.
#[test]
fn boundaries() {
    for (case, reason) in cases() {
        assert_eq!(case, Err(reason));
    }
    assert!(under(op(), |p| p.min_tokens = 512).is_ok());
    assert!(under(op(), |p| p.min_rows = 64).is_ok());
    assert!(under(op(), |p| p.min_work = 64 * 2880 * 2880).is_ok());
    // Qwen3-30B at 2048 tokens: 128 rows of 2048 x 768, 201 million (ggml-plugin-behaviour 12.4).
    let small = of(Q4_K, [2048, 768, 128], [8, 2048], 1);
    assert_eq!(decide(small, &POLICY.experts), Err(Reason::ExpertsLittleWork));
    // Forced: from MIN_M tokens on, whatever the work.
    for (tokens, taken) in [(31, false), (32, true)] {
        let o = of(Q4_K, [256, 64, 4], [2, tokens], 1);
        assert_eq!(forced(o).is_ok(), taken, "{tokens}");
        assert!(decide(o, &POLICY.experts).is_err());
    }
    // A model that asks for finer activations gets them.
    let mut precise = op();
    precise.product.op_params[3] = 20;
    assert_eq!(decide(precise, &POLICY.experts), Err(Reason::ExpertsUnquantized));
    assert_eq!(forced(precise).unwrap().name(), "experts-fp16");
    precise.product.op_params[3] = 10;
    assert_eq!(forced(precise), Err(Reason::ActivationPrecision));
}

#[test]
fn operands_that_do_not_belong_together() {
    for change in [
        (|o| o.ids.ne[1] = 511) as fn(&mut ExpertsFacts),
        |o| o.ids.ne[2] = 2,
        |o| o.product.activation.ne[1] = 2,
        |o| o.product.activation.ne[3] = 2,
        |o| o.product.result.ne[1] = 3,
        |o| o.product.weight.ne[3] = 2,
        |o| o.product.weight.ne[2] = 3,
    ] {
        assert_eq!(with(change), Err(Reason::ShapeMismatch));
    }
    assert_eq!(with(|o| o.ids.ne[0] = 0), Err(Reason::Empty));
    assert_eq!(with(|o| o.product.weight_is_leaf = false), Err(Reason::WeightNotLeaf));
    assert_eq!(with(|o| o.product.activation.nb[0] = 8), Err(Reason::NotContiguous));
    let narrow = of(Q4_K, [2048, 63, 4], [4, 512], 1);
    assert_eq!(decide(narrow, &POLICY.experts), Err(Reason::NTooSmall));
}

/// Groups that are asked for lie on the grid and within K.
#[test]
fn groups_by_the_knob() {
    for (asked, group) in [(32, 32), (33, 64), (4000, 2880)] {
        let Ok(Route::Experts { numerics, .. }) = under(op(), |p| p.group = Some(asked)) else {
            panic!()
        };
        assert_eq!(numerics.codes().map(|c| c.group), Some(group));
    }
}
