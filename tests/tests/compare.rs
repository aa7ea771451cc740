//! Ours moves no more bytes and makes no more calls than the reference, on shapes small enough for
//! every run; and what the reference is set at is a real run of it: its product is right.

use proptest::prelude::*;
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::Shape;
use rocket_sim::{Arithmetic, Config, DriverProfile};
use rocket_tests::TestBoard;
use rocket_tests::compare::prefill::{MODELS, Prices, Side, VALUES};
use rocket_tests::compare::rows::KINDS;
use rocket_tests::compare::wholes::WHOLES;
use rocket_tests::compare::{Row, Setting, measure, table};
use rocket_tests::meter::Cost;
use rocket_tests::reference::{Data, Kind, Residency, Waits, replay, split};

/// One tile, several of each kind, edges on every side, a last tile of rows too low to accumulate.
const SMALL: [[usize; 3]; 8] = [
    [64, 256, 128],
    [64, 256, 256],
    [300, 2080, 400],
    [260, 1056, 272],
    [512, 1024, 1024],
    [512, 512, 1300],
    [700, 96, 60],
    [30, 4000, 1000],
];

const FP16: Kind = Kind::plain(DType::Fp16);

#[test]
fn ours_moves_no_more_and_submits_no_more() {
    for residency in [Residency::Resident, Residency::Streaming] {
        for driver in [DriverProfile::Stock, DriverProfile::Full] {
            let setting = Setting { residency, driver, ..Setting::default() };
            print!("{residency:?}, {} driver\n{}", driver.name(), table::head());
            for row in
                KINDS.iter().flat_map(|kind| SMALL.iter().map(|shape| Row::of(*shape, *kind)))
            {
                let pair = measure(&row, setting).expect("runs").expect("the reference takes it");
                print!("{}", table::lines(&row, &pair));
                let ours = pair.ours.expect("has a product");
                let reference = pair.reference;
                let sync = |c: &Cost| c.counters.cpu_sync;
                if row.shape.m < 64 {
                    // Few rows are nearly all weights, which nobody fetches twice. Ours has fewer
                    // and wider workers, whose tiles hold shorter K steps.
                    let all = |c: &Cost| c.dma() + sync(c);
                    assert!(all(&ours) <= all(&reference), "{row}, {residency:?}: bytes");
                } else {
                    assert!(ours.dma() <= reference.dma(), "{row}, {residency:?}: DMA");
                    assert!(sync(&ours) <= sync(&reference), "{row}, {residency:?}: sync");
                }
                assert!(ours.counters.submits <= reference.counters.submits, "{row}: submits");
                // A call that multiplies less than asked has moved less for nothing.
                let Shape { m, k, n } = row.shape;
                assert!(ours.counters.macs >= (m * k * n) as u64, "{row}: MACs");
            }
        }
    }
}

/// Nothing that is told depends on which worker's thread came first.
#[test]
fn a_measured_row_is_the_same_twice() {
    let row = Row::of([300, 2080, 400], FP16);
    let measured = || measure(&row, Setting::default()).expect("runs").expect("taken");
    let (first, second) = (measured(), measured());
    assert_eq!(first.reference, second.reference);
    let [a, b] = [first, second].map(|p| p.ours.expect("has a product"));
    assert_eq!(a.longest_job_ns, b.longest_job_ns);
    assert_eq!(a.busiest_core_ns, b.busiest_core_ns);
    assert_eq!(a.counters.cpu_sync, b.counters.cpu_sync);
    assert_eq!(a.dma(), b.dma());
}

fn features(m: usize, k: usize) -> i8 {
    ((m * 31 + k * 17 + m * k) % 5) as i8 - 2
}

fn weights(n: usize, k: usize) -> i8 {
    ((n * 13 + k * 7 + n * k) % 3) as i8 - 1
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 24,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    /// Whatever the kind, the shape, the workers and the waiting.
    #[test]
    fn reconstructed_runs_multiply_right(
        kind in prop::sample::select(KINDS.to_vec()),
        m in 1usize..600, k in 1usize..1500, n in 1usize..700, workers in 1usize..9,
        streaming: bool, queued: bool,
    ) {
        let residency = if streaming { Residency::Streaming } else { Residency::Resident };
        let waits = if queued { Waits::Last } else { Waits::Each };
        let shape = Shape { m, k, n };
        let padded = kind.padded(shape);
        let shares = split(kind, shape, workers, residency).expect("the grid is taken");
        prop_assert!(shares.len() <= workers);
        // Padding is zeros.
        let inside = |a: usize, b: usize, v: fn(usize, usize) -> i8, rows: usize| {
            if a < rows && b < k { v(a, b) } else { 0 }
        };
        let a = |r: usize, c: usize| inside(r, c, features, m);
        let w = |r: usize, c: usize| inside(r, c, weights, n);
        let data = Data { features: &a, weights: &w };
        let board = TestBoard::new(
            Config { arithmetic: Arithmetic::Fast, patient: true, ..Config::default() });
        let product = replay(&board, &shares, waits, Some(data), || ())
            .expect("runs")
            .expect("a product of data");
        // Sums of every column at once, row by row.
        for r in 0..padded.m {
            let mut sums = vec![0i64; padded.n];
            for c in (0..k).filter(|c| a(r, *c) != 0) {
                let x = i64::from(a(r, c));
                sums.iter_mut().enumerate().for_each(|(n, s)| *s += x * i64::from(w(n, c)));
            }
            let got = &product[r * padded.n..][..padded.n];
            let right = got.iter().zip(&sums).all(|(got, want)| *got == *want as f64);
            prop_assert!(right, "{} {:?} {:?}: row {}", kind, shape, shares[0].sequence.plan, r);
        }
        prop_assert_eq!(board.explanations(), []);
        let c = board.counters();
        prop_assert_eq!(c.macs, (padded.m * padded.k * padded.n) as u64);
        let jobs: usize = shares.iter().map(|s| s.sequence.jobs.len()).sum();
        prop_assert_eq!(c.jobs, jobs as u64);
        prop_assert!(c.submits == c.jobs || queued && c.submits < c.jobs);
    }
}

