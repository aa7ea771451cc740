//! Many products at once: each whole on one worker, several in one SUBMIT.

use crate::{Case, Stream, board, open};
use rocket_runtime::Error;
use rocket_runtime::matmul::{
    Fp16, Int8, Lane, Matrix, Npu, Operand, Options, Product, Resident, Rows, Scales, Stats,
    Summation, Together,
};
use rocket_runtime::plan::Shape;
use rocket_sim::{Call, Config, DriverProfile, Errno, Fault};
use rocket_tests::TestBoard;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Off the grids, several K steps, one row, many columns.
const SHAPES: [Shape; 5] = [
    Shape { m: 40, k: 600, n: 200 },
    Shape { m: 1, k: 64, n: 64 },
    Shape { m: 257, k: 96, n: 33 },
    Shape { m: 12, k: 2560, n: 272 },
    Shape { m: 5, k: 31, n: 900 },
];

/// Sixteen products of whole numbers: any order of adding is exact.
fn cases() -> Vec<Case> {
    (0..16).map(|i| Case::integers(SHAPES[i % SHAPES.len()], i as u64)).collect()
}

fn matrix(case: &Case) -> Matrix<'_> {
    let Shape { m, k, .. } = case.shape;
    Matrix::new(&case.a, m, k, k)
}

fn rows(case: &Case) -> Rows<'_, half::f16> {
    Rows::new(&case.w, case.shape.n, case.shape.k)
}

/// Runs `cases` on this lane; NaN shows what nobody wrote.
fn run(
    lane: &mut Lane<'_>,
    cases: &[(&Case, Option<&Resident>)],
) -> rocket_runtime::Result<(Vec<Vec<f32>>, Stats)> {
    let sources: Vec<_> = cases.iter().map(|(c, _)| rows(c)).collect();
    let mut outs: Vec<Vec<f32>> =
        cases.iter().map(|(c, _)| vec![f32::NAN; c.shape.m * c.shape.n]).collect();
    let mut products = Vec::new();
    for (((case, packed), source), out) in cases.iter().zip(&sources).zip(&mut outs) {
        let w = packed.map_or(Operand::Stream(Fp16, source), Operand::Resident);
        products.push(Product::fp16(matrix(case), w, out, None, Summation::Host)?);
    }
    let stats = lane.run(&mut products)?;
    drop(products);
    Ok((outs, stats))
}

fn right(case: &Case, out: &[f32]) -> bool {
    out.iter().zip(case.expected()).all(|(ours, want)| f64::from(*ours) == want)
}

/// Each lane takes the next product until none is left.
#[test]
fn streamed_products_are_right_whoever_runs_them() {
    let cases = cases();
    for workers in [1, 2, 5] {
        let npu = open(&board(), workers);
        let next = AtomicUsize::new(0);
        let by_lane = npu
            .lanes(|lane| {
                assert_eq!(lane.count(), workers);
                let mut done = Vec::new();
                loop {
                    let i = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(i) else { return Ok((lane.index(), done)) };
                    let (mut outs, stats) = run(lane, &[(case, None)])?;
                    assert_eq!(stats.workers, 1);
                    done.push((i, outs.remove(0)));
                }
            })
            .unwrap();
        let indices: Vec<usize> = by_lane.iter().map(|(i, _)| *i).collect();
        assert_eq!(indices, (0..workers).collect::<Vec<_>>());
        let mut all: Vec<_> = by_lane.into_iter().flat_map(|(_, done)| done).collect();
        all.sort_by_key(|(i, _)| *i);
        assert_eq!(all.len(), cases.len());
        assert!(all.iter().all(|(i, out)| right(&cases[*i], out)));
        // The Npu goes on as before.
        let (c, _) = cases[0].run(&npu, true, Summation::OnChip).unwrap();
        assert!(right(&cases[0], &c));
    }
}

