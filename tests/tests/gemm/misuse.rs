//! What a caller can get wrong: an error in words that name the mistake, no panic, and the Npu goes
//! on.

use crate::{Case, Stream, board, open};
use half::f16;
use rocket_runtime::matmul::{
    Bf16, Format, Fp16, Int4, Int8, Matrix, Npu, Operand, Options, Rows, Scales, Summation, Tf32,
    Weights,
};
use rocket_runtime::plan::Shape;
use rocket_runtime::{Error, Result};
use std::fmt::Debug;
use std::time::Duration;

/// Weights of which nothing lies in memory.
#[derive(Debug)]
struct Claimed {
    n: usize,
    k: usize,
}

impl<E: bytemuck::Zeroable + Clone> Weights<E> for Claimed {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, _: usize, dst: &mut [E]) {
        dst.fill(E::zeroed());
    }
}

/// Refused as a shape, in words that hold each of `words`.
fn refused<T: Debug>(done: Result<T>, words: &[&str]) {
    let e = done.expect_err("must be refused");
    assert!(matches!(e, Error::Shape { .. }), "{e}");
    let text = e.to_string();
    assert!(words.iter().all(|w| text.contains(w)), "{words:?} in {text:?}");
}

const INT4: Int4 = Int4 { full: true, group: None };

/// No dimension can be nothing, or beyond what the planner admits; nor is anything of that size
/// asked for.
#[test]
fn sizes_out_of_range_are_refused() {
    let npu = open(&board(), 2);
    fn pack<F: Format>(npu: &Npu, format: F, n: usize, k: usize)
    where
        F::Element: Clone,
    {
        refused(npu.pack(format, &Claimed { n, k }), &["2^24"]);
    }
    let beyond = [(1 << 24) + 1, 1 << 40, usize::MAX];
    for (n, k) in beyond.map(|k| (1, k)).into_iter().chain([(0, 64), (3, 0), (usize::MAX, 8)]) {
        pack(&npu, Fp16, n, k);
        pack(&npu, Bf16, n, k);
        pack(&npu, Tf32, n, k);
        pack(&npu, Int8::default(), n, k);
        pack(&npu, INT4, n, k);
        refused(npu.pack_i16(&Claimed { n, k }), &["2^24"]);
    }
    assert_eq!(npu.budget().used(), 0);
    // The words are about the caller's sizes, not those of the halves.
    let a = [1i16; 64];
    let call = |a: Matrix<'_, i16>, n, k, len| {
        npu.gemm_i16_streamed(a, &Claimed { n, k }, &mut vec![0; len])
    };
    refused(call(Matrix::new(&a, 1, 64, 64), 2, 32, 2), &["M = 1,", "N = 2", "K = 32"]);
    let stream = Operand::Stream(INT4, &Claimed { n: usize::MAX, k: 64 });
    let row = [1i8; 64];
    refused(npu.gemm_exact(Matrix::new(&row, 1, 64, 64), stream, &mut [0]), &["2^24"]);
    refused(call(Matrix::new(&a, 1, 64, 64), 2, 64, 1), &["N = 2", "holds 1"]);
    refused(call(Matrix::new(&a, 1, 64, 64), usize::MAX, 64, 1), &["holds 1"]);
    refused(call(Matrix::new(&a, 0, 64, 64), 2, 64, 0), &["M = 0", "at least 1"]);
    refused(call(Matrix::new(&a, usize::MAX, 0, 0), 1, 0, 1), &["M = 18446744073709551615"]);
    let long = vec![1i16; 131_072];
    let long = Matrix::new(&long, 1, 131_072, 131_072);
    refused(call(long, 1, 131_072, 1), &["M = 1,", "131071"]);
}

/// A group may be longer than K, however much; else it is whole blocks of 32.
#[test]
fn groups_of_any_length() {
    let npu = open(&board(), 1);
    let mut stream = Stream::new(5);
    let (m, k, n) = (3, 70, 5);
    let mut codes = |len| -> Vec<i8> { (0..len).map(|_| stream.draw() as i8).collect() };
    let (a, w) = (codes(m * k), codes(n * k));
    let rows = Rows::new(&w, n, k);
    let a_op = Matrix::new(&a, m, k, k);
    let call = |group: usize, groups: usize| {
        let operand = Operand::Stream(Int8 { group: Some(group) }, &rows);
        let ones = vec![1.0; groups * n];
        let scales = Scales { rows: &ones[..groups * m], columns: &ones };
        let mut c = vec![f32::NAN; m * n];
        npu.gemm_scaled(a_op, operand, scales, &mut c).map(|_| c)
    };
    let dot = |x: usize| -> f32 {
        let pairs = a[x / n * k..][..k].iter().zip(&w[x % n * k..][..k]);
        pairs.map(|(a, w)| i32::from(*a) * i32::from(*w)).sum::<i32>() as f32
    };
    let want: Vec<f32> = (0..m * n).map(dot).collect();
    for group in [32, 64, 70, 71, 96, usize::MAX - 31, usize::MAX] {
        assert_eq!(call(group, k.div_ceil(group)).expect("fits"), want, "groups of {group}");
    }
    for group in [0, 1, 31, 33, 69] {
        refused(call(group, k.div_ceil(group.max(1))), &["multiple of 32"]);
    }
}