/// What is synced in the call, by hand: features, programs and each job's results, each with its
/// tail; and the weights when they are streamed.
#[test]
fn what_a_replayed_call_syncs() {
    const TAIL: u64 = 32_768;
    // One file, tiles of 256 x 512 x 128 (npu-rk3588 7.2): two K steps of 2 x 4 tiles.
    let shape = Shape { m: 512, k: 1024, n: 512 };
    let synced = |residency, waits| {
        let shares = split(FP16, shape, 1, residency).expect("taken");
        let board = TestBoard::new(Config {
            arithmetic: Arithmetic::Count,
            patient: true,
            ..Config::default()
        });
        let mut before = 0;
        replay(&board, &shares, waits, None, || before = board.counters().cpu_sync).expect("runs");
        board.counters().cpu_sync - before
    };
    let features = 512 * 1024 * 2 + TAIL;
    let weights = 512 * 1024 * 2 + TAIL;
    let programs = 16 * 1024 + TAIL;
    let results = 8 * 256 * 128 * 2 + TAIL;
    let resident = synced(Residency::Resident, Waits::Each);
    assert_eq!(resident, features + programs + 2 * results);
    assert_eq!(synced(Residency::Resident, Waits::Last), features + programs + results);
    assert_eq!(synced(Residency::Streaming, Waits::Each), resident + weights);
}

#[test]
fn the_table_is_markdown_of_at_most_120_columns() {
    let row = Row::of([1024, 15360, 16384], Kind::INT4_EXACT);
    let pair = measure(&Row::of(SMALL[0], FP16), Setting::default());
    let pair = pair.expect("runs").expect("taken");
    let text = table::head() + &table::lines(&row, &pair);
    let bars = |line: &str| line.matches('|').count();
    assert_eq!(text.lines().count(), 5);
    for line in text.lines() {
        assert!(line.len() <= 120 && bars(line) == 12, "{} columns: {line}", line.len());
    }
}

/// A prefill in micro-batches of 512 costs no more than the reference's in ones of 2048, in whatever
/// is counted; and the micro-batches matter: in the reference's own, it decodes four times as much.
#[test]
fn a_prefill_in_small_micro_batches_costs_no_more() {
    let mut prices = Prices::default();
    for name in ["SmolLM2-135M Q4", "Whisper base F16"] {
        let model = MODELS.iter().find(|m| m.name == name).expect("is in the table");
        for warm in [false, true] {
            let mut total = |side, ubatch| {
                prices.prefill(model, side, 2048, ubatch, warm).expect("is measured")
            };
            let (ours, reference) = (total(Side::Ours, 512), total(Side::Reference, 2048));
            for (what, unit, _, value) in VALUES {
                let pair = [&ours, &reference].map(|t| value(t) as f64 / unit);
                println!("{name}, warm {warm}, {what}: {pair:?}");
                assert!(value(&ours) <= value(&reference), "{name}, {what}: {pair:?}");
            }
            let small = total(Side::Reference, 512);
            assert_eq!(small.decoded, if model.quantized { 4 } else { 1 } * reference.decoded);
        }
    }
}

/// Weights and attention together: of attention alone a reference that submits all heads at once, in one
/// micro-batch, has fewer SUBMITs than any four micro-batches.
#[test]
fn a_whole_prefill_in_small_micro_batches_costs_no_more() {
    let mut prices = Prices::default();
    let attention = WHOLES.iter().find(|w| w.name == "Llama-3.2-3B attention").expect("is there");
    let parts = [(false, 2048), (true, 512)]
        .map(|(ours, ubatch)| attention.prefill(ours, 2048, ubatch).expect("is measured"));
    assert!(parts.iter().all(|t| t.dma > 0), "both sides take it");
    for model in MODELS.iter().filter(|m| attention.of.is_some_and(|of| m.name.starts_with(of))) {
        let [reference, ours] =
            [(Side::Reference, 2048), (Side::Ours, 512)].map(|(side, ubatch)| {
                let mut all =
                    prices.prefill(model, side, 2048, ubatch, false).expect("is measured");
                all.sum(&parts[usize::from(side == Side::Ours)], 1);
                all
            });
        for (what, unit, _, value) in VALUES {
            let pair = [&ours, &reference].map(|t| value(t) as f64 / unit);
            println!("{}, {what}: {pair:?}", model.name);
            assert!(value(&ours) <= value(&reference), "{}, {what}: {pair:?}", model.name);
        }
    }
}
