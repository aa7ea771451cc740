//! The [`Engine`] that drives an NPU through the runtime's GEMM.

use super::{Engine, MatMul, Meter, OpRecord, Weight, WeightKey, scale};
use half::f16;
use half::slice::HalfFloatSliceExt;
use rocket_runtime::device::Board;
use rocket_runtime::layout::pack::Matrix;
use rocket_runtime::matmul::{Npu, Operand, Options, Resident, Rows, Weights};
use rocket_runtime::plan::Summation;
use rocket_runtime::{Error, Result};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Ops in a row that may fail before the NPU is given up for this process: the CPU redoes each.
const MOST_FAILURES: u32 = 3;
/// A failure that took this long is the last: the user has waited for a hang.
const TOO_LONG: Duration = Duration::from_secs(1);

/// An NPU and the weights that live on it.
#[derive(Debug)]
pub struct NpuEngine {
    board: Arc<dyn Board>,
    options: Options,
    npu: OnceLock<Npu>,
    /// What is resident. A weight that finds no room is streamed, and tried again at its next use.
    weights: Mutex<HashMap<WeightKey, Arc<Resident>>>,
    /// Failures in a row.
    failures: AtomicU32,
    given_up: AtomicBool,
    meter: Option<Arc<dyn Meter>>,
    /// One op at a time while a meter runs, so that its differences belong to that op.
    metered: Mutex<()>,
}

impl NpuEngine {
    /// An engine on `board`. The worker files are opened at the first product.
    pub fn new(
        board: Arc<dyn Board>,
        options: Options,
        meter: Option<Arc<dyn Meter>>,
    ) -> NpuEngine {
        NpuEngine {
            board,
            options,
            npu: OnceLock::new(),
            weights: Mutex::default(),
            failures: AtomicU32::new(0),
            given_up: AtomicBool::new(false),
            meter,
            metered: Mutex::default(),
        }
    }

    fn npu(&self) -> Result<&Npu> {
        if let Some(npu) = self.npu.get() {
            return Ok(npu);
        }
        let opened = Npu::open(&*self.board, self.options.clone())?;
        // Another thread may have been faster; its files are as good.
        Ok(self.npu.get_or_init(|| opened))
    }

