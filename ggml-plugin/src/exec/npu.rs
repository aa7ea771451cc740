//! The [`Engine`] that drives an NPU through the runtime's GEMM.

use super::engine::Rules;
use super::experts::{self, Absent, Shelf, Standing};
use super::pressure::Pressure;
use super::residency::{Held, Residency};
use super::times::{Holdings, ns};
use super::weight::Columns;
use super::{Attend, Attended, Done, Engine, MatMul, Meter, OpRecord, Reading, product};
use rocket_runtime::device::Board;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::ops::attention::Scratch;
use rocket_runtime::{Error, Result};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
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
    npu: Arc<OnceLock<Npu>>,
    residency: Residency,
    /// Stacks of experts.
    shelf: Shelf,
    /// For decoding beside the workers.
    threads: usize,
    /// Failures in a row.
    failures: AtomicU32,
    /// Bytes of stacks of experts that may become resident.
    promised: AtomicU64,
    given_up: AtomicBool,
    meter: Option<Arc<dyn Meter>>,
    /// One op at a time while a meter runs, so that its differences belong to that op.
    metered: Mutex<()>,
    /// What attentions leave for the next ones.
    pub(super) scratch: Scratch,
}

impl NpuEngine {
    /// An engine on `board`. The worker files are opened at the first product.
    pub fn new(
        board: Arc<dyn Board>,
        options: Options,
        rules: Rules,
        meter: Option<Arc<dyn Meter>>,
    ) -> NpuEngine {
        let pressure = Pressure::new(Path::new("/"), rules.weights.reserve);
        NpuEngine::under(pressure, board, options, rules, meter)
    }

    fn under(
        pressure: Pressure,
        board: Arc<dyn Board>,
        options: Options,
        rules: Rules,
        meter: Option<Arc<dyn Meter>>,
    ) -> NpuEngine {
        let threads = options
            .cores
            .as_ref()
            .map_or_else(|| std::thread::available_parallelism().map_or(1, usize::from), Vec::len);
        let npu = Arc::new(OnceLock::new());
        // What the ledger reserved is not reserved again: only the kernel's own floor counts.
        let floor = Pressure::new(pressure.root(), None);
        NpuEngine {
            board,
            threads,
            options,
            shelf: Shelf::new(npu.clone(), rules.experts, floor),
            npu,
            residency: Residency::new(rules.weights, pressure),
            failures: AtomicU32::new(0),
            promised: AtomicU64::new(0),
            given_up: AtomicBool::new(false),
            meter,
            metered: Mutex::default(),
            scratch: Scratch::default(),
        }
    }

    /// The NPU, with less of its scratch memory when the system is short of it.
    pub(super) fn npu(&self) -> Result<&Npu> {
        let npu = self.opened()?;
        let promised = self.promised.load(Ordering::Relaxed);
        self.residency.promise(promised.saturating_sub(self.shelf.bytes()));
        if let Some(short) = self.residency.relieve(self.shelf.bytes()) {
            self.shelf.shed(short);
            npu.trim();
            self.scratch.clear();
        }
        Ok(npu)
    }

    /// The stacks of experts.
    #[cfg(test)]
    pub(super) fn shelf(&self) -> &Shelf {
        &self.shelf
    }

    fn opened(&self) -> Result<&Npu> {
        if let Some(npu) = self.npu.get() {
            return Ok(npu);
        }
        let opened = Npu::open(&*self.board, self.options.clone())?;
        // Another thread may have been faster; its files are as good.
        Ok(self.npu.get_or_init(|| opened))
    }

    /// `took` is how long the board had the product.
    fn product(&self, mut job: MatMul<'_>, took: &mut Duration) -> Result<Done> {
        let npu = self.npu()?;
        let packed_now = job.packed_bytes();
        let mut pack_ns = 0;
        let pack = || {
            let begun = Instant::now();
            let packed = product::pack(npu, &job);
            pack_ns = ns(begun);
            packed
        };
        let held = match job.key {
            Some(key) => self.residency.get(key, job.owner, pack)?,
            None => Held::No,
        };
        if let Held::Unfit = held {
            let columns = Arc::new(Columns::unfit());
            return Ok(Done { columns, ..Done::default() });
        }
        let start = Instant::now();
        let done = match &held {
            Held::Packed(p, _) => {
                product::with_resident(npu, &mut job, &p.tiles).map(|s| (s, p.columns.clone()))
            }
            _ => product::streamed(npu, &mut job, self.threads).map(|(s, c)| (s, Arc::new(c))),
        };
        *took = start.elapsed();
        let (stats, columns) = done?;
        let (resident, packed_bytes) = match held {
            Held::Packed(_, new) => (true, if new { packed_now } else { 0 }),
            _ => (false, packed_now),
        };
        let mut record = OpRecord { resident, packed_bytes, ..OpRecord::of(&stats) };
        record.times.pack_ns += pack_ns;
        Ok(Done { record, columns })
    }