/// What fits runs in one SUBMIT; every result and count is that of the products run singly.
#[test]
fn products_share_a_submit() {
    let cases = cases();
    let board = board();
    let npu = open(&board, 1);
    let all: Vec<_> = cases.iter().map(|c| (c, None)).collect();
    let singly: Vec<Stats> = npu
        .lanes(|lane| all.iter().map(|c| Ok(run(lane, &[*c])?.1)).collect::<Result<Vec<_>, _>>())
        .unwrap()
        .remove(0);
    let before = board.counters();
    let (outs, stats) = npu.lanes(|lane| run(lane, &all)).unwrap().remove(0);
    let after = board.counters();
    assert!(cases.iter().zip(&outs).all(|(c, out)| right(c, out)));
    let sum = |f: fn(&Stats) -> u64| singly.iter().map(f).sum::<u64>();
    assert_eq!(stats.executed_macs, sum(|s| s.executed_macs));
    assert_eq!(stats.padding_macs, sum(|s| s.padding_macs));
    assert_eq!((stats.jobs, stats.tasks), (sum(|s| s.jobs), sum(|s| s.tasks)));
    assert_eq!(after.macs - before.macs, stats.executed_macs);
    assert_eq!(sum(|s| s.submits), 16);
    assert_eq!((stats.submits, after.submits - before.submits), (1, 1));
}

/// More than a SUBMIT's buffers, and one product that takes several of its own.
#[test]
fn large_products_are_cut_into_several_submits() {
    let shape = Shape { m: 512, k: 64, n: 4096 };
    let cases: Vec<Case> = (0..6).map(|i| Case::integers(shape, i)).collect();
    let npu = open(&board(), 1);
    let all: Vec<_> = cases.iter().map(|c| (c, None)).collect();
    let (outs, stats) = npu.lanes(|lane| run(lane, &all)).unwrap().remove(0);
    assert!(cases.iter().zip(&outs).all(|(c, out)| right(c, out)));
    assert!((2..=6).contains(&stats.submits), "{stats:?}");
}

/// Packed whole, a weight is on one lane, and others refuse it.
#[test]
fn resident_weights_run_where_they_lie() {
    let cases = cases();
    let npu = open(&board(), 3);
    let packed: Vec<Resident> =
        cases.iter().map(|c| npu.pack_whole(64, Fp16, &rows(c)).unwrap()).collect();
    let lanes: Vec<usize> = packed.iter().map(|p| p.lane().unwrap()).collect();
    for lane in 0..3 {
        assert!(lanes.iter().filter(|l| **l == lane).count() >= 4, "{lanes:?}");
    }
    let mut outs: Vec<Vec<f32>> = npu
        .lanes(|lane| {
            let mine: Vec<_> = cases
                .iter()
                .zip(&packed)
                .filter(|(_, p)| p.lane() == Some(lane.index()))
                .map(|(c, p)| (c, Some(p)))
                .collect();
            Ok(run(lane, &mine)?.0)
        })
        .unwrap()
        .concat();
    let mut order: Vec<usize> = (0..cases.len()).collect();
    order.sort_by_key(|i| lanes[*i]);
    for i in order {
        assert!(right(&cases[i], &outs.remove(0)), "product {i}");
    }
    let everywhere = npu.pack(Fp16, &rows(&cases[0])).unwrap();
    assert_eq!(everywhere.lane(), None);
    for wrong in [&everywhere, &packed[lanes.iter().position(|l| *l != 0).unwrap()]] {
        let refused = npu.lanes(|lane| match lane.index() {
            0 => run(lane, &[(&cases[0], Some(wrong)), (&cases[1], None)]).map(|_| ()),
            _ => Ok(()),
        });
        assert!(
            matches!(refused, Err(Error::Unusable { .. } | Error::Shape { .. })),
            "{refused:?}"
        );
    }
}

/// Sums of int8 codes times their scales, as `gemm_scaled` has them to the bit.
#[test]
fn scaled_products_equal_those_of_a_gemm() {
    let Shape { m, k, n } = Shape { m: 70, k: 600, n: 130 };
    let format = Int8 { group: Some(96) };
    let groups = k.div_ceil(96);
    let mut s = Stream::new(4);
    let mut codes = |len: usize| (0..len).map(|_| s.draw() as i8).collect::<Vec<_>>();
    let (a, w) = (codes(m * k), codes(n * k));
    let mut scale = |len: usize| (0..len).map(|_| (s.draw() % 97 + 1) as f32 / 64.0).collect();
    let (row, column): (Vec<f32>, Vec<f32>) = (scale(groups * m), scale(groups * n));
    let scales = Scales { rows: &row, columns: &column };
    let npu = open(&board(), 2);
    let (matrix, source) = (Matrix::new(&a, m, k, k), Rows::new(&w, n, k));
    let mut want = vec![f32::NAN; m * n];
    npu.gemm_scaled(matrix, Operand::Stream(format, &source), scales, &mut want).unwrap();
    assert!(want.iter().all(|x| x.is_finite()) && want.iter().any(|x| *x != 0.0));
    let packed = npu.pack_whole(m, format, &source).unwrap();
    for w in [Operand::Stream(format, &source), Operand::Resident(&packed)] {
        let outs = npu
            .lanes(|lane| {
                let mut out = vec![f32::NAN; m * n];
                if Some(lane.index()) == packed.lane() {
                    lane.run(&mut [Product::scaled(matrix, w, scales, &mut out)?])?;
                }
                Ok(out)
            })
            .unwrap();
        assert_eq!(outs[packed.lane().unwrap()], want);
    }
    // A scale too few is refused before anything runs.
    let short = Scales { rows: &row[1..], columns: &column };
    let mut out = vec![0.0; m * n];
    let stream = Operand::Stream(format, &source);
    assert!(matches!(Product::scaled(matrix, stream, short, &mut out), Err(Error::Shape { .. })));
}