    fn weights(&self) -> MutexGuard<'_, HashMap<WeightKey, Arc<Resident>>> {
        self.weights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The packed weight, packed now if it is new and there is room. Others wait meanwhile: two
    /// contexts must not pack the same weight twice.
    fn resident(
        &self,
        npu: &Npu,
        key: Option<WeightKey>,
        source: &dyn Weights,
    ) -> Result<Option<Arc<Resident>>> {
        let Some(key) = key else { return Ok(None) };
        let mut weights = self.weights();
        if let Some(known) = weights.get(&key) {
            return Ok(Some(known.clone()));
        }
        match npu.pack(source) {
            Ok(packed) => {
                let packed = Arc::new(packed);
                weights.insert(key, packed.clone());
                Ok(Some(packed))
            }
            Err(Error::Memory { .. }) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// `took` is how long the board had the product.
    fn product(&self, job: MatMul<'_>, took: &mut Duration) -> Result<OpRecord> {
        let npu = self.npu()?;
        let MatMul { m, k, n, .. } = job;
        let rows;
        let narrowed;
        let source: &dyn Weights = match job.weight {
            Weight::F16(w) => {
                rows = Rows::new(w, n, k);
                &rows
            }
            Weight::F32(w) => {
                narrowed = Narrowed { data: w, n, k };
                &narrowed
            }
        };
        let resident = self.resident(npu, job.key, source)?;
        let mut a = vec![f16::ZERO; m * k];
        for ((row, &s), out) in
            job.activation.chunks_exact(k).zip(job.scales).zip(a.chunks_exact_mut(k))
        {
            scale::to_f16(row, s, out);
        }
        let operand = match &resident {
            Some(r) => Operand::Resident(r),
            None => Operand::Stream(source),
        };
        let a = Matrix::new(&a, m, k, k);
        let start = Instant::now();
        let done = npu.gemm(a, operand, job.out, Some(job.scales), Summation::OnChip);
        *took = start.elapsed();
        let stats = done?;
        Ok(OpRecord {
            macs: stats.executed_macs,
            padding_macs: stats.padding_macs,
            submits: stats.submits,
            jobs: stats.jobs,
            tasks: stats.tasks,
            retries: stats.retries,
            resident: resident.is_some(),
            ..OpRecord::default()
        })
    }
}

impl Engine for NpuEngine {
    fn mul_mat(&self, job: MatMul<'_>) -> Result<OpRecord> {
        if !self.available() {
            return Err(Error::Unusable { why: "the NPU was given up".into() });
        }
        let gate = self.meter.as_ref().map(|meter| {
            let gate = self.metered.lock().unwrap_or_else(PoisonError::into_inner);
            (gate, meter.read())
        });
        let mut took = Duration::ZERO;
        match self.product(job, &mut took) {
            Ok(mut record) => {
                self.failures.store(0, Ordering::Relaxed);
                if let (Some(meter), Some((_gate, before))) = (&self.meter, gate) {
                    record.board = Some(meter.read() - before);
                }
                Ok(record)
            }
            Err(e) => {
                self.failed(&e, took);
                Err(e)
            }
        }
    }

    fn available(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed)
    }

    fn release(&self) {
        self.weights().clear();
        if let Some(npu) = self.npu.get() {
            npu.trim();
        }
    }
}

impl NpuEngine {
    /// Counts a failed product, and says so when it was the last one.
    fn failed(&self, e: &Error, took: Duration) {
        // A shape, a shortage of memory or a signal says nothing about the board.
        if matches!(e, Error::Shape { .. } | Error::Memory { .. } | Error::Ending) {
            return;
        }
        if let Some(why) = self.meter.as_ref().and_then(|m| m.explain()) {
            tracing::warn!("the simulated board says: {why}");
        }
        let row = self.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if (row >= MOST_FAILURES || took >= TOO_LONG)
            && !self.given_up.swap(true, Ordering::Relaxed)
        {
            tracing::warn!("the NPU keeps failing ({e}); it is left alone until this process ends");
        }
    }
}

/// F32 weights, narrowed row by row as they are packed. They were checked to fit.
#[derive(Debug)]
struct Narrowed<'a> {
    data: &'a [f32],
    n: usize,
    k: usize,
}

impl Weights for Narrowed<'_> {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, n: usize, dst: &mut [f16]) {
        dst.convert_from_f32_slice(&self.data[n * self.k..][..self.k]);
    }
}

#[cfg(all(test, feature = "simulator"))]
mod tests {
    use super::*;
    use rocket_sim::SimBoard;

    const M: usize = 20;
    const K: usize = 96;
    const N: usize = 80;

    fn engine() -> NpuEngine {
        let options = Options { workers: 2, budget: None, drain_on_signals: false };
        NpuEngine::new(Arc::new(SimBoard::default()), options, None)
    }

    /// `len` eighths in -1..=1, aperiodic.
    fn eighths(seed: u32, len: usize) -> Vec<f32> {
        let mut x = seed;
        (0..len)
            .map(|_| {
                x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((x >> 24) % 17) as f32 / 8.0 - 1.0
            })
            .collect()
    }

    fn run(engine: &dyn Engine, a: &[f32], w: &[f32], key: Option<WeightKey>) -> Vec<f32> {
        let scales = scale::row_scales(a, K).expect("finite rows");
        let mut out = vec![f32::NAN; M * N];
        let job = MatMul {
            name: "t",
            m: M,
            k: K,
            n: N,
            weight: Weight::F32(w),
            key,
            activation: a,
            scales: &scales,
            out: &mut out,
        };
        let record = engine.mul_mat(job).expect("runs");
        assert_eq!(record.resident, key.is_some());
        out
    }

