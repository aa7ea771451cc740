//! Attention on the simulated board, by its public interface: every feature against double
//! precision, with the bound derived in `case.rs`, and beside it what a mistake would have given.

mod case;
mod faults;

use case::{Case, Numbers, Sees, Stored, Wrong};
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::ops::attention::{Outcome, Scratch, Shape, Trouble, attention};
use rocket_sim::Config;
use rocket_tests::TestBoard;

pub fn open(board: &TestBoard, workers: usize) -> Npu {
    let options = Options { workers, drain_on_signals: false, ..Options::default() };
    Npu::open(board, options).expect("the simulated board opens")
}

pub const PLAIN: Case = Case {
    name: "causal, heads of their own",
    shape: Shape { tokens: 24, n_kv: 150, heads: 4, kv_heads: 4, key: 64, value: 64, streams: 1 },
    sees: Sees::Causal,
    stored: Stored::Half,
    sinks: false,
    max_bias: 0.0,
    softcap: 0.0,
    scale: 0.6,
    gap: 0,
    overflow: false,
    most: 2e-2,
};

const GQA: Shape = Shape { heads: 12, kv_heads: 3, tokens: 19, n_kv: 131, ..PLAIN.shape };

fn cases() -> Vec<Case> {
    let mla =
        |heads, key, value| Shape { tokens: 17, heads, kv_heads: 1, key, value, ..PLAIN.shape };
    let wide = Shape { key: 128, value: 128, ..GQA };
    let overflow = Case { overflow: true, scale: 1.0 / 16384.0, most: 1e-3, shape: wide, ..PLAIN };
    vec![
        PLAIN,
        Case { name: "GQA, rows with gaps", shape: GQA, gap: 5, ..PLAIN },
        Case {
            name: "one token after another sees less",
            sees: Sees::Window(20),
            shape: GQA,
            ..PLAIN
        },
        Case { name: "no mask", sees: Sees::All, shape: GQA, ..PLAIN },
        Case {
            name: "three sequences in one cache",
            sees: Sees::Sequences(3),
            shape: GQA,
            ..PLAIN
        },
        Case { name: "a mask for each head", sees: Sees::ByHead, shape: GQA, gap: 3, ..PLAIN },
        Case { name: "tokens that see nothing", sees: Sees::SomeNothing, shape: GQA, ..PLAIN },
        Case {
            name: "the same with sinks",
            sees: Sees::SomeNothing,
            sinks: true,
            shape: GQA,
            ..PLAIN
        },
        Case { name: "sinks", sinks: true, shape: GQA, ..PLAIN },
        Case { name: "soft-cap", softcap: 2.0, scale: 0.15, shape: GQA, ..PLAIN },
        Case { name: "ALiBi", max_bias: 8.0, shape: GQA, ..PLAIN },
        Case {
            name: "all at once",
            max_bias: 4.0,
            softcap: 5.0,
            sinks: true,
            shape: GQA,
            gap: 7,
            ..PLAIN
        },
        Case {
            name: "MLA 576/512, V within K",
            shape: mla(8, 576, 512),
            stored: Stored::Shared,
            scale: 0.1,
            ..PLAIN
        },
        Case { name: "MLA 192/128", shape: mla(3, 192, 128), scale: 0.3, ..PLAIN },
        Case { name: "odd sizes", shape: Shape { key: 33, value: 17, ..GQA }, ..PLAIN },
        Case { name: "three streams", shape: Shape { streams: 3, ..GQA }, ..PLAIN },
        Case { name: "F32 in the cache", stored: Stored::Floats(1.0), shape: GQA, ..PLAIN },
        Case {
            name: "F32 far beyond F16",
            stored: Stored::Floats(1e9),
            scale: 0.6e-9,
            most: 2e7,
            shape: GQA,
            ..PLAIN
        },
        Case {
            name: "F32 far below F16",
            stored: Stored::Floats(1e-9),
            scale: 0.6e9,
            most: 2e-11,
            shape: GQA,
            ..PLAIN
        },
        Case { name: "raw products beyond F16", ..overflow },
        Case { name: "the same without a mask", sees: Sees::All, ..overflow },
        Case { name: "the same, soft-capped", softcap: 20.0, ..overflow },
    ]
}