#[test]
fn a_closure_that_fails_or_panics_ends_in_words() {
    let npu = open(&board(), 3);
    let failed = npu.lanes(|lane| match lane.index() {
        1 => Err(Error::Unusable { why: "as the test wants".into() }),
        _ => Ok(()),
    });
    assert!(failed.unwrap_err().to_string().contains("as the test wants"));
    let panicked = npu.lanes(|lane| {
        assert!(lane.index() != 2, "on purpose");
        Ok(())
    });
    assert!(panicked.unwrap_err().to_string().contains("panicked"));
    let case = &cases()[0];
    assert!(right(case, &case.run(&npu, false, Summation::Host).unwrap().0));
}

fn small(board: &TestBoard) -> rocket_runtime::Result<Npu> {
    let options = Options { workers: 1, drain_on_signals: false, ..Options::default() };
    Npu::open(board, options)
}

/// Any one job of a SUBMIT is lost, and then its second try as well.
#[test]
fn a_lost_job_of_a_shared_submit_is_run_again() {
    let cases = &cases()[..5];
    let all: Vec<_> = cases.iter().map(|c| (c, None)).collect();
    let (mut repaired, mut refused) = (0, 0);
    for lost in 0..5u64 {
        for again in [false, true] {
            let config = Config { timeout: Duration::from_millis(20), ..Config::default() };
            let board = TestBoard::new(config);
            let npu = small(&board).unwrap();
            board.inject(Fault::DropJob(lost));
            if again {
                // The retry follows the five.
                board.inject(Fault::DropJob(5));
            }
            match npu.lanes(|lane| run(lane, &all)) {
                Ok(mut done) => {
                    let (outs, stats) = done.remove(0);
                    assert!(cases.iter().zip(&outs).all(|(c, out)| right(c, out)), "job {lost}");
                    assert_eq!(stats.retries, 1);
                    repaired += 1;
                }
                Err(e) => {
                    assert!(again && e.to_string().contains("job"), "{e}");
                    refused += 1;
                }
            }
        }
    }
    println!("{repaired} repaired, {refused} refused in words, none wrong");
    assert_eq!((repaired, refused), (5, 5));
}

/// Each call of the driver fails in turn.
#[test]
fn any_call_of_a_shared_submit_may_fail() {
    let cases = &cases()[..3];
    let (mut good, mut errors) = (0, 0);
    for profile in [DriverProfile::Stock, DriverProfile::Full] {
        for call in Call::ALL {
            for n in 0.. {
                let timeout = Duration::from_millis(20);
                let board = TestBoard::new(Config { profile, timeout, ..Config::default() });
                board.inject(Fault::Fail { call, n, errno: Errno::ENOMEM });
                let attempt = |npu: &Npu| {
                    let packed = npu.pack_whole(40, Fp16, &rows(&cases[0]))?;
                    let all: Vec<_> = cases
                        .iter()
                        .enumerate()
                        .map(|(i, c)| (c, (i == 0).then_some(&packed)))
                        .collect();
                    let outs = npu.lanes(|lane| run(lane, &all))?.remove(0).0;
                    Ok::<bool, Error>(cases.iter().zip(&outs).all(|(c, out)| right(c, out)))
                };
                let npu = small(&board);
                let done = npu.as_ref().map_err(ToString::to_string);
                match done.and_then(|npu| attempt(npu).map_err(|e| e.to_string())) {
                    Ok(fine) => {
                        assert!(fine, "wrong numbers after {call:?} {n} failed");
                        good += 1;
                    }
                    Err(words) => {
                        assert!(words.contains(' '), "{call:?} {n}: {words:?}");
                        errors += 1;
                    }
                }
                let met = board.counters().faults;
                board.clear_faults();
                let npu = npu.or_else(|_| small(&board)).expect("opens");
                assert!(attempt(&npu).expect("runs"), "{call:?} {n}: poisoned");
                drop(npu);
                let left = board.alive();
                assert_eq!((left.files, left.buffers, left.jobs), (0, 0, 0), "{call:?} {n}");
                if met == 0 {
                    break;
                }
            }
        }
    }
    println!("{good} right, {errors} refused in words, none wrong");
    assert!(good > 10 && errors > 40);
}

