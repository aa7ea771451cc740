//! The fp16 GEMM: `C[m, n] = sum over k of A[m, k] * W[n, k]`, of any M, K and N.
//!
//! N is split over worker files, each with an address space and a queue of its own and a thread
//! while a call lasts, because a file runs on one core at a time (kernel-and-uapi A.5). Each worker runs the
//! [`Sequence`] that the planner made for its columns. Sizes off the hardware's grid are padded
//! with zeros, exactly.
//!
//! ```no_run
//! use rocket_runtime::device::KernelBoard;
//! use rocket_runtime::layout::pack::Matrix;
//! use rocket_runtime::matmul::{Npu, Operand, Options, Rows};
//! use rocket_runtime::plan::Summation;
//! use half::f16;
//!
//! let npu = Npu::open(&KernelBoard::find()?, Options::default())?;
//! let a = vec![f16::ONE; 512 * 576]; // M x K
//! let w = vec![f16::ONE; 1536 * 576]; // N x K
//! let weights = npu.pack(&Rows::new(&w, 1536, 576))?;
//! let mut c = vec![0f32; 512 * 1536];
//! npu.gemm(Matrix::new(&a, 512, 576, 576), Operand::Resident(&weights), &mut c, None, Summation::OnChip)?;
//! # Ok::<(), rocket_runtime::Error>(())
//! ```

mod budget;
mod pool;
mod weights;
mod witness;
mod worker;

pub use budget::Budget;
pub use weights::{Resident, Rows, Weights};

use crate::device::{self, Board, File};
use crate::layout::pack::Matrix;
use crate::plan::{Sequence, Shape, Summation};
use crate::{Error, Result};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use worker::{Job, Source, Worker};

/// How to open an [`Npu`].
#[derive(Debug, Clone)]
pub struct Options {
    /// Worker files, 1 to 8. Three or more reach all cores; a few more hide the host's share
    /// (npu-rk3588 7.4).
    pub workers: usize,
    /// Bytes of resident weights at most; `None` is unlimited.
    pub budget: Option<u64>,
    /// Whether SIGINT, SIGTERM and SIGHUP wait for jobs in flight, see
    /// [`device::drain_on_signals`].
    pub drain_on_signals: bool,
    /// CPUs that the workers' threads run on; `None` for any.
    pub cores: Option<Vec<usize>>,
}

impl Default for Options {
    fn default() -> Options {
        Options { workers: 5, budget: Some(2 << 30), drain_on_signals: true, cores: None }
    }
}

/// What a GEMM multiplies the activations with.
#[derive(Debug, Clone, Copy)]
pub enum Operand<'a> {
    /// Packed before, see [`Npu::pack`].
    Resident(&'a Resident),
    /// Packed now, for this call.
    Stream(&'a dyn Weights),
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
    }
}

/// The NPU of one board, opened for matmuls.
#[derive(Debug)]
pub struct Npu {
    workers: Mutex<Vec<Worker>>,
    budget: Arc<Budget>,
    board: String,
    cores: Option<Vec<usize>>,
}

impl Npu {
    /// Opens the worker files.
    ///
    /// # Errors
    /// What [`Board::open`] says.
    pub fn open(board: &dyn Board, options: Options) -> Result<Npu> {
        let count = options.workers.clamp(1, 8);
        let workers = (0..count)
            .map(|_| Ok(Worker::new(File::open(board, count)?)))
            .collect::<Result<Vec<_>>>()?;
        if options.drain_on_signals {
            device::drain_on_signals();
        }
        let budget = Arc::new(Budget::new(options.budget));
        let cores = options.cores;
        Ok(Npu { workers: Mutex::new(workers), budget, board: board.describe(), cores })
    }

    /// Which board this is, for people.
    pub fn board(&self) -> &str {
        &self.board
    }

    /// The budget of resident weights.
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Frees scratch buffers that calls left for the next ones.
    pub fn trim(&self) {
        self.lock().iter_mut().for_each(Worker::trim);
    }

    /// Packs weights into NPU buffers, where they stay until the result is dropped.
    ///
    /// # Errors
    /// [`Error::Memory`] when the budget, MemAvailable's floor or an address window would be
    /// exceeded; the caller then streams.
    pub fn pack(&self, weights: &dyn Weights) -> Result<Resident> {
        weights::pack(&mut self.lock(), &self.budget, weights, self.cores.as_deref())
    }