/// Runs a case; NaN shows what nobody wrote.
pub fn run(
    npu: &Npu,
    numbers: &Numbers,
    scratch: &Scratch,
) -> rocket_runtime::Result<(Vec<f32>, Outcome)> {
    let mut out = vec![f32::NAN; numbers.case.shape.results()];
    let outcome = numbers.with(|job| attention(npu, &job, &mut out, scratch))?;
    Ok((out, outcome))
}

/// Stream, head and token of a row of the result.
fn at(s: Shape, row: usize) -> [usize; 3] {
    [row / s.heads / s.tokens, row % s.heads, row / s.heads % s.tokens]
}

/// The largest deviation, and the largest in units of the bound.
pub fn deviation(numbers: &Numbers, out: &[f32], wrong: Wrong) -> (f64, f64) {
    let s = numbers.case.shape;
    let (mut worst, mut units) = (0f64, 0f64);
    for (row, got) in out.chunks_exact(s.value).enumerate() {
        for (got, want) in got.iter().zip(numbers.wanted(at(s, row), wrong)) {
            let off = (f64::from(*got) - want.value).abs();
            let more = if off == 0.0 { 0.0 } else { off / want.bound };
            // Not a number is the worst.
            worst = if off > worst || off.is_nan() { off } else { worst };
            units = if more > units || more.is_nan() { more } else { units };
        }
    }
    (worst, units)
}

/// The mistakes that would change a case.
fn controls(c: &Case) -> Vec<Wrong> {
    let mut all = vec![Wrong::Scale, Wrong::Head];
    if c.overflow {
        // One pattern of signs: heads of Q are alike.
        all.pop();
    }
    let more = [
        (Wrong::Mask, c.sees != Sees::All),
        (Wrong::Sinks, c.sinks),
        (Wrong::Softcap, c.softcap > 0.0),
        (Wrong::Alibi, c.max_bias > 0.0),
        (Wrong::KvHead, c.shape.kv_heads > 1 && c.shape.heads > c.shape.kv_heads),
        (Wrong::Stream, c.shape.streams > 1),
    ];
    all.extend(more.into_iter().filter(|x| x.1).map(|x| x.0));
    all
}

#[test]
fn every_feature_is_exact() {
    let board = TestBoard::new(Config::default());
    let npu = open(&board, 3);
    let scratch = Scratch::default();
    let (mut worst, mut weakest) = (0f64, f64::INFINITY);
    for (i, case) in cases().into_iter().enumerate() {
        let numbers = case.numbers(i as u64);
        if case.overflow {
            let (least, most) = numbers.raw();
            assert!(least > 60_000.0 && most > 120_000.0 && most < 135_000.0, "{least} {most}");
        }
        let before = board.counters();
        let (out, outcome) = run(&npu, &numbers, &scratch).expect("runs");
        let after = board.counters();
        assert_eq!(outcome.trouble, None);
        let (off, units) = deviation(&numbers, &out, Wrong::Nothing);
        let mut line = format!("{}: {off:.2e}, {units:.3} of the bound; controls:", case.name);
        for wrong in controls(&case) {
            let (_, control) = deviation(&numbers, &out, wrong);
            line += &format!(" {wrong:?} {control:.0}");
            assert!(control > 5.0, "{line}");
            weakest = weakest.min(control);
        }
        println!("{line}");
        assert!(off <= case.most && units <= 1.0, "{line}");
        worst = worst.max(units);
        // What ran is what was to run, less what the mask made void, by the board's own count.
        let done = outcome.stats;
        assert_eq!(
            done.executed_macs - done.padding_macs + outcome.skipped_macs,
            case.shape.macs()
        );
        assert_eq!(after.macs - before.macs, done.executed_macs);
        match case.sees {
            Sees::All | Sees::ByHead => assert_eq!(outcome.skipped_macs, 0),
            // The tokens see 38 of 131 positions.
            Sees::Window(_) => assert!(outcome.skipped_macs * 3 > 2 * case.shape.macs()),
            _ => {}
        }
    }
    println!("worst {worst:.3} of the bound; weakest control {weakest:.0} times the bound");
}

