//! The fast arithmetic against the exact one, and the exact one against fp64.

mod common;

use common::*;
use half::f16;
use proptest::prelude::*;
use rocket_sim::{Arithmetic, Config, Counters, Rule};

fn run(arithmetic: Arithmetic, s: Shape, a: &[f32], w: &[f32], add: &[f32]) -> Vec<f32> {
    let rig = Rig::new(Config { arithmetic, ..Config::default() });
    let setup = Setup::of(&rig, s, a.to_vec(), w.to_vec(), add.to_vec());
    setup.run();
    assert_eq!(rig.board.explanations(), []);
    setup.result()
}

fn values(seed: u64, n: u32, scale: f32) -> Vec<f32> {
    let mut x = seed | 1;
    (0..n)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            let unit = (x >> 40) as f32 / (1 << 23) as f32 - 1.0;
            f16::from_f32(unit * scale).to_f32()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn fast_is_exact_within_bound(
        m in 1u32..12, k in 1u32..12, n in 1u32..8, wide: bool, seed: u64, scale in 0.01f32..4.0,
    ) {
        let s = Shape { wide, ..Shape::new(4 * m, 32 * k, 16 * n) };
        let a = values(seed, s.m * s.k, scale);
        let w = values(seed ^ 0x5555_5555, s.n * s.k, 1.0);
        let add = vec![0.0; (s.m * s.n) as usize];
        let exact = run(Arithmetic::Exact, s, &a, &w, &add);
        let fast = run(Arithmetic::Fast, s, &a, &w, &add);
        let k = s.k as usize;
        for i in 0..exact.len() {
            let (row, col) = (i / s.n as usize, i % s.n as usize);
            let products = a[row * k..][..k].iter().zip(&w[col * k..][..k])
                .map(|(a, w)| f64::from(*a) * f64::from(*w));
            let (sum, abs) = products.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
            let one = (-11f64).exp2() * sum.abs() + (-24f64).exp2();
            let bound = one + k as f64 * (-24f64).exp2() * abs;
            let rounded = if wide { sum as f32 } else { f16::from_f64(sum).to_f32() };
            // One rounding to fp32 and one to fp16 differ from one to fp16 by one place at most.
            prop_assert!(f64::from(exact[i] - rounded).abs() <= one, "{} {sum}", exact[i]);
            prop_assert!((f64::from(fast[i]) - sum).abs() <= bound, "{} {sum}", fast[i]);
        }
    }
}

#[test]
fn sums_overflow_to_infinity_and_round_to_even() {
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let s = Shape { ew: Some(EW_ADD), ..Shape::new(12, 32, 16) };
        let mut a = vec![0.0; 12 * 32];
        let mut w = vec![0.0; 16 * 32];
        let mut add = vec![0.0; 12 * 16];
        (a[0], w[0]) = (255.0, 255.0); // C[0,0] = 65025
        (a[32], add[16]) = (8.0, 7.0); // C[1,0] = 2040 + 7
        a[64] = 16.0; // C[2,0] = 4080
        add[0] = 1000.0;
        w[32] = 256.125; // C[1,1] = 2049, a tie
        add[32] = 18.0; // C[2,0] = 4098, a tie
        let c = run(arithmetic, s, &a, &w, &add);
        assert_eq!(c[0], f32::INFINITY);
        assert_eq!(c[16], 2047.0);
        assert_eq!(c[17], 2048.0);
        assert_eq!(c[32], 4096.0);
    }
}

#[test]
fn the_adder_narrows_once() {
    // 2048 + 1 + 1: rounded before adding it would stay 2048.
    let s = Shape { ew: Some(EW_ADD), ..Shape::new(12, 32, 16) };
    let mut a = vec![0.0; 12 * 32];
    let mut w = vec![0.0; 16 * 32];
    (a[0], a[1], w[0], w[1]) = (2048.0, 1.0, 1.0, 1.0);
    let mut add = vec![0.0; 12 * 16];
    add[0] = 1.0;
    assert_eq!(run(Arithmetic::Exact, s, &a, &w, &add)[0], 2050.0);
}

/// Programs of every format and some that break rules, in a row on one board: each arithmetic
/// counts and explains alike.
fn counted(arithmetic: Arithmetic, programs: &[(Kind, Shape, bool)]) -> (Counters, Vec<Rule>) {
    let rig = Rig::new(Config { arithmetic, ..quick() });
    for &(kind, shape, broken) in programs {
        let mut s = Setup::new(&rig, shape);
        let mut words = if kind.code == 2 { s.words.clone() } else { retyped(&mut s, kind) };
        if broken {
            set(&mut words, 0x1044, 1);
        }
        s.run_words(&words, words.len());
    }
    // Whether a caller came before the end of its job is a matter of speed.
    let counters = Counters { waits: 0, ..rig.board.counters() };
    (counters, rig.board.explanations().iter().map(|e| e.rule).collect())
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 16,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn counting_counts_what_computing_does(
        programs in prop::collection::vec(
            (0usize..7, 3u32..12, 1u32..6, 1u32..3, any::<bool>(), prop::bool::weighted(0.1)),
            1..6,
        ),
    ) {
        let fp16 = kind(2, 2, 2, 16, 16, 1, 1);
        let kinds = [fp16, fp16, INT8, INT8_F32, INT4, BF16, TF32];
        let programs: Vec<(Kind, Shape, bool)> = programs
            .into_iter()
            .map(|(i, m, k, n, add, broken)| {
                let (kind, shape) = (kinds[i], Shape::new(4 * m, 32 * k, 64 * n));
                let ew = (i == 1 || add && i == 0).then_some(EW_ADD);
                (kind, Shape { wide: i > 1, ew, ..shape }, broken)
            })
            .collect();
        let exact = counted(Arithmetic::Exact, &programs);
        prop_assert!(exact.0.macs > 0 || programs.iter().all(|p| p.2));
        prop_assert_eq!(counted(Arithmetic::Count, &programs), exact);
    }
}

/// Whoever counts gets no results, but every byte is stored.
#[test]
fn counting_stores_ones() {
    let ones =
        |s: Shape| run(Arithmetic::Count, s, &vec![2.0; 12 * 32], &vec![3.0; 512], &[7.0; 192]);
    assert_eq!(ones(Shape::new(12, 32, 16)), vec![1.0; 192]);
    assert_eq!(ones(Shape { ew: Some(EW_ADD), ..Shape::new(12, 32, 16) }), vec![8.0; 192]);
}

/// Not a gate: prints what one core does per second of this machine.
#[test]
fn fast_speed_is_printed() {
    let rig = Rig::new(Config { arithmetic: Arithmetic::Fast, ..Config::default() });
    let s = Setup::new(&rig, Shape::new(256, 512, 128));
    let program = rig.words(&s.words);
    let tasks = vec![task(&program, 126); 64];
    let start = std::time::Instant::now();
    rig.submit(&tasks, &[&s.input, &s.weights, &program], &[&s.output]).unwrap();
    rig.wait(&s.output);
    let gflops = 64.0 * 2.0 * (256 * 512 * 128) as f64 / start.elapsed().as_secs_f64() / 1e9;
    println!("fast arithmetic: {gflops:.1} GFLOP/s on one simulated core");
    assert_eq!(s.result(), s.expected());
}
