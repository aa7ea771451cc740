use crate::{Case, board, open};
use proptest::prelude::*;
use rocket_runtime::dtype::DType;
use rocket_runtime::matmul::{Fp16, PACK_ROWS, Rows, Summation};
use rocket_runtime::plan::{Request, Sequence, Shape, search};

fn shapes() -> impl Strategy<Value = Shape> {
    // Half of the dimensions near the grid's edges, where off-by-ones live.
    let dim = || {
        prop_oneof![
            1usize..=700,
            prop::sample::select(vec![
                1, 4, 15, 16, 17, 31, 32, 33, 255, 256, 257, 264, 511, 512, 513, 700
            ])
        ]
    };
    (dim(), dim(), dim()).prop_map(|(m, k, n)| Shape { m, k, n })
}

/// First column and K step of each part: the columns cut for so many workers, each part planned on
/// its own.
fn parts(shape: Shape, workers: usize, resident: bool) -> Vec<(usize, usize)> {
    let width = shape.n.div_ceil(workers).next_multiple_of(16);
    let m = if resident { PACK_ROWS } else { shape.m };
    (0..shape.n)
        .step_by(width)
        .map(|first| {
            let part = Shape { m, n: width.min(shape.n - first), ..shape };
            let request = Request { streamed: !resident, ..Request::new(DType::Fp16, part) };
            (first, search(&request).expect("plans").kt)
        })
        .collect()
}

/// Compares a run with the definition: off by no more than fp16's rounding at each K step of the
/// part a column is in.
fn within_the_rounding(
    shape: Shape,
    workers: usize,
    resident: bool,
    seed: u64,
) -> Result<(), String> {
    let case = Case::reals(shape, seed);
    let Shape { m, k, n } = shape;
    let npu = open(&board(), workers);
    let (c, stats) = case.run(&npu, resident, Summation::OnChip).expect("runs");
    // As many as took part: a call is not spread over all workers where there are fewer cores.
    let parts = parts(shape, stats.workers as usize, resident);
    if resident {
        let packed = npu.pack(Fp16, &Rows::new(&case.w, n, k)).expect("packs");
        let fewest = parts.iter().map(|&(_, kt)| kt).min();
        if fewest != Some(packed.k_step()) {
            return Err(format!("{parts:?} foretold, packed in steps of {}", packed.k_step()));
        }
    }
    for j in 0..n {
        let kt = parts.iter().rfind(|&&(first, _)| first <= j).expect("one begins at 0").1;
        for i in 0..m {
            let (mut sum, mut magnitude, mut rounded) = (0.0f64, 0.0f64, 0.0f64);
            for x in 0..k {
                let p = case.a[i * k + x].to_f64() * case.w[j * k + x].to_f64();
                sum += p;
                magnitude += p.abs();
                if (x + 1) % kt == 0 || x + 1 == k {
                    rounded += sum.abs();
                }
            }
            let bound = rounded / 2048.0 + (k as f64 * magnitude + 1.0) / (1u64 << 24) as f64;
            let err = (f64::from(c[i * n + j]) - sum).abs();
            if err > bound {
                return Err(format!("({i}, {j}) of {shape:?}: off by {err:e}, bound {bound:e}"));
            }
        }
    }
    Ok(())
}

/// More workers than cores, and a part planned in more K steps than a narrower one would be.
#[test]
fn parts_are_those_that_ran() {
    let shape = Shape { m: 22, k: 700, n: 385 };
    assert_ne!(parts(shape, 5, true)[0].1, parts(shape, 3, true)[0].1, "the cut must matter");
    within_the_rounding(shape, 5, true, 22_141_188_011_142_284).expect("within the bound");
}

/// One worker with several groups of columns, and several workers with one each: every column is
/// multiplied with its own weights.
#[test]
fn every_column_meets_its_own_weights() {
    for (n, workers, groups) in [(8600, 1, 2), (300, 3, 1)] {
        let shape = Shape { m: 12, k: 2080, n };
        let part = Shape { n: n.div_ceil(workers), ..shape };
        let request = Request { streamed: true, ..Request::new(DType::Fp16, part) };
        let plan = Sequence::new(request).expect("plans");
        assert_eq!(plan.groups.len(), groups);
        let case = Case::integers(shape, 9);
        for resident in [false, true] {
            let npu = open(&board(), workers);
            let (c, _) = case.run(&npu, resident, Summation::OnChip).expect("runs");
            let wrong = c.iter().zip(case.expected()).position(|(c, want)| f64::from(*c) != want);
            assert_eq!(wrong, None, "{shape:?}, {workers} workers, resident {resident}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whole numbers whose partial sums are exact in fp16: the result is exact, whatever the
    /// split.
    #[test]
    fn integers_are_exact(shape in shapes(), workers in prop::sample::select(vec![1, 2, 5]), resident: bool, host: bool, seed: u64) {
        let case = Case::integers(shape, seed);
        let npu = open(&board(), workers);
        let summation = if host { Summation::Host } else { Summation::OnChip };
        let (c, stats) = case.run(&npu, resident, summation).expect("runs");
        for (i, (ours, want)) in c.iter().zip(case.expected()).enumerate() {
            prop_assert_eq!(f64::from(*ours), want, "element {} of {:?}", i, shape);
        }
        prop_assert_eq!(stats.executed_macs - stats.padding_macs, shape.macs());
    }

    /// Random data: within the rounding of fp16 at each K step.
    #[test]
    fn reals_are_within_the_rounding_of_their_k_steps(shape in shapes(), workers in prop::sample::select(vec![1, 2, 5]), resident: bool, seed: u64) {
        within_the_rounding(shape, workers, resident, seed).map_err(TestCaseError::fail)?;
    }
}

/// The bound above is not slack: dropping the last element of K breaks it.
#[test]
fn the_bound_catches_a_dropped_k_tail() {
    let shape = Shape { m: 16, k: 577, n: 16 };
    let case = Case::reals(shape, 7);
    let mut cut = Case::reals(shape, 7);
    for row in cut.a.chunks_exact_mut(shape.k) {
        row[576] = half::f16::ZERO;
    }
    let (full, short) = (case.expected(), cut.expected());
    let caught =
        full.iter().zip(&short).filter(|(f, s)| (*f - *s).abs() > f.abs() / 2048.0 + 1e-6).count();
    println!("negative control: {caught} of {} elements leave the bound", full.len());
    assert!(caught > full.len() / 4);
}