    /// Products of one activation with resident weights.
    fn together(&self, mut jobs: Vec<MatMul<'_>>, took: &mut Duration) -> Result<Vec<Done>> {
        let npu = self.npu()?;
        let mut held = Vec::with_capacity(jobs.len());
        let begun = Instant::now();
        for job in &jobs {
            let key = job.key.ok_or_else(not_together)?;
            match self.residency.get(key, job.owner, || product::pack(npu, job))? {
                Held::Packed(p, new) => held.push((p, new)),
                Held::Unfit | Held::No => return Err(not_together()),
            }
        }
        let pack_ns = ns(begun);
        let start = Instant::now();
        let done = product::together(npu, &mut jobs, held.iter().map(|(p, _)| &p.tiles));
        *took = start.elapsed();
        let records = done?.into_iter().zip(&held).zip(&jobs).map(|((stats, (p, new)), job)| {
            let packed_bytes = if *new { job.packed_bytes() } else { 0 };
            let record = OpRecord { resident: true, packed_bytes, ..OpRecord::of(&stats) };
            Done { record, columns: p.columns.clone() }
        });
        let mut records: Vec<Done> = records.collect();
        if let Some(first) = records.first_mut() {
            first.record.times.pack_ns += pack_ns;
        }
        Ok(records)
    }

    fn choose(&self, job: experts::Job<'_>, took: &mut Duration) -> Result<experts::Done> {
        let npu = self.npu()?;
        let absent = |absent| Ok(experts::Done { absent: Some(absent), ..Default::default() });
        let standing = match job.stack {
            Some((key, source)) => self.shelf.find(key, source, job.owner),
            None => Standing::Absent(Absent::NoRoom),
        };
        let packed = match standing {
            Standing::Ready(all) => Some(all),
            Standing::Absent(Absent::NoRoom) if self.shelf.rules().stream => None,
            Standing::Absent(why) => return absent(why),
        };
        let packed_bytes = match &packed {
            Some(_) => self.shelf.take_packed(),
            None => {
                let used = job.buckets.used().count();
                self.shelf.streamed(used);
                (used * job.shape.n * job.shape.k * job.numerics.bits() / 8) as u64
            }
        };
        let start = Instant::now();
        let ran = experts::multiply(npu, job, packed.as_ref().map(|p| &p[..]));
        *took = start.elapsed();
        let (stats, columns) = ran?;
        if columns.iter().any(|(_, c)| !c.fit()) {
            return absent(Absent::Unfit);
        }
        let record = OpRecord { resident: packed.is_some(), packed_bytes, ..OpRecord::of(&stats) };
        Ok(experts::Done { record, absent: None, columns })
    }

    /// Runs on the board what `run` does, between two readings of the meter, and keeps account of
    /// failures.
    fn guarded<T>(
        &self,
        run: impl FnOnce(&mut Duration) -> Result<T>,
    ) -> Result<(T, Option<Reading>)> {
        if !self.available() {
            return Err(Error::Unusable { why: "the NPU was given up".into() });
        }
        let gate = self.meter.as_ref().map(|meter| {
            let gate = self.metered.lock().unwrap_or_else(PoisonError::into_inner);
            (gate, meter.read())
        });
        let mut took = Duration::ZERO;
        match run(&mut took) {
            Ok(done) => {
                self.failures.store(0, Ordering::Relaxed);
                let board = match (&self.meter, gate) {
                    (Some(meter), Some((_gate, before))) => Some(meter.read() - before),
                    _ => None,
                };
                Ok((done, board))
            }
            Err(e) => {
                self.failed(&e, took);
                Err(e)
            }
        }
    }
}

impl Engine for NpuEngine {
    fn mul_mat(&self, job: MatMul<'_>) -> Result<Done> {
        let (mut done, board) = self.guarded(|took| self.product(job, took))?;
        done.record.board = board;
        Ok(done)
    }

    fn mul_mat_together(&self, jobs: Vec<MatMul<'_>>) -> Result<Vec<Done>> {
        let (mut done, board) = self.guarded(|took| self.together(jobs, took))?;
        if let Some(total) = board {
            share_out(&mut done, total);
        }
        Ok(done)
    }