/// Rows that see nothing are zeros, whatever lies in the caches.
#[test]
fn rows_that_see_nothing_are_zero() {
    let board = TestBoard::new(Config::default());
    let npu = open(&board, 2);
    for sinks in [false, true] {
        let case = Case { sees: Sees::SomeNothing, sinks, shape: GQA, ..PLAIN };
        let (out, _) = run(&npu, &case.numbers(9), &Scratch::default()).expect("runs");
        let mut zeros = 0;
        for (row, got) in out.chunks_exact(case.shape.value).enumerate() {
            let [_, _, token] = at(case.shape, row);
            assert_eq!(token % 3 == 0, got.iter().all(|x| *x == 0.0), "token {token}");
            zeros += usize::from(token % 3 == 0);
        }
        assert_eq!(zeros, GQA.tokens.div_ceil(3) * GQA.heads);
    }
}

/// The same call twice, and beside other calls, gives the same bits.
#[test]
fn results_repeat_to_the_bit() {
    let board = TestBoard::new(Config::default());
    let npu = open(&board, 3);
    let scratch = Scratch::default();
    let numbers = Case { shape: GQA, sinks: true, ..PLAIN }.numbers(5);
    let first = run(&npu, &numbers, &scratch).expect("runs").0;
    for i in 0..3 {
        run(&npu, &PLAIN.numbers(i), &scratch).expect("runs");
        let again = run(&npu, &numbers, &scratch).expect("runs").0;
        assert!(first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()));
    }
    let held = scratch.bytes();
    assert!(held > 0 && held < 3 * (20 << 20), "{held}");
}

/// A causal first micro-batch: nearly half of the work is void and left out.
#[test]
fn a_causal_mask_saves_work() {
    let shape = Shape { tokens: 1024, n_kv: 1024, heads: 3, kv_heads: 1, ..PLAIN.shape };
    let numbers = Case { shape, ..PLAIN }.numbers(3);
    let board = TestBoard::new(Config::default());
    let npu = open(&board, 2);
    let (out, outcome) = run(&npu, &numbers, &Scratch::default()).expect("runs");
    let share = outcome.skipped_macs as f64 / shape.macs() as f64;
    println!("{:.1} % of the work left out", share * 100.0);
    assert!((0.3..0.5).contains(&share));
    // A few rows: all of them take long.
    for row in [0, 1, 700, 1500, 3 * 1024 - 1] {
        let got = &out[row * shape.value..][..shape.value];
        for (got, want) in got.iter().zip(numbers.wanted(at(shape, row), Wrong::Nothing)) {
            assert!((f64::from(*got) - want.value).abs() <= want.bound, "row {row}");
        }
    }
}

/// What is no number is said, and not computed with; where nobody sees it, it does no harm.
#[test]
fn numbers_that_are_none() {
    let board = TestBoard::new(Config::default());
    let npu = open(&board, 2);
    let scratch = Scratch::default();
    let case = Case { shape: GQA, ..PLAIN };
    for bad in [f32::NAN, f32::INFINITY] {
        for (spoil, trouble) in [
            (0, Some(Trouble::QueryNotFinite)),
            (1, Some(Trouble::CacheNotFinite)),
            (2, Some(Trouble::CacheNotFinite)),
            (3, Some(Trouble::ResultNotFinite)),
        ] {
            let mut numbers = case.numbers(1);
            numbers.spoil(spoil, bad);
            let (_, outcome) = run(&npu, &numbers, &scratch).expect("runs");
            assert_eq!(outcome.trouble, trouble, "{spoil} {bad}");
        }
        // Position 0 is outside of every token's window.
        let mut numbers = Case { sees: Sees::Window(20), ..case }.numbers(1);
        numbers.spoil(1, bad);
        let (out, outcome) = run(&npu, &numbers, &scratch).expect("runs");
        assert_eq!(outcome.trouble, None);
        assert!(out.iter().all(|x| x.is_finite()));
    }
}