    /// Largest deviation from the product by its definition, in units of the bound of each element:
    /// the activation's rounding to F16 beside the largest of its row, and the result's own.
    fn deviation(a: &[f32], w: &[f32], out: &[f32]) -> f64 {
        let at = |i: usize| {
            let (row, kernel) = (&a[i / N * K..][..K], &w[i % N * K..][..K]);
            let pairs = row.iter().zip(kernel).map(|(a, w)| (f64::from(*a), f64::from(*w)));
            let (sum, weights) =
                pairs.fold((0.0, 0.0), |(s, t), (a, w)| (s + a * w, t + f64::abs(w)));
            let largest = row.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
            let bound = weights * largest * 2f64.powi(-11) + f64::abs(sum) * 2f64.powi(-10);
            (f64::from(out[i]) - sum).abs() / bound.max(f64::MIN_POSITIVE)
        };
        (0..M * N).map(at).fold(0.0, |m, d| if d > m || d.is_nan() { d } else { m })
    }

    /// Two weights of one shape, and a third that took the place of the first in memory.
    #[test]
    fn weights_of_one_shape_are_not_taken_for_each_other() {
        let engine = engine();
        let a = eighths(1, M * K);
        let first = WeightKey { data: 0x1000, bytes: 4 * N * K, buffer: 0x1000, sample: 11 };
        let second = WeightKey { data: 0x9000, sample: 12, ..first };
        let in_place = WeightKey { sample: 13, ..first };
        // Twice each: once packed, once resident.
        for (seed, key) in [(2, first), (3, second), (4, in_place)].repeat(2) {
            let w = eighths(seed, N * K);
            let out = run(&engine, &a, &w, Some(key));
            assert!(deviation(&a, &w, &out) <= 1.0, "{key:?}");
            assert!(deviation(&a, &eighths(seed + 1, N * K), &out) > 10.0, "the bound is slack");
        }
        engine.release();
        assert_eq!(engine.npu().unwrap().budget().used(), 0);
    }

    /// A product whose engine must fail.
    fn fails(engine: &dyn Engine) -> Error {
        let (a, w) = (vec![1.0; M * K], vec![1.0; N * K]);
        let scales = vec![1.0; M];
        let mut out = vec![0.0; M * N];
        let job = MatMul {
            name: "t",
            m: M,
            k: K,
            n: N,
            weight: Weight::F32(&w),
            key: None,
            activation: &a,
            scales: &scales,
            out: &mut out,
        };
        engine.mul_mat(job).expect_err("fails")
    }

    /// A board that cannot be opened, or that loses every job, is not asked for ever; one that
    /// fails now and then is.
    #[test]
    fn a_board_that_keeps_failing_is_given_up() {
        use rocket_sim::{Call, Errno, Fault};
        let options = Options { workers: 1, budget: None, drain_on_signals: false };
        let losing = |board: &SimBoard| (0..99).for_each(|n| board.inject(Fault::DropJob(n)));
        for break_it in [
            |b: &SimBoard| b.inject(Fault::Refuse { call: Call::Open, errno: Errno::EPERM }),
            losing,
        ] {
            let board = SimBoard::default();
            break_it(&board);
            let engine = NpuEngine::new(Arc::new(board.clone()), options.clone(), None);
            for _ in 0..MOST_FAILURES {
                assert!(engine.available());
                fails(&engine);
            }
            assert!(!engine.available());
            board.clear_faults();
            assert!(fails(&engine).to_string().contains("given up"), "and stays so");
        }
        let board = SimBoard::default();
        let engine = NpuEngine::new(Arc::new(board.clone()), options, None);
        for _ in 0..3 * MOST_FAILURES {
            losing(&board);
            fails(&engine);
            board.clear_faults();
            run(&engine, &eighths(1, M * K), &eighths(2, N * K), None);
        }
        assert!(engine.available());
    }

    /// Rows far beyond the range of F16, beside rows far below their precision.
    #[test]
    fn a_large_row_keeps_its_value_and_costs_the_others_nothing() {
        let mut a = eighths(5, M * K);
        for (row, size) in a.chunks_exact_mut(K).zip([1e7, 1e-3, 3e30, 1.0, 1e-20].repeat(4)) {
            row.iter_mut().for_each(|x| *x *= size);
        }
        let w = eighths(6, N * K);
        assert!(a.iter().any(|x| *x > 1000.0 * scale::F16_MAX));
        assert!(deviation(&a, &w, &run(&engine(), &a, &w, None)) <= 1.0);
    }
}
