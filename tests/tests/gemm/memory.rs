//! Resident weights: budget, memory errors, and the counts that make residency worth it.

use crate::{Case, board, open};
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Fp16, Npu, Options, Rows};
use rocket_runtime::plan::Shape;
use rocket_sim::{Call, Errno, Fault};

const SHAPE: Shape = Shape { m: 128, k: 576, n: 320 };

#[test]
fn the_budget_is_kept_and_given_back() {
    let case = Case::integers(SHAPE, 1);
    let rows = Rows::new(&case.w, SHAPE.n, SHAPE.k);
    let options = Options {
        workers: 2,
        budget: Some(1_000_000),
        drain_on_signals: false,
        ..Options::default()
    };
    let npu = Npu::open(&board(), options).expect("opens");
    let first = npu.pack(Fp16, &rows).expect("fits");
    assert!(
        first.bytes() >= (SHAPE.n * SHAPE.k * 2) as u64 && npu.budget().used() == first.bytes()
    );
    let second = npu.pack(Fp16, &rows).expect("fits");
    let words = npu.pack(Fp16, &rows).expect_err("does not fit").to_string();
    assert!(words.contains("budget"), "{words}");
    drop((first, second));
    assert_eq!(npu.budget().used(), 0);
}

#[test]
fn an_allocation_that_fails_loses_nothing() {
    let case = Case::integers(SHAPE, 2);
    let rows = Rows::new(&case.w, SHAPE.n, SHAPE.k);
    for n in 0..3 {
        let board = board();
        let npu = open(&board, 2);
        // Two guard pages were allocated when the files were opened.
        board.inject(Fault::Fail { call: Call::CreateBo, n: 2 + n, errno: Errno::ENOMEM });
        let packed = npu.pack(Fp16, &rows);
        assert_eq!(packed.is_err(), n < 2);
        drop(packed);
        assert_eq!(npu.budget().used(), 0);
        board.clear_faults();
        let (c, _) = case.run(&npu, true, Summation::OnChip).expect("runs");
        assert!(c.iter().zip(case.expected()).all(|(a, b)| f64::from(*a) == b));
    }
}

/// Resident weights are packed once and then only read: the second call syncs no weight bytes.
#[test]
fn resident_weights_are_flushed_once() {
    let case = Case::integers(SHAPE, 3);
    let board = board();
    let npu = open(&board, 1);
    let sync = |resident: bool| {
        case.run(&npu, resident, Summation::OnChip).expect("warms up");
        let rows = Rows::new(&case.w, SHAPE.n, SHAPE.k);
        let packed = npu.pack(Fp16, &rows).expect("fits");
        let before = board.counters();
        let a = rocket_runtime::matmul::Matrix::new(&case.a, SHAPE.m, SHAPE.k, SHAPE.k);
        let mut c = vec![0f32; SHAPE.m * SHAPE.n];
        let operand = match resident {
            true => rocket_runtime::matmul::Operand::Resident(&packed),
            false => rocket_runtime::matmul::Operand::Stream(Fp16, &rows),
        };
        npu.gemm(a, operand, &mut c, None, Summation::OnChip).expect("runs");
        (board.counters() - before).cpu_sync
    };
    let (resident, streamed) = (sync(true), sync(false));
    let weights = (SHAPE.n * SHAPE.k * 2) as u64;
    println!("bytes synced a call: resident {resident}, streamed {streamed}, weights {weights}");
    assert!(streamed >= resident + weights);
}

#[test]
fn operands_that_do_not_fit_together_are_refused_in_words() {
    let case = Case::integers(SHAPE, 4);
    let npu = open(&board(), 1);
    let other = open(&board(), 1);
    let rows = Rows::new(&case.w, SHAPE.n, SHAPE.k);
    let a = rocket_runtime::matmul::Matrix::new(&case.a, SHAPE.m, SHAPE.k, SHAPE.k);
    let stream = rocket_runtime::matmul::Operand::Stream(Fp16, &rows);
    let foreign = other.pack(Fp16, &rows).expect("packs");
    let mut c = vec![0f32; SHAPE.m * SHAPE.n];
    for (operand, len, scale, word) in [
        (stream, SHAPE.m * SHAPE.n - 1, None, "output"),
        (stream, SHAPE.m * SHAPE.n, Some(&[1.0f32][..]), "scale"),
        (
            rocket_runtime::matmul::Operand::Resident(&foreign),
            SHAPE.m * SHAPE.n,
            None,
            "another Npu",
        ),
    ] {
        let e = npu.gemm(a, operand, &mut c[..len], scale, Summation::OnChip).expect_err("refused");
        assert!(e.to_string().contains(word), "{e}");
    }
}
