//! GEMMs: `C[m, n] = sum over k of A[m, k] * W[n, k]`, of any M, K and N, in every format of the
//! NPU.
//!
//! N is split over worker files, each with an address space and a queue of its own and a thread
//! while a call lasts, because a file runs on one core at a time (kernel-and-uapi A.5). Each worker
//! runs the [`Sequence`] that the planner made for its columns. Sizes off the hardware's grid
//! are padded with zeros, exactly; [`Stats`] tells how much of the work that was.
//!
//! | format | A and W | result | sums |
//! |---|---|---|---|
//! | [`Fp16`] | `f16` | `f32` | on chip, rounded to fp16 at each K step, or by the host in binary64 |
//! | [`Bf16`], [`Tf32`] | `bf16`, `f32` | `f32` | by the host in binary64 |
//! | [`Int8`], [`Int4`] | `i8` | `i32`, or `f32` by scales | exact |
//! | [16 bits](Npu::gemm_i16) | `i16` | `i64` | exact, by bytes |
//!
//! ```no_run
//! use rocket_runtime::device::KernelBoard;
//! use rocket_runtime::matmul::{Fp16, Matrix, Npu, Operand, Options, Rows, Summation};
//! use half::f16;
//!
//! let npu = Npu::open(&KernelBoard::find()?, Options::default())?;
//! let a = vec![f16::ONE; 512 * 576]; // M x K
//! let w = vec![f16::ONE; 1536 * 576]; // N x K
//! let weights = npu.pack(Fp16, &Rows::new(&w, 1536, 576))?;
//! let mut c = vec![0f32; 512 * 1536];
//! npu.gemm(Matrix::new(&a, 512, 576, 576), Operand::Resident(&weights), &mut c, None, Summation::OnChip)?;
//! # Ok::<(), rocket_runtime::Error>(())
//! ```

mod budget;
mod calls;
mod format;
mod int16;
mod lane;
mod operand;
mod output;
mod pool;
mod resident;
mod share;
mod stored;
mod together;
mod wave;
mod witness;
mod worker;

pub use budget::Budget;
pub use calls::Scales;
pub use format::{Bf16, Float, Format, Fp16, Int4, Int8, Integer, Summation, Tf32};
pub use int16::Resident16;
pub use lane::{Lane, Product};
pub use operand::{Matrix, Operand, Rows, Weights};
pub use resident::{PACK_ROWS, Resident};
pub use stored::Origin;
pub use together::Together;

use crate::board;
use crate::device::{self, Board, File};
use crate::dtype::DType;
use crate::plan::search::{JOB_NS, MAX_DIM};
use crate::plan::{Request, Sequence, Shape};
use crate::{Error, Result};
use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use worker::Worker;

/// How to open an [`Npu`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Worker files, 1 to 8; what is outside counts as the nearer end. Three or more reach all
    /// cores; a few more hide the host's share (npu-rk3588 7.4).
    pub workers: usize,
    /// Bytes of resident weights at most; with `None` only the system's memory and the address
    /// windows are the limit, see [`Budget`].
    pub budget: Option<u64>,
    /// Whether SIGINT, SIGTERM and SIGHUP wait for jobs in flight, see
    /// [`device::drain_on_signals`].
    pub drain_on_signals: bool,
    /// CPUs that the workers' threads run on, by number; `None` for any. Those that are not there or
    /// not allowed are left out; if none is left, any will do. By default the
    /// [big cores](crate::board::big_cores) of a machine that has two kinds.
    pub cores: Option<Vec<usize>>,
    /// Longest a driver job may take, modelled at the slowest clock; 250 ms at most, whatever is
    /// asked, and never less than one program. Shorter jobs let other processes in between; beyond
    /// the default of 100 ms the driver's limit of 500 ms comes near (kernel-and-uapi A.5).
    pub job_time: Duration,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            workers: 5,
            budget: Some(2 << 30),
            drain_on_signals: true,
            cores: board::big_cores(Path::new("/")),
            job_time: Duration::from_nanos(JOB_NS),
        }
    }
}

/// What a GEMM ran, by plan. Counters of what was executed are the board's.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Stats {
    /// Multiply-accumulates of the programs, padding included.
    pub executed_macs: u64,
    /// Of these, the ones that only multiply padding.
    pub padding_macs: u64,
    /// Programs run.
    pub tasks: u64,
    /// Driver jobs.
    pub jobs: u64,
    /// SUBMIT calls.
    pub submits: u64,
    /// Groups of jobs that were run again because one was lost.
    pub retries: u64,
    /// Workers that took part.
    pub workers: u64,
    /// What the workers' time went into.
    pub times: Times,
}

