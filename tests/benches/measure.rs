//! Speed of the simulator as a fraction of a yardstick in the same run: the GEMM crate it
//! multiplies with. What the host does to operands is measured by rocket-runtime's own bench.
//!
//! `cargo bench -p rocket-tests --bench measure`; with `-- fit` the cost model against the
//! published figures instead, all modelled. Nothing here is asserted: a busy machine is slow, not
//! wrong.

use half::f16;
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2};
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Fp16, Matrix, Npu, Operand, Options, Rows};
use rocket_sim::{Arithmetic, Config, SimBoard};
use std::time::Instant;

/// Alternating runs; the best of each, so that both are seen undisturbed.
const ROUNDS: usize = 15;

/// Seconds of the yardstick and of the subject.
fn best_of(rounds: usize, mut yardstick: impl FnMut(), mut subject: impl FnMut()) -> (f64, f64) {
    let time = |f: &mut dyn FnMut()| {
        let start = Instant::now();
        f();
        start.elapsed().as_secs_f64()
    };
    (0..rounds).fold((f64::MAX, f64::MAX), |(a, b), _| {
        (a.min(time(&mut yardstick)), b.min(time(&mut subject)))
    })
}

fn values(n: usize) -> Vec<f16> {
    (0..n).map(|i| f16::from_f32((i % 251) as f32 / 256.0 - 0.5)).collect()
}

/// A product of resident weights through the whole stack, against the GEMM crate on the same
/// operands in fp32.
fn simulator([m, k, n]: [usize; 3], threads: usize) {
    let (a, w) = (values(m * k), values(n * k));
    let cores = threads.min(3);
    let config = Config { arithmetic: Arithmetic::Fast, cores, ..Config::default() };
    let options = Options { workers: threads, drain_on_signals: false, ..Options::default() };
    let npu = Npu::open(&SimBoard::new(config), options).expect("opens");
    let weights = npu.pack(Fp16, &Rows::new(&w, n, k)).expect("fits");
    let mut c = vec![0f32; m * n];

    let wide = |x: &[f16]| x.iter().map(|v| v.to_f32()).collect::<Vec<_>>();
    let (wide_a, wide_w) = (wide(&a), wide(&w));
    let a32 = ArrayView2::from_shape((m, k), &wide_a).expect("shape");
    let mut parts: Vec<(ArrayView2<'_, f32>, Array2<f32>)> = wide_w
        .chunks(n * k / threads)
        .map(|part| {
            let rows = part.len() / k;
            let view = ArrayView2::from_shape((rows, k), part).expect("shape");
            (view, Array2::zeros((m, rows)))
        })
        .collect();
    let rounds = if m * k * n < 1 << 31 { ROUNDS } else { 5 };
    let times = best_of(
        rounds,
        || {
            std::thread::scope(|scope| {
                for (w32, out) in &mut parts {
                    scope.spawn(|| general_mat_mul(1.0, &a32, &w32.t(), 0.0, out));
                }
            });
        },
        || {
            let a = Matrix::new(&a, m, k, k);
            let done = npu.gemm(a, Operand::Resident(&weights), &mut c, None, Summation::OnChip);
            done.expect("runs");
        },
    );
    let rate = |s: f64| 2.0 * (m * k * n) as f64 / s / 1e9;
    println!(
        "{:<44} {:>7.1} GFLOP/s ({:.3} s), {:.2} of the GEMM crate's {:.1}",
        format!("simulated GEMM {m}x{k}x{n}, {threads} thread(s)"),
        rate(times.1),
        times.1,
        times.0 / times.1,
        rate(times.0)
    );
}

fn main() {
    if std::env::args().any(|a| a == "fit") {
        print!("{}", rocket_sim::timing::table(&rocket_sim::timing::fit()));
        return;
    }
    for shape in [[512, 1536, 1536], [512, 3840, 4096]] {
        for threads in [1, 2] {
            simulator(shape, threads);
        }
    }
}