    fn attention(&self, job: Attend<'_>) -> Result<Attended> {
        let (mut done, board) = self.guarded(|took| self.attend(job, took))?;
        done.record.board = board;
        Ok(done)
    }

    fn experts(&self, job: experts::Job<'_>) -> Result<experts::Done> {
        let (mut done, board) = self.guarded(|took| self.choose(job, took))?;
        done.record.board = board;
        Ok(done)
    }

    fn promise(&self, bytes: u64) {
        self.promised.store(bytes, Ordering::Relaxed);
    }

    fn available(&self) -> bool {
        !self.given_up.load(Ordering::Relaxed)
    }

    fn distrust(&self) {
        self.given_up.store(true, Ordering::Relaxed);
    }

    fn release(&self, owner: u64) {
        self.residency.release(owner);
        self.shelf.release(owner);
        if let Some(npu) = self.npu.get().filter(|_| self.residency.bytes() == 0) {
            npu.trim();
            self.scratch.clear();
        }
    }

    fn room(&self) -> Option<u64> {
        self.residency.room(self.options.workers)
    }

    fn outcome(&self) -> Vec<String> {
        self.residency.outcome().into_iter().chain(self.shelf.outcome()).collect()
    }

    fn holdings(&self) -> Holdings {
        let workers = self.npu.get().map(|_| self.options.workers.clamp(1, 8) as u64);
        let mut all = Holdings { workers, ..self.residency.holdings() };
        let [resident, offered] = self.shelf.counts();
        all.experts_streamed = Some(self.shelf.times_streamed());
        if offered > 0 {
            all.resident_bytes = all.resident_bytes.map(|b| b + self.shelf.bytes());
            (all.experts, all.experts_offered) = (Some(resident), Some(offered));
        }
        all
    }
}

/// Not an error of the board: they run one by one.
fn not_together() -> Error {
    let why = "not all of the weights are resident";
    Error::Memory { asked: 0, what: "products of one activation", why: why.into() }
}

/// The board counted products together. Each gets the multiply-accumulates of its own plan, the first
/// what is left, so that a board that executed anything else shows there; and all other counts.
fn share_out(done: &mut [Done], total: Reading) {
    let mut rest = total;
    for d in done.iter_mut().skip(1) {
        let own = Reading { macs: d.record.macs.min(rest.macs), ..Reading::default() };
        rest = rest - own;
        d.record.board = Some(own);
    }
    if let Some(first) = done.first_mut() {
        first.record.board = Some(rest);
    }
}

impl NpuEngine {
    /// Counts a failed op, and says so when it was the last one.
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
    use crate::exec::residency::{self, Share};
    use crate::exec::weight::Weight;
    use crate::exec::{WeightKey, scale};
    use crate::route::{Dtype, Numerics};
    use rocket_sim::SimBoard;

    const M: usize = 20;
    const K: usize = 96;
    const N: usize = 80;

    fn engine() -> NpuEngine {
        NpuEngine::new(Arc::new(SimBoard::default()), options(2), Rules::default(), None)
    }

    fn options(workers: usize) -> Options {
        Options { workers, budget: None, drain_on_signals: false, ..Options::default() }
    }

