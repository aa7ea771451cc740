//! gemm: products by `rocket-runtime` through the kernel's driver, compared with the same by this
//! program. Prints lines "check NAME VALUE" for tests/vm/run.

use anyhow::{Context, Result};
use half::f16;
use rocket_runtime::device::{Board, KernelBoard};
use rocket_runtime::matmul::{Fp16, Int8, Matrix, Npu, Operand, Options, Rows, Stats, Summation};
use rocket_vm::{HANG, STATUS, Status};
use std::path::Path;

/// On three cores a job is about 32 x 256 x 64: an emulated core needs a fifth of the driver's limit for it.
const M: usize = 32;
const K: usize = 256;
const N: usize = 192;
const WORKERS: usize = 3;
/// The driver's limit (kernel-and-uapi B.1).
const LIMIT_MS: u64 = 500;

/// Of -4 ..= 4, without a pattern that a misplaced row would repeat.
fn draw(len: usize, seed: u64) -> Vec<i8> {
    let mut x = seed;
    let next = || {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((x >> 33) % 9) as i8 - 4
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// The product in integers.
fn reference(a: &[i8], w: &[i8]) -> Vec<i64> {
    let dot = |m: usize, n: usize| -> i64 {
        let pairs = a[m * K..][..K].iter().zip(&w[n * K..][..K]);
        pairs.map(|(a, w)| i64::from(*a) * i64::from(*w)).sum()
    };
    (0..M * N).map(|x| dot(x / N, x % N)).collect()
}

/// How many elements are wrong, in words.
fn verdict(wrong: usize) -> String {
    if wrong == 0 { "equal".into() } else { format!("{wrong} of {} wrong", M * N) }
}

/// Codes in quarters: every product and sum is exact in fp16, fp32 and integers alike.
fn fp16(npu: &Npu, seed: u64) -> Result<(String, Stats)> {
    let (a, w) = (draw(M * K, seed), draw(N * K, seed + 1));
    let quarters = |codes: &[i8]| -> Vec<f16> {
        codes.iter().map(|c| f16::from_f32(f32::from(*c) / 4.0)).collect()
    };
    let (a16, w16) = (quarters(&a), quarters(&w));
    let mut c = vec![f32::NAN; M * N];
    let weights = npu.pack(Fp16, &Rows::new(&w16, N, K))?;
    let a16 = Matrix::new(&a16, M, K, K);
    let stats = npu.gemm(a16, Operand::Resident(&weights), &mut c, None, Summation::OnChip)?;
    let want = reference(&a, &w);
    let wrong = c.iter().zip(want).filter(|(c, want)| **c != *want as f32 / 16.0).count();
    Ok((verdict(wrong), stats))
}

fn int8(npu: &Npu, seed: u64) -> Result<(String, Stats)> {
    // The whole range.
    let wide = |codes: Vec<i8>| -> Vec<i8> { codes.iter().map(|c| c.saturating_mul(32)).collect() };
    let (a, w) = (wide(draw(M * K, seed)), wide(draw(N * K, seed + 1)));
    let mut c = vec![i32::MIN; M * N];
    let weights = npu.pack(Int8::default(), &Rows::new(&w, N, K))?;
    let stats = npu.gemm_exact(Matrix::new(&a, M, K, K), Operand::Resident(&weights), &mut c)?;
    let want = reference(&a, &w);
    let wrong = c.iter().zip(want).filter(|(c, want)| i64::from(**c) != *want).count();
    Ok((verdict(wrong), stats))
}

fn check(name: &str, value: impl std::fmt::Display) {
    println!("check {name} {value}");
}

fn run() -> Result<()> {
    let status = || Status::read(Path::new(STATUS));
    let board = KernelBoard::find()?;
    check("npu-board", board.describe());
    let npu = Npu::open(&board, Options { workers: WORKERS, ..Options::default() })?;
    let (mut jobs, mut macs) = (0, 0);
    let mut say = |name: &str, (verdict, stats): (String, Stats)| {
        (jobs, macs) = (jobs + stats.jobs, macs + stats.executed_macs);
        check(name, format!("{verdict}, {} retries", stats.retries));
    };
    for round in 0..3 {
        say("npu-fp16", fp16(&npu, 1 + round)?);
        say("npu-int8", int8(&npu, 11 + round)?);
    }
    let kicks = status().kicks;
    let used: String = kicks.iter().map(|k| if *k > 0 { 'x' } else { '-' }).collect();
    check("npu-cores", used);

    std::fs::write(HANG, "").context(HANG)?;
    say("npu-with-one-hung", fp16(&npu, 21)?);
    check("npu-hung", status().hangs);
    say("npu-after", int8(&npu, 31)?);
    drop(npu);

    let (kicks, longest) = (status().kicks, status().longest_ms);
    println!(
        "npu: {jobs} jobs, {} kMAC a job, kicks {kicks:?}; the longest took {longest} ms of the \
         driver's {LIMIT_MS} ms, on this emulated machine",
        macs / 1000 / jobs.max(1)
    );
    Ok(())
}

fn main() {
    if let Err(e) = run() {
        check("npu-failed", format!("{e:#}"));
    }
}
