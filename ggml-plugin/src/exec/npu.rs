//! The [`Engine`] that drives an NPU through the runtime's GEMM.

use super::pressure::Pressure;
use super::residency::{Held, Packed, Residency, Rules};
use super::weight::{Columns, Source};
use super::{Done, Engine, MatMul, Meter, OpRecord};
use rocket_runtime::device::Board;
use rocket_runtime::layout::pack::Matrix;
use rocket_runtime::matmul::{Npu, Operand, Options};
use rocket_runtime::plan::Summation;
use rocket_runtime::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
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
    residency: Residency,
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
        rules: Rules,
        meter: Option<Arc<dyn Meter>>,
    ) -> NpuEngine {
        let pressure = Pressure::new(Path::new("/"), rules.reserve);
        NpuEngine::under(pressure, board, options, rules, meter)
    }

    fn under(
        pressure: Pressure,
        board: Arc<dyn Board>,
        options: Options,
        rules: Rules,
        meter: Option<Arc<dyn Meter>>,
    ) -> NpuEngine {
        NpuEngine {
            board,
            options: Options { budget: rules.total, ..options },
            npu: OnceLock::new(),
            residency: Residency::new(rules, pressure),
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

    /// `took` is how long the board had the product.
    fn product(&self, job: MatMul<'_>, took: &mut Duration) -> Result<Done> {
        let npu = self.npu()?;
        if self.residency.relieve() {
            npu.trim();
        }
        let packed_now = (job.weight.n() * job.weight.k() * 2) as u64;
        let pack = || {
            let source = Source::new(job.weight);
            let tiles = npu.pack(&source)?;
            tracing::debug!("packed the weight of {}: {} kB", job.name, tiles.bytes() >> 10);
            Ok(Packed { tiles, columns: Arc::new(source.columns()) })
        };
        let held = match job.key {
            Some(key) => self.residency.get(key, job.owner, pack)?,
            None => Held::No,
        };
        if let Held::Unfit = held {
            let columns = Arc::new(Columns::unfit());
            return Ok(Done { columns, ..Done::default() });
        }
        let source = Source::new(job.weight);
        let operand = match &held {
            Held::Packed(p, _) => Operand::Resident(&p.tiles),
            _ => Operand::Stream(&source),
        };
        let a = Matrix::new(job.activation, job.m, job.weight.k(), job.weight.k());
        let start = Instant::now();
        let done = npu.gemm(a, operand, job.out, Some(job.scales), Summation::OnChip);
        *took = start.elapsed();
        let stats = done?;
        let (resident, packed_bytes, columns) = match held {
            Held::Packed(p, new) => (true, if new { packed_now } else { 0 }, p.columns.clone()),
            _ => (false, packed_now, Arc::new(source.columns())),
        };
        let record = OpRecord {
            macs: stats.executed_macs,
            padding_macs: stats.padding_macs,
            submits: stats.submits,
            jobs: stats.jobs,
            tasks: stats.tasks,
            retries: stats.retries,
            resident,
            packed_bytes,
            ..OpRecord::default()
        };
        Ok(Done { record, columns })
    }
}

impl Engine for NpuEngine {
    fn mul_mat(&self, job: MatMul<'_>) -> Result<Done> {
        if !self.available() {
            return Err(Error::Unusable { why: "the NPU was given up".into() });
        }
        let gate = self.meter.as_ref().map(|meter| {
            let gate = self.metered.lock().unwrap_or_else(PoisonError::into_inner);
            (gate, meter.read())
        });
        let mut took = Duration::ZERO;
        match self.product(job, &mut took) {
            Ok(mut done) => {
                self.failures.store(0, Ordering::Relaxed);
                if let (Some(meter), Some((_gate, before))) = (&self.meter, gate) {
                    done.record.board = Some(meter.read() - before);
                }
                Ok(done)
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

    fn distrust(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn release(&self, owner: u64) {
        self.residency.release(owner);
        if let Some(npu) = self.npu.get().filter(|_| self.residency.bytes() == 0) {
            npu.trim();
        }
    }

    fn outcome(&self) -> Option<String> {
        self.residency.outcome()
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

#[cfg(all(test, feature = "simulator"))]
mod tests {
    use super::*;
    use crate::exec::activation::{Activation, Prepared};
    use crate::exec::residency::Share;
    use crate::exec::weight::Weight;
    use crate::exec::{WeightKey, scale};
    use crate::route::Dtype;
    use rocket_sim::SimBoard;

    const M: usize = 20;
    const K: usize = 96;
    const N: usize = 80;

    fn engine() -> NpuEngine {
        NpuEngine::new(Arc::new(SimBoard::default()), options(2), Rules::default(), None)
    }

    fn options(workers: usize) -> Options {
        Options { workers, budget: None, drain_on_signals: false, cores: None }
    }

    fn prepare(a: &[f32]) -> Prepared {
        let mut p = Prepared::default();
        let a = Activation::new(a, K, [M, 1, 1], [K, 0, 0]).expect("a matrix");
        p.fill(&a, 1).expect("finite rows");
        p
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

    fn multiply(
        engine: &dyn Engine,
        a: &[f32],
        w: &[f32],
        key: Option<WeightKey>,
        owner: u64,
    ) -> Result<(Vec<f32>, Done)> {
        let p = prepare(a);
        let mut out = vec![f32::NAN; M * N];
        let job = MatMul {
            name: "t",
            m: M,
            weight: Weight::of_f32(w, N, K),
            key,
            owner,
            activation: &p.rows,
            scales: &p.scales,
            out: &mut out,
        };
        let done = engine.mul_mat(job)?;
        done.columns.apply(&mut out, N);
        Ok((out, done))
    }

    fn run(engine: &dyn Engine, a: &[f32], w: &[f32], key: Option<WeightKey>) -> Vec<f32> {
        let (out, done) = multiply(engine, a, w, key, 1).expect("runs");
        assert_eq!(done.record.resident, key.is_some());
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
        let first = key(0, 11);
        let second = key(0x8000, 12);
        let in_place = WeightKey { hash: 13, ..first };
        // Twice each: once packed, once resident.
        for (seed, key) in [(2, first), (3, second), (4, in_place)].repeat(2) {
            let w = eighths(seed, N * K);
            let out = run(&engine, &a, &w, Some(key));
            assert!(deviation(&a, &w, &out) <= 1.0, "{key:?}");
            assert!(deviation(&a, &eighths(seed + 1, N * K), &out) > 10.0, "the bound is slack");
        }
        engine.release(1);
        assert_eq!(engine.npu().unwrap().budget().used(), 0);
    }

    fn key(offset: usize, hash: u64) -> WeightKey {
        WeightKey { buffer: 7, base: 0x1000, offset, dtype: Dtype::F32, shape: [N, K], hash }
    }

    /// A weight goes with the last context that used it, whichever that is, and is packed again
    /// for the next one.
    #[test]
    fn weights_go_with_the_last_of_their_contexts() {
        let engine = engine();
        let (a, w) = (eighths(1, M * K), eighths(2, N * K));
        let used = || engine.npu().unwrap().budget().used();
        let go = |owner, key| multiply(&engine, &a, &w, Some(key), owner).unwrap().1.record;
        assert!(go(1, key(0, 1)).packed_bytes > 0);
        let one = used();
        assert_eq!(go(2, key(0, 1)).packed_bytes, 0, "shared");
        go(2, key(1 << 20, 1));
        assert_eq!(used(), 2 * one);
        engine.release(1);
        assert_eq!(used(), 2 * one, "the other context still uses it");
        engine.release(2);
        assert_eq!(used(), 0);
        assert!(go(3, key(0, 1)).packed_bytes > 0);
    }

    #[test]
    fn what_finds_no_room_is_streamed_and_said() {
        let grid = (N * K * 2) as u64;
        let rules = |quantized, float, total| Rules { quantized, float, total, reserve: None };
        for (rules, why) in [
            (rules(Share::All, Share::Nothing("a setting says so"), None), "a setting says so"),
            (rules(Share::All, Share::Bytes(grid), None), "MB of ROCKET_F16_RESIDENT"),
            (rules(Share::All, Share::All, Some(grid + 9000)), "of the budget's"),
        ] {
            let engine = NpuEngine::new(Arc::new(SimBoard::default()), options(1), rules, None);
            let (a, w) = (eighths(1, M * K), eighths(2, N * K));
            for offset in [0, 1 << 20, 0] {
                let (out, _) = multiply(&engine, &a, &w, Some(key(offset, 1)), 1).unwrap();
                assert!(deviation(&a, &w, &out) <= 1.0);
            }
            let told = engine.outcome().unwrap();
            assert!(told.contains("of 2 weights resident") && told.contains(why), "{told}");
            assert_eq!(engine.outcome(), None, "once is enough");
        }
    }

    /// A system that runs short gets memory back, and the results stay right; with room again the
    /// weights are packed again.
    #[test]
    fn memory_comes_back_under_pressure() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir(root.path().join("proc")).unwrap();
        let available = |kib: u64| {
            let text = format!("MemTotal: 8388608 kB\nMemAvailable: {kib} kB\n");
            std::fs::write(root.path().join("proc/meminfo"), text).unwrap();
            // Figures are read a few times a second.
            std::thread::sleep(crate::exec::pressure::EVERY);
        };
        available(4 << 20);
        let engine = NpuEngine::under(
            Pressure::new(root.path(), None),
            Arc::new(SimBoard::default()),
            options(1),
            Rules::default(),
            None,
        );
        let a = eighths(1, M * K);
        let used = || engine.npu().unwrap().budget().used();
        let go = |i: u32| {
            let w = eighths(i, N * K);
            let key = Some(key(i as usize * 0x10_000, u64::from(i)));
            let (out, done) = multiply(&engine, &a, &w, key, 1).unwrap();
            assert!(deviation(&a, &w, &out) <= 1.0);
            done.record.resident
        };
        assert!(go(1) && go(2) && go(3));
        let full = used();
        available(100 << 10);
        assert!(!go(4), "nothing new");
        assert_eq!(used(), 0, "a machine that lacks more than there is gets all of it");
        let told = engine.outcome().unwrap();
        assert!(told.contains("under memory pressure"), "{told}");
        available(4 << 20);
        assert!(go(1) && go(2) && go(3));
        assert_eq!(used(), full);
    }

    /// A weight that is not finite is found when it is packed, and remembered.
    #[test]
    fn an_unfit_weight_is_reported_resident_or_not() {
        let engine = engine();
        let (a, mut w) = (eighths(1, M * K), eighths(2, N * K));
        w[N * K - 1] = f32::INFINITY;
        for key in [None, Some(key(0, 1)), Some(key(0, 1))] {
            assert!(!multiply(&engine, &a, &w, key, 1).unwrap().1.columns.fit());
        }
        assert_eq!(engine.npu().unwrap().budget().used(), 0);
    }

    /// F32 weights far outside of F16, beside ordinary ones.
    #[test]
    fn rows_of_weights_of_any_size_keep_their_value() {
        let (a, mut w) = (eighths(1, M * K), eighths(2, N * K));
        for (row, size) in w.chunks_exact_mut(K).zip([1.0, 1e-9, 1e7, 1e-30].repeat(20)) {
            row.iter_mut().for_each(|x| *x *= size);
        }
        for key in [None, Some(key(0, 1)), Some(key(0, 1))] {
            let (out, _) = multiply(&engine(), &a, &w, key, 1).unwrap();
            assert!(deviation(&a, &w, &out) <= 1.0);
        }
    }

    /// A product whose engine must fail.
    fn fails(engine: &dyn Engine) -> Error {
        multiply(engine, &[1.0; M * K], &[1.0; N * K], None, 1).expect_err("fails")
    }

    /// A board that cannot be opened, or that loses every job, is not asked for ever; one that
    /// fails now and then is.
    #[test]
    fn a_board_that_keeps_failing_is_given_up() {
        use rocket_sim::{Call, Errno, Fault};
        let losing = |board: &SimBoard| (0..99).for_each(|n| board.inject(Fault::DropJob(n)));
        for break_it in [
            |b: &SimBoard| b.inject(Fault::Refuse { call: Call::Open, errno: Errno::EPERM }),
            losing,
        ] {
            let board = SimBoard::default();
            break_it(&board);
            let engine =
                NpuEngine::new(Arc::new(board.clone()), options(1), Rules::default(), None);
            for _ in 0..MOST_FAILURES {
                assert!(engine.available());
                fails(&engine);
            }
            assert!(!engine.available());
            board.clear_faults();
            assert!(fails(&engine).to_string().contains("given up"), "and stays so");
        }
        let board = SimBoard::default();
        let engine = NpuEngine::new(Arc::new(board.clone()), options(1), Rules::default(), None);
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