    fn prepare(a: &[f32]) -> Prepared {
        let mut p = Prepared::default();
        let a = Activation::new(a, K, [M, 1, 1], [K, 0, 0]).expect("a matrix");
        p.fill(&a, Numerics::Fp16, 1).expect("finite rows");
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
            numerics: Numerics::Fp16,
            activation: p.rows(Numerics::Fp16),
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
        let (dtype, numerics) = (Dtype::F32, Numerics::Fp16);
        WeightKey { buffer: 7, base: 0x1000, offset, dtype, shape: [N, K], hash, numerics }
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
        let rules = |quantized, float, total| {
            let weights = residency::Rules { quantized, float, total, reserve: None };
            Rules { weights, ..Rules::default() }
        };
        for (rules, why) in [
            (rules(Share::All, Share::Nothing("a setting says so"), None), "a setting says so"),
            (rules(Share::All, Share::Bytes(grid), None), "MB of ROCKET_F16_RESIDENT"),
            (rules(Share::All, Share::All, Some(grid + 9000)), "MB of ROCKET_CACHE_MB"),
        ] {
            let engine = NpuEngine::new(Arc::new(SimBoard::default()), options(1), rules, None);
            let (a, w) = (eighths(1, M * K), eighths(2, N * K));
            for offset in [0, 1 << 20, 0] {
                let (out, _) = multiply(&engine, &a, &w, Some(key(offset, 1)), 1).unwrap();
                assert!(deviation(&a, &w, &out) <= 1.0);
            }
            let told = engine.outcome().pop().unwrap();
            assert!(told.contains("of 2 weights resident") && told.contains(why), "{told}");
            assert!(engine.outcome().is_empty(), "once is enough");
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
        let told = engine.outcome().pop().unwrap();
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

    fn in_numbers(
        engine: &NpuEngine,
        (a, w): (&[f32], &[f32]),
        numerics: Numerics,
        key: Option<WeightKey>,
    ) -> (Vec<f32>, OpRecord) {
        let mut p = Prepared::default();
        let rows = Activation::new(a, K, [M, 1, 1], [K, 0, 0]).expect("a matrix");
        p.fill(&rows, numerics, 1).expect("finite rows");
        let mut out = vec![f32::NAN; M * N];
        let job = MatMul {
            name: "t",
            m: M,
            weight: Weight::of_f32(w, N, K),
            key: key.map(|k| WeightKey { numerics, ..k }),
            owner: 1,
            numerics,
            activation: p.rows(numerics),
            out: &mut out,
        };
        let done = engine.mul_mat(job).expect("runs");
        assert!(done.columns.fit());
        (out, done.record)
    }

    /// Cosine of a result with the product by its definition.
    fn cosine(a: &[f32], w: &[f32], out: &[f32]) -> f64 {
        let (mut dot, mut x, mut y) = (0.0, 0.0, 0.0);
        for (i, got) in out.iter().enumerate() {
            let (row, kernel) = (&a[i / N * K..][..K], &w[i % N * K..][..K]);
            let want: f64 = row.iter().zip(kernel).map(|(a, w)| f64::from(a * w)).sum();
            let got = f64::from(*got);
            (dot, x, y) = (dot + want * got, x + want * want, y + got * got);
        }
        dot / (x * y).sqrt()
    }

    /// Every format by cosine, resident and streamed with the same result, beside controls that
    /// must fail: another weight, and outliers in int4 without rotation. The bars are
    /// ggml-plugin-behaviour 14's; codes of rows with outliers lose what the outliers take.
    #[test]
    fn every_format_by_cosine() {
        use crate::route::Codes;
        let codes = |group, rotate| Codes { group, rotate };
        let (a, w, other) = (eighths(1, M * K), eighths(2, N * K), eighths(3, N * K));
        // Two channels are far from the others, as in language models, and their weights small.
        let (mut far, mut small) = (a.clone(), w.clone());
        for (channel, at) in [(17, 7.0), (50, -6.0)] {
            far.iter_mut().skip(channel).step_by(K).for_each(|x| *x += at);
            small.iter_mut().skip(channel).step_by(K).for_each(|x| *x /= 8.0);
        }
        let unrotated = Numerics::Int4(codes(K, false));
        for (numerics, plain, outliers, bytes) in [
            (Numerics::Fp16, 0.999_999, 0.999_999, 2.0),
            (Numerics::Bf16, 0.999_99, 0.999_99, 2.0),
            (Numerics::Int8(codes(K, false)), 0.9999, 0.999, 1.0),
            (Numerics::Int8(codes(K, true)), 0.9999, 0.999, 1.0),
            (Numerics::Native(codes(32, true)), 0.9999, 0.999, 1.0),
            (Numerics::Int4(codes(32, true)), 0.98, 0.95, 0.5),
            (unrotated, 0.98, 0.0, 0.5),
        ] {
            for (a, w, least) in [(&a, &w, plain), (&far, &small, outliers)] {
                let engine = engine();
                let (streamed, record) = in_numbers(&engine, (a, w), numerics, None);
                assert!(!record.resident);
                assert_eq!(record.packed_bytes, (bytes * (N * K) as f64) as u64);
                for again in [false, true] {
                    let key = Some(key(0, 5));
                    let (out, record) = in_numbers(&engine, (a, w), numerics, key);
                    assert_eq!((record.resident, record.packed_bytes == 0), (true, again));
                    assert_eq!(out, streamed, "{numerics:?}");
                }
                let (got, control) = (cosine(a, w, &streamed), cosine(a, &other, &streamed));
                println!("{numerics:?}: cosine {got:.7}; beside another weight {control:.3}");
                assert!(got >= least && control < 0.9, "{numerics:?} {got}");
                if numerics == unrotated && least == 0.0 {
                    assert!(got < 0.95, "the gate of int4 is slack");
                }
            }
        }
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
