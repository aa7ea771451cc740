use crate::{Case, board, open};
use proptest::prelude::*;
use rocket_runtime::plan::{Sequence, Shape, Summation};

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

/// Length of the K steps that column `j` was summed in, as the worker that owns it planned them.
fn k_step(shape: Shape, workers: usize, resident: bool, j: usize) -> usize {
    let step = shape.n.div_ceil(workers).next_multiple_of(16);
    let first = j / step * step;
    let m = if resident { 256 } else { shape.m };
    let part = Shape { m, n: step.min(shape.n - first), ..shape };
    Sequence::new(part, Summation::OnChip).expect("plans").plan.kt
}

/// One worker with several groups of columns, and several workers with one each: every column is
/// multiplied with its own weights.
#[test]
fn every_column_meets_its_own_weights() {
    for (n, workers, groups) in [(64 * 256 + 300, 1, 2), (300, 3, 1)] {
        let shape = Shape { m: 12, k: 40, n };
        let part = Shape { n: n.div_ceil(workers), ..shape };
        let plan = Sequence::new(part, Summation::OnChip).expect("plans");
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
        let case = Case::reals(shape, seed);
        let Shape { m, k, n } = shape;
        let npu = open(&board(), workers);
        let (c, _) = case.run(&npu, resident, Summation::OnChip).expect("runs");
        for j in 0..n {
            let kt = k_step(shape, workers, resident, j);
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
                prop_assert!(err <= bound, "({i}, {j}) of {shape:?}: off by {err:e}, bound {bound:e}");
            }
        }
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
