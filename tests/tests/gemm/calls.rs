//! Each call of the driver that a product makes, failed in turn: the result is right or there is
//! an error in words, nothing leaks, and the next product is right.

use crate::Stream;
use rocket_runtime::matmul::{Int8, Matrix, Npu, Operand, Options, Rows};
use rocket_runtime::plan::Shape;
use rocket_sim::{Call, Config, DriverProfile, Errno, Fault};
use rocket_tests::TestBoard;
use std::time::Duration;

const SHAPE: Shape = Shape { m: 40, k: 600, n: 200 };

struct Product {
    a: Vec<i8>,
    w: Vec<i8>,
    want: Vec<i32>,
}

impl Product {
    fn new() -> Product {
        let Shape { m, k, n } = SHAPE;
        let mut s = Stream::new(8);
        let mut codes = |len| (0..len).map(|_| s.draw() as i8).collect::<Vec<_>>();
        let (a, w) = (codes(m * k), codes(n * k));
        let dot = |i: usize, j: usize| {
            let pairs = a[i * k..][..k].iter().zip(&w[j * k..][..k]);
            pairs.map(|(x, y)| i32::from(*x) * i32::from(*y)).sum::<i32>()
        };
        let want = (0..m * n).map(|x| dot(x / n, x % n)).collect();
        Product { a, w, want }
    }

    /// One product, packing included; false when the numbers are wrong.
    fn run(&self, npu: &Npu, resident: bool) -> rocket_runtime::Result<bool> {
        let Shape { m, k, n } = SHAPE;
        let rows = Rows::new(&self.w, n, k);
        let a = Matrix::new(&self.a, m, k, k);
        let mut c = vec![0; m * n];
        let format = Int8::default();
        if resident {
            let packed = npu.pack(format, &rows)?;
            npu.gemm_exact(a, Operand::Resident(&packed), &mut c)?;
        } else {
            npu.gemm_exact(a, Operand::Stream(format, &rows), &mut c)?;
        }
        Ok(c == self.want)
    }
}

fn open(board: &TestBoard) -> rocket_runtime::Result<Npu> {
    // Several jobs a worker, so that there is a middle to lose.
    let job_time = Duration::from_micros(400);
    let options = Options { workers: 2, drain_on_signals: false, job_time, ..Options::default() };
    Npu::open(board, options)
}

#[test]
fn any_call_may_fail() {
    let product = Product::new();
    let config =
        |profile| Config { profile, timeout: Duration::from_millis(20), ..Config::default() };
    let (mut right, mut errors) = (0, 0);
    for profile in [DriverProfile::Stock, DriverProfile::Full] {
        for resident in [false, true] {
            for call in Call::ALL {
                for n in 0.. {
                    let board = TestBoard::new(config(profile));
                    board.inject(Fault::Fail { call, n, errno: Errno::ENOMEM });
                    let npu = open(&board);
                    let done = match &npu {
                        Ok(npu) => product.run(npu, resident).map_err(|e| e.to_string()),
                        Err(e) => Err(e.to_string()),
                    };
                    let met = board.counters().faults;
                    match done {
                        Ok(good) => {
                            assert!(good, "wrong numbers after {call:?} {n} failed");
                            right += 1;
                        }
                        Err(words) => {
                            assert!(words.contains(' '), "{call:?} {n}: {words:?}");
                            errors += 1;
                        }
                    }
                    // The same Npu, or one that can be opened now, goes on.
                    board.clear_faults();
                    let npu = npu.or_else(|_| open(&board)).expect("opens");
                    assert!(product.run(&npu, resident).expect("runs"), "{call:?} {n}: poisoned");
                    drop(npu);
                    let left = board.alive();
                    assert_eq!((left.files, left.buffers, left.jobs), (0, 0, 0), "{call:?} {n}");
                    assert_eq!(board.counters().closed_with_jobs_in_flight, 0);
                    if met == 0 {
                        break;
                    }
                }
            }
        }
    }
    println!("{right} right, {errors} refused in words, none wrong");
    assert!(right > 10 && errors > 40);
}
