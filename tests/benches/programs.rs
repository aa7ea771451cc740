//! Speed of single programs on the simulated board, as a fraction of the GEMM crate it multiplies
//! with: an fp32 product of the same shape, both on one thread of the same run.
//!
//! `cargo bench -p rocket-tests --bench programs`. Nothing here is asserted: a busy machine is
//! slow, not wrong.

#[path = "../tests/vectors/bench.rs"]
mod bench;

use bench::Bench;
use half::{bf16, f16};
use ndarray::linalg::general_mat_mul;
use ndarray::{Array2, ArrayView2};
use rocket_runtime::dtype::DType;
use rocket_runtime::program::{MatmulTask, Reuse};
use rocket_sim::Arithmetic;
use std::time::Instant;

/// Programs of a job: so many that waking the core counts little.
const TASKS: usize = 16;
/// Alternating runs; the best of each.
const ROUNDS: usize = 15;

/// Operands as they lie in memory: small values of the dtype, of either sign.
fn operand(dtype: DType, values: usize) -> Vec<u8> {
    let small = |i: usize| (i * 7 % 251) as f32 / 256.0 - 0.5;
    match dtype {
        DType::Bf16 => (0..values).flat_map(|i| bf16::from_f32(small(i)).to_le_bytes()).collect(),
        DType::Tf32 => (0..values).flat_map(|i| small(i).to_le_bytes()).collect(),
        DType::Fp16 | DType::Fp16F32Out => {
            (0..values).flat_map(|i| f16::from_f32(small(i)).to_le_bytes()).collect()
        }
        _ => (0..values * dtype.info().bits / 8).map(|i| (i * 7 % 251) as u8).collect(),
    }
}

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn program(dtype: DType, [m, k, n]: [usize; 3]) {
    let info = dtype.info();
    let mut board = Bench::new(Arithmetic::Fast);
    let [input, weights, output, end] = [0x1000, 0x10_0000, 0x20_0000, 0x30_0000];
    for (iova, end) in [(input, weights), (weights, output), (output, end)] {
        board.place(iova, end);
    }
    board.write(input, &operand(dtype, m * k));
    board.write(weights, &operand(dtype, n * k));
    let task = MatmulTask {
        dtype,
        m: m as u32,
        k: k as u32,
        n: n as u32,
        input,
        weights,
        output,
        operand: None,
        reuse: Reuse::None,
    };
    let words: Vec<u64> = task.encode().expect("encodable").iter().map(|w| w.0).collect();

    board.run(&words, output);
    board.read(output, info.out_bytes);
    assert_eq!(board.board.explanations(), [], "a program that is not run would be fast");

    let wide = |len: usize| (0..len).map(|i| (i * 7 % 251) as f32).collect::<Vec<_>>();
    let (a, w) = (wide(m * k), wide(n * k));
    let a = ArrayView2::from_shape((m, k), &a).expect("shape");
    let w = ArrayView2::from_shape((n, k), &w).expect("shape");
    let mut c = Array2::zeros((m, n));
    let (mut crate_s, mut ours_s) = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        crate_s = crate_s.min(seconds(|| {
            for _ in 0..TASKS {
                general_mat_mul(1.0, &a, &w.t(), 0.0, &mut c);
            }
        }));
        ours_s = ours_s.min(seconds(|| {
            board.run_times(&words, output, TASKS);
            board.read(output, info.out_bytes);
        }));
    }
    let rate = |s: f64| (2 * m * k * n * TASKS) as f64 / s / 1e9;
    println!(
        "{:<44} {:>7.1} GOP/s, {:.2} of the GEMM crate's {:.1} in fp32",
        format!("simulated program {m}x{k}x{n}, {}", info.name),
        rate(ours_s),
        crate_s / ours_s,
        rate(crate_s)
    );
}

fn main() {
    for (dtype, shape) in [
        (DType::Fp16, [256, 384, 256]),
        (DType::Bf16, [256, 384, 256]),
        (DType::Int8, [256, 512, 256]),
        (DType::Int4, [256, 512, 256]),
        (DType::Tf32, [256, 192, 256]),
    ] {
        program(dtype, shape);
    }
}