    /// Multiplies. `out` is M x N, row-major; row `m` is multiplied by `row_scale[m]` if given.
    ///
    /// # Errors
    /// [`Error::Shape`] when the operands do not fit together, and whatever the device does
    /// wrong, after one retry: then `out` holds no result.
    pub fn gemm(
        &self,
        a: Matrix<'_>,
        w: Operand<'_>,
        out: &mut [f32],
        row_scale: Option<&[f32]>,
        summation: Summation,
    ) -> Result<Stats> {
        let (n, k) = match w {
            Operand::Resident(r) => (r.n(), r.k()),
            Operand::Stream(s) => (s.n(), s.k()),
        };
        let shape = Shape { m: a.rows(), k: a.cols(), n };
        check(shape, k, out, row_scale)?;
        let mut workers = self.lock();
        let jobs = match w {
            Operand::Resident(r) => resident_jobs(r, shape, summation)?,
            Operand::Stream(s) => stream_jobs(s, workers.len(), shape, summation)?,
        };
        run(&mut workers, jobs, a, out, row_scale, self.cores.as_deref())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.workers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn check(shape: Shape, k: usize, out: &[f32], row_scale: Option<&[f32]>) -> Result<()> {
    let Shape { m, n, .. } = shape;
    let refuse = |why: String| Err(Error::Shape { what: format!("a GEMM of {shape:?}"), why });
    if m == 0 || n == 0 || k == 0 {
        return refuse("every dimension must be at least 1".into());
    }
    if shape.k != k {
        return refuse(format!("the weights have K = {k}"));
    }
    if out.len() != m * n {
        return refuse(format!("the output holds {} elements", out.len()));
    }
    if row_scale.is_some_and(|s| s.len() != m) {
        return refuse("there must be one scale a row".into());
    }
    Ok(())
}

fn unplannable(shape: Shape) -> Error {
    Error::Shape {
        what: format!("a GEMM of {shape:?}"),
        why: "a dimension is beyond 2^24 (npu-rk3588 7.1)".into(),
    }
}

/// Columns each of `workers` gets (npu-rk3588 7.4).
fn column_step(n: usize, workers: usize) -> usize {
    n.div_ceil(workers).next_multiple_of(16)
}

fn resident_jobs<'a>(r: &'a Resident, shape: Shape, summation: Summation) -> Result<Vec<Job<'a>>> {
    r.parts()
        .map(|(columns, plan, bo)| {
            let part = Shape { n: columns.len(), ..shape };
            let sequence = Sequence::on_packed(part, plan, summation).ok_or(unplannable(shape))?;
            Ok(Job { columns, sequence, weights: Source::Packed(bo) })
        })
        .collect()
}

fn stream_jobs<'a>(
    s: &'a dyn Weights,
    workers: usize,
    shape: Shape,
    summation: Summation,
) -> Result<Vec<Job<'a>>> {
    let step = column_step(shape.n, workers);
    (0..shape.n)
        .step_by(step)
        .map(|first| {
            let columns = first..(first + step).min(shape.n);
            let part = Shape { n: columns.len(), ..shape };
            let sequence = Sequence::new(part, summation).ok_or(unplannable(shape))?;
            Ok(Job { columns, sequence, weights: Source::Rows(s) })
        })
        .collect()
}

/// Runs each job on a worker of its own; worker `i` owns the address space of part `i`.
fn run(
    workers: &mut [Worker],
    jobs: Vec<Job<'_>>,
    a: Matrix<'_>,
    out: &mut [f32],
    row_scale: Option<&[f32]>,
    cores: Option<&[usize]>,
) -> Result<Stats> {
    let widths: Vec<usize> = jobs.iter().map(|j| j.columns.len()).collect();
    let parts = split_columns(out, &widths);
    std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter_mut()
            .zip(jobs)
            .zip(parts)
            .map(|((worker, job), mut rows)| {
                scope.spawn(move || {
                    device::leave_signals_to_others();
                    cores.inspect(|c| crate::board::pin(c));
                    worker.run(&job, a, &mut rows, row_scale)
                })
            })
            .collect();
        let results: Vec<Result<Stats>> = threads
            .into_iter()
            .map(|t| {
                t.join().unwrap_or_else(|_| {
                    Err(Error::Unusable { why: "a worker thread panicked".into() })
                })
            })
            .collect();
        let mut total = Stats::default();
        for r in results {
            total += r?;
        }
        Ok(total)
    })
}

/// One list of row segments a worker, so that each writes its columns in place.
fn split_columns<'a>(out: &'a mut [f32], widths: &[usize]) -> Vec<Vec<&'a mut [f32]>> {
    let n: usize = widths.iter().sum();
    let mut parts: Vec<Vec<&mut [f32]>> = widths.iter().map(|_| Vec::new()).collect();
    for mut row in out.chunks_exact_mut(n) {
        for (part, &width) in parts.iter_mut().zip(widths) {
            let (mine, rest) = row.split_at_mut(width);
            part.push(mine);
            row = rest;
        }
    }
    parts
}