/// NaN and infinity come out where IEEE has them, with no job taken for lost: also the NaN that a
/// missing result is known by.
#[test]
fn nan_and_infinity_are_values() {
    let npu = open(&board(), 1);
    let case = Case::integers(Shape { m: 5, k: 70, n: 20 }, 4);
    let (k, n) = (70, 20);
    for bits in [0x7e00, 0xfda5, 0x7c01, 0x7c00, 0xfc00] {
        for summation in [Summation::OnChip, Summation::Host] {
            let mut a = case.a.clone();
            a[2 * k + 3] = f16::from_bits(bits);
            let want = Case { shape: case.shape, a: a.clone(), w: case.w.clone() }.expected();
            let mut c = vec![0f32; want.len()];
            let w = Rows::new(&case.w, n, k);
            let a = Matrix::new(&a, 5, k, k);
            let stats = npu.gemm(a, Operand::Stream(Fp16, &w), &mut c, None, summation);
            assert_eq!(stats.expect("runs").retries, 0, "{bits:#x}");
            let same = |c: f32, w: f64| f64::from(c) == w || c.is_nan() && w.is_nan();
            assert!(c.iter().zip(&want).all(|(c, w)| same(*c, *w)), "{bits:#x}, {summation:?}");
            assert!(want[2 * n..3 * n].iter().any(|x| !x.is_finite()), "the case says nothing");
        }
    }
}

/// Weights of one Npu are refused by every other, whatever its workers; their own takes them.
#[test]
fn weights_of_another_npu_are_refused() {
    let board = board();
    let case = Case::integers(Shape { m: 4, k: 64, n: 64 }, 6);
    for (mine, other) in [(2, 2), (2, 1), (1, 3)] {
        let (mine, other) = (open(&board, mine), open(&board, other));
        let weights = mine.pack(Fp16, &Rows::new(&case.w, 64, 64)).expect("packs");
        let call = |npu: &Npu| {
            let (a, mut c) = (Matrix::new(&case.a, 4, 64, 64), vec![0f32; 256]);
            npu.gemm(a, Operand::Resident(&weights), &mut c, None, Summation::OnChip).map(|_| c)
        };
        let e = call(&other).expect_err("addresses of other files");
        assert!(
            matches!(e, Error::Unusable { .. }) && e.to_string().contains("another Npu"),
            "{e}"
        );
        let c = call(&mine).expect("runs");
        assert!(c.iter().zip(case.expected()).all(|(c, w)| f64::from(*c) == w));
        drop((mine, other));
        // Weights keep the files open that they lie on, and no others.
        assert!(board.alive().files > 0);
        drop(weights);
        let left = board.alive();
        assert_eq!((left.files, left.buffers), (0, 0));
    }
}

#[test]
fn one_weight_serves_many_threads() {
    let npu = open(&board(), 2);
    let shape = |m| Shape { m, k: 64, n: 200 };
    let cases: Vec<Case> = (1..7).map(|m| Case::integers(shape(m), 1)).collect();
    let w = Case::integers(shape(9), 2).w;
    let weights = npu.pack(Fp16, &Rows::new(&w, 200, 64)).expect("packs");
    std::thread::scope(|scope| {
        for case in cases {
            let (npu, weights, w) = (&npu, &weights, w.clone());
            scope.spawn(move || {
                let m = case.shape.m;
                let case = Case { w, ..case };
                let want = case.expected();
                for _ in 0..5 {
                    let (a, mut c) = (Matrix::new(&case.a, m, 64, 64), vec![f32::NAN; m * 200]);
                    let w = Operand::Resident(weights);
                    npu.gemm(a, w, &mut c, None, Summation::OnChip).expect("runs");
                    assert!(c.iter().zip(&want).all(|(c, w)| f64::from(*c) == *w));
                }
            });
        }
    });
}

/// Weights whose source fails half way.
#[derive(Debug)]
struct Broken;

impl Weights<i8> for Broken {
    fn n(&self) -> usize {
        70
    }

    fn k(&self) -> usize {
        64
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        assert!(n < 40, "a row that cannot be decoded");
        dst.fill(1);
    }
}

#[test]
fn a_source_that_panics_spoils_its_own_call_only() {
    let npu = open(&board(), 2);
    let (a, mut c) = ([1i8; 64], [0i32; 70]);
    let a = Matrix::new(&a, 1, 64, 64);
    let unusable = |e: Error| assert!(matches!(e, Error::Unusable { .. }), "{e}");
    unusable(npu.pack(Int8::default(), &Broken).expect_err("packs nothing"));
    let stream = Operand::Stream(Int8::default(), &Broken);
    unusable(npu.gemm_exact(a, stream, &mut c).expect_err("has no weights"));
    assert_eq!(npu.budget().used(), 0);
    let good = vec![1i8; 70 * 64];
    let rows = Rows::new(&good, 70, 64);
    npu.gemm_exact(a, Operand::Stream(Int8::default(), &rows), &mut c).expect("runs");
    assert_eq!(c, [64; 70]);
}

/// Options at and beyond their ends work: they are limits, and a number of files.
#[test]
fn options_beyond_their_ends_work() {
    let case = Case::integers(Shape { m: 40, k: 300, n: 500 }, 3);
    for (workers, files) in [(0, 1), (1, 1), (8, 8), (99, 8)] {
        let job_time = if workers == 1 { Duration::MAX } else { Duration::ZERO };
        let board = board();
        let options = Options {
            workers,
            job_time,
            cores: Some(if workers == 1 { vec![4000] } else { vec![] }),
            drain_on_signals: false,
            ..Options::default()
        };
        let npu = Npu::open(&board, options).expect("opens");
        assert_eq!(board.alive().files, files);
        let (c, stats) = case.run(&npu, true, Summation::OnChip).expect("runs");
        assert!(c.iter().zip(case.expected()).all(|(c, w)| f64::from(*c) == w));
        assert!(workers == 1 || stats.jobs == stats.tasks, "{stats:?}");
    }
}