/// Nanoseconds of a call, summed over its workers: together they are several times what the caller
/// waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Times {
    /// Packing weights on the way, decoding included. Resident weights cost none.
    pub weights: u64,
    /// Packing activations.
    pub activations: u64,
    /// From submitting jobs to their end.
    pub npu: u64,
    /// Checking and delivering results.
    pub results: u64,
}

impl std::ops::AddAssign for Times {
    fn add_assign(&mut self, o: Times) {
        self.weights += o.weights;
        self.activations += o.activations;
        self.npu += o.npu;
        self.results += o.results;
    }
}

impl std::ops::AddAssign for Stats {
    fn add_assign(&mut self, o: Stats) {
        self.executed_macs += o.executed_macs;
        self.padding_macs += o.padding_macs;
        self.tasks += o.tasks;
        self.jobs += o.jobs;
        self.submits += o.submits;
        self.retries += o.retries;
        self.workers += o.workers;
        self.times += o.times;
    }
}

/// The NPU of one board, opened for matmuls. One call runs at a time; others wait. Weights that it
/// packed may outlive it; they keep their files open.
#[derive(Debug)]
pub struct Npu {
    inner: Mutex<Inner>,
    budget: Arc<Budget>,
    board: String,
    cores: Option<Vec<usize>>,
    manner: Manner,
    cores_of_board: usize,
}

/// How this Npu's jobs are run: what every request shares.
#[derive(Debug, Clone, Copy)]
struct Manner {
    chained: bool,
    job_ns: u64,
}

#[derive(Debug)]
struct Inner {
    workers: Vec<Worker>,
    plans: Plans,
    /// Activations of a format that is not stored as the caller has it.
    codes: Vec<u8>,
}

/// Plans of earlier calls: a model's layers ask for the same few again and again.
#[derive(Debug, Default)]
struct Plans(HashMap<Request, Arc<Sequence>>);

impl Plans {
    /// So many that a model's layers at several numbers of rows fit.
    const KEEP: usize = 256;

    fn get(&mut self, request: Request) -> Result<Arc<Sequence>> {
        if let Some(found) = self.0.get(&request) {
            return Ok(found.clone());
        }
        let made = Arc::new(Sequence::new(request).ok_or_else(|| unplannable(&request))?);
        if self.0.len() >= Plans::KEEP {
            self.0.clear();
        }
        self.0.insert(request, made.clone());
        Ok(made)
    }
}

fn unplannable(request: &Request) -> Error {
    let why = match request.group {
        Some(g) => format!(
            "groups of {g} channels cannot be cut into K steps: a group must be a multiple of {} \
             (npu-rk3588 7.6), and every dimension 1 to 2^24 (7.1)",
            request.dtype.info().k_group
        ),
        None => "a dimension is 0 or beyond 2^24 (npu-rk3588 7.1)".into(),
    };
    Error::Shape { what: gemm_of(request.shape), why }
}

fn gemm_of(Shape { m, k, n }: Shape) -> String {
    format!("a GEMM of M = {m}, K = {k}, N = {n}")
}

/// Below the driver's limit, with room for a model that is wrong by a half.
const MOST: Duration = Duration::from_millis(250);

impl Npu {
    /// Opens the worker files.
    ///
    /// # Errors
    /// What [`Board::open`] says, or [`Error::Driver`] when a first allocation fails.
    pub fn open(board: &dyn Board, options: Options) -> Result<Npu> {
        let count = options.workers.clamp(1, 8);
        let workers = (0..count)
            .map(|_| Ok(Worker::new(File::open(board, count)?)))
            .collect::<Result<Vec<_>>>()?;
        if options.drain_on_signals {
            device::drain_on_signals();
        }
        let chained = workers.iter().all(|w| w.file().abilities().batched);
        let inner = Inner { workers, plans: Plans::default(), codes: Vec::new() };
        Ok(Npu {
            inner: Mutex::new(inner),
            budget: Arc::new(Budget::new(options.budget)),
            board: board.describe(),
            cores: options.cores,
            cores_of_board: board.profile().cores,
            manner: Manner { chained, job_ns: options.job_time.min(MOST).as_nanos() as u64 },
        })
    }

    /// Which board this is, for people.
    pub fn board(&self) -> &str {
        &self.board
    }

    /// Worker files, and so lanes.
    pub fn workers(&self) -> usize {
        self.lock().workers.len()
    }

    /// The budget of resident weights.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Frees scratch buffers that calls left for the next ones.
    pub fn trim(&self) {
        let mut inner = self.lock();
        inner.workers.iter_mut().for_each(Worker::trim);
        inner.codes = Vec::new();
    }