/// Projections of one activation: the results and MACs of single calls to the bit, the activations
/// packed once, and a SUBMIT a worker for all of them.
#[test]
fn projections_together_equal_single_products() {
    let (m, k) = (100, 600);
    let cases: Vec<Case> =
        [200, 200, 64].iter().map(|&n| Case::reals(Shape { m, k, n }, n as u64)).collect();
    let a = Matrix::new(&cases[0].a, m, k, k);
    let scale: Vec<f32> = (0..m).map(|i| (i % 7 + 1) as f32).collect();
    for workers in [1, 2, 5] {
        let board = board();
        let npu = open(&board, workers);
        let packed: Vec<Resident> =
            cases.iter().map(|c| npu.pack(Fp16, &rows(c)).unwrap()).collect();
        let singly = board.counters();
        let mut want: Vec<Vec<f32>> = Vec::new();
        let mut stats = Vec::new();
        for w in &packed {
            let mut out = vec![f32::NAN; m * w.n()];
            let w = Operand::Resident(w);
            stats.push(npu.gemm(a, w, &mut out, Some(&scale), Summation::OnChip).unwrap());
            want.push(out);
        }
        let before = board.counters();
        let mut outs: Vec<Vec<f32>> = packed.iter().map(|w| vec![f32::NAN; m * w.n()]).collect();
        let mut products: Vec<Together<'_>> =
            packed.iter().zip(&mut outs).map(|(w, out)| Together { w, out }).collect();
        let got = npu.gemm_together(a, &mut products, Some(&scale), Summation::OnChip).unwrap();
        let after = board.counters();
        assert_eq!(outs, want, "{workers} workers");
        for (one, other) in got.iter().zip(&stats) {
            assert_eq!(one.executed_macs, other.executed_macs);
            assert_eq!(one.padding_macs, other.padding_macs);
        }
        let sum = |list: &[Stats], f: fn(&Stats) -> u64| list.iter().map(f).sum::<u64>();
        assert_eq!(sum(&got, |s| s.tasks), sum(&stats, |s| s.tasks));
        let files = sum(&stats, |s| s.submits);
        let together = sum(&got, |s| s.submits);
        assert_eq!(after.submits - before.submits, together);
        assert_eq!(together, workers.min(3) as u64);
        assert!(files > together);
        let (one, three) = (after.cpu_sync - before.cpu_sync, before.cpu_sync - singly.cpu_sync);
        assert!(one < three, "{one} bytes synchronised, singly {three}");
    }
}

/// Refused as single products are; nothing runs.
#[test]
fn projections_that_do_not_fit_together_are_refused() {
    let npu = open(&board(), 2);
    let other = open(&board(), 2);
    let case = Case::reals(Shape { m: 8, k: 64, n: 64 }, 1);
    let (w, foreign) = (npu.pack(Fp16, &rows(&case)), other.pack(Fp16, &rows(&case)));
    let (w, foreign) = (w.unwrap(), foreign.unwrap());
    let go = |second: &Resident, len: usize, scale: &[f32]| {
        let mut outs = [vec![0f32; 8 * 64], vec![0f32; len]];
        let [a, b] = &mut outs;
        let mut products = [Together { w: &w, out: a }, Together { w: second, out: b }];
        npu.gemm_together(matrix(&case), &mut products, Some(scale), Summation::OnChip).map(drop)
    };
    assert!(go(&w, 8 * 64, &[1.0; 8]).is_ok());
    assert!(matches!(go(&w, 8 * 63, &[1.0; 8]), Err(Error::Shape { .. })));
    assert!(matches!(go(&w, 8 * 64, &[1.0; 7]), Err(Error::Shape { .. })));
    assert!(matches!(go(&foreign, 8 * 64, &[1.0; 8]), Err(Error::Unusable { .. })));
}