    /// Packs weights into NPU buffers, where they stay until the result is dropped. They serve
    /// calls of any M; the K steps are planned for [`PACK_ROWS`].
    ///
    /// # Errors
    /// [`Error::Memory`] when the budget, MemAvailable's floor or an address window would be
    /// exceeded; the caller then streams. [`Error::Shape`] for a size that is 0 or beyond 2^24, a
    /// group that does not fit, and a code that is not one of the format's; [`Error::Unusable`]
    /// after a fork, or when `weights` panics.
    pub fn pack<F: Format>(
        &self,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Resident<F>> {
        self.pack_for(PACK_ROWS, format, weights)
    }

    /// As [`Npu::pack`], planned for calls of `rows` rows (0 counts as 1).
    ///
    /// # Errors
    /// As [`Npu::pack`].
    pub fn pack_for<F: Format>(
        &self,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Resident<F>> {
        self.pack_over(self.cores_of_board, rows, format, weights)
    }

    /// As [`Npu::pack_for`], whole on one worker, that whose window has most room: for products
    /// that run on a [`Lane`].
    ///
    /// # Errors
    /// As [`Npu::pack`].
    pub fn pack_whole<F: Format>(
        &self,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Resident<F>> {
        self.pack_over(1, rows, format, weights)
    }

    /// Packs on so many workers at most.
    fn pack_over<F: Format>(
        &self,
        most_workers: usize,
        rows: usize,
        format: F,
        weights: &dyn Weights<F::Element>,
    ) -> Result<Resident<F>> {
        let mut inner = self.lock();
        let shape = Shape { m: rows.max(1), k: weights.k(), n: weights.n() };
        let holders = resident::holders(&inner.workers, most_workers);
        // Before a row is asked for: of these sizes nobody has any.
        let request =
            |most| request(format, format.dtype(), shape, Step::AtMost(most), self.manner);
        if shape.n.min(shape.k) == 0 || shape.n.max(shape.k) > MAX_DIM {
            return Err(unplannable(&request(format.most())));
        }
        let most = format.most_with(weights);
        let parts = resident::cut(format, shape, most, holders.len(), self.manner)
            .filter(|p| !p.is_empty())
            .ok_or_else(|| unplannable(&request(most)))?;
        let parts = holders.into_iter().zip(parts).collect();
        let cores = self.cores.as_deref();
        resident::pack(&mut inner.workers, &self.budget, format, weights, parts, cores)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Columns each of `workers` gets (npu-rk3588 7.4).
fn column_step(dtype: DType, n: usize, workers: usize) -> usize {
    n.div_ceil(workers).next_multiple_of(dtype.info().n_group)
}

/// What is known of K steps before a GEMM is planned.
#[derive(Debug, Clone, Copy)]
enum Step {
    /// The weights are packed in steps of so many channels.
    Packed(usize),
    /// A bound.
    AtMost(usize),
}

fn request<F: Format>(
    format: F,
    dtype: DType,
    shape: Shape,
    step: Step,
    manner: Manner,
) -> Request {
    let (step, most) = match step {
        Step::Packed(step) => (Some(step), step),
        Step::AtMost(most) => (None, most),
    };
    Request {
        step,
        most,
        // A group as long as K is all of it.
        group: format.group().filter(|g| *g < shape.k),
        // Integer accumulators are cleared once a kick (trap 7), and nobody has chained the rest.
        chained: manner.chained && dtype == DType::Fp16,
        job_ns: manner.job_ns,
        ..Request::new(dtype, shape)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is found again is the plan of what is asked now, whatever it differs in.
    #[test]
    fn plans_are_kept_by_all_that_was_asked() {
        let base = Request::new(DType::Int8, Shape { m: 300, k: 4096, n: 500 });
        let asked = [
            base,
            Request { dtype: DType::Bf16, ..base },
            Request { shape: Shape { m: 299, ..base.shape }, ..base },
            Request { step: Some(512), ..base },
            Request { most: 512, ..base },
            Request { group: Some(512), ..base },
            Request { chained: true, ..base },
            Request { streamed: true, ..base },
            Request { job_ns: 1_000_000, ..base },
        ];
        let mut plans = Plans::default();
        for request in asked.iter().chain(&asked) {
            let found = plans.get(*request).unwrap();
            assert_eq!(*found, Sequence::new(*request).unwrap());
        }
    }

    /// By no driver that cannot, and in no other format by one that can (trap 7).
    #[test]
    fn fp16_alone_is_chained() {
        let shape = Shape { m: 4, k: 32, n: 16 };
        for dtype in DType::ALL {
            let chained = |chained| {
                let manner = Manner { chained, job_ns: JOB_NS };
                request(Fp16, dtype, shape, Step::AtMost(32), manner).chained
            };
            assert_eq!([false, true].map(chained), [false, dtype == DType::Fp16], "{dtype:?}");
        }
    }
}
