//! Runs the reference's sequences as driver jobs (npu-rk3588 7.3 to 7.5, 8.4).

use super::values::{get, put};
use super::{Place, Sequence, Share, Task};
use rocket_runtime::device::{self, Bo, Board, File};
use rocket_runtime::layout::{feature_index, output_index, weight_index};
use rocket_runtime::program::{Ew, MATMUL_WORDS, MatmulTask, Operand, SLOT_BYTES};
use rocket_runtime::uapi;
use rocket_runtime::{Error, Result};
use std::collections::BTreeMap;
use std::sync::Arc;

/// When weights are packed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Residency {
    /// Before the call (7.5).
    Resident,
    /// In the call.
    Streaming,
}

/// What is waited for of K steps that are summed on chip.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Each step, before the next is submitted.
    Each,
    /// The last: all are queued at once.
    Last,
}

/// Operands of small integers: features by row and channel, weights by column and channel.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct Data<'a> {
    /// A[m, k].
    pub features: &'a dyn Fn(usize, usize) -> i8,
    /// W[n, k].
    pub weights: &'a dyn Fn(usize, usize) -> i8,
}

/// Runs `shares`, each on a file of its own, one after another: host time is not what is counted.
/// `begin` is called when everything is ready that comes before the call. With `data` the product
/// is returned, row-major; without, the same calls are made on objects of zeros.
///
/// # Errors
/// What the device says.
pub fn replay(
    board: &dyn Board,
    shares: &[Share],
    waits: Waits,
    data: Option<Data<'_>>,
    begin: impl FnOnce(),
) -> Result<Option<Vec<f64>>> {
    let mut workers = shares
        .iter()
        .map(|share| Worker::new(File::open(board, shares.len())?, share, data))
        .collect::<Result<Vec<_>>>()?;
    let resident = |w: &&mut Worker<'_>| w.share.residency == Residency::Resident;
    workers.iter_mut().filter(resident).try_for_each(Worker::pack_weights)?;
    begin();
    let n = shares.last().map_or(0, |s| s.columns.end);
    let m = shares.first().map_or(0, |s| s.sequence.shape.m);
    let mut product = data.map(|_| vec![0.0; m * n]);
    for worker in &mut workers {
        if worker.share.residency == Residency::Streaming {
            worker.pack_weights()?;
        }
        worker.run(waits, product.as_deref_mut(), n)?;
    }
    Ok(product)
}

/// An output object: its bytes, and which of the two it is.
type Output = (usize, usize);

struct Worker<'a> {
    // Before the file, so that they are closed while it is open.
    features: Bo,
    weights: Bo,
    programs: Bo,
    outputs: BTreeMap<Output, Bo>,
    file: Arc<File>,
    share: &'a Share,
    data: Option<Data<'a>>,
}

impl<'a> Worker<'a> {
    fn new(file: Arc<File>, share: &'a Share, data: Option<Data<'a>>) -> Result<Worker<'a>> {
        let s = &share.sequence;
        let (p, slots) = (&s.plan, s.slots());
        let mut outputs = BTreeMap::new();
        for job in 0..s.jobs.len() {
            let output = output_of(s, job);
            if let std::collections::btree_map::Entry::Vacant(free) = outputs.entry(output) {
                free.insert(Bo::new(&file, output.0, "results")?);
            }
        }
        Ok(Worker {
            features: Bo::new(&file, p.n_mt * p.n_kt * slots.input, "features")?,
            weights: Bo::new(&file, p.n_nt * p.n_kt * slots.weights, "weights")?,
            programs: Bo::new(&file, s.tasks().count() * SLOT_BYTES, "programs")?,
            outputs,
            file,
            share,
            data,
        })
    }

    fn pack_weights(&mut self) -> Result<()> {
        let (s, info) = (&self.share.sequence, self.share.sequence.dtype.info());
        let (data, first) = (self.data, self.share.columns.start);
        self.weights.fill(|bytes: &mut [u8]| {
            let Some(data) = data else { return };
            bytes.fill(0);
            for (at, task) in once(s, |t| t.weights) {
                let (from, t) = (s.origin(task), task.extent);
                for i in 0..t.n * t.k {
                    let (n, k) = (i / t.k, i % t.k);
                    let v = (data.weights)(first + from.n + n, from.k + k);
                    put(s.dtype, &mut bytes[at..], weight_index(info, t.k, n, k), v);
                }
            }
        })
    }

    fn pack_features(&mut self) -> Result<()> {
        let (s, info, data) = (&self.share.sequence, self.share.sequence.dtype.info(), self.data);
        self.features.fill(|bytes: &mut [u8]| {
            let Some(data) = data else { return };
            bytes.fill(0);
            for (at, task) in once(s, |t| t.input) {
                let (from, t) = (s.origin(task), task.extent);
                for i in 0..t.m * t.k {
                    let (m, k) = (i / t.k, i % t.k);
                    let v = (data.features)(from.m + m, from.k + k);
                    put(s.dtype, &mut bytes[at..], feature_index(info.c2, t.m, m, k), v);
                }
            }
        })
    }

    fn load_programs(&mut self) -> Result<()> {
        let s = &self.share.sequence;
        let mut encoded = Vec::new();
        for (j, job) in s.jobs.iter().enumerate() {
            for task in &job.tasks {
                let words = self.program(j, task).encode().map_err(|e| Error::Shape {
                    what: format!("a tile of {:?}", task.extent),
                    why: e.to_string(),
                })?;
                encoded.push(words);
            }
        }
        self.programs.fill(|dst: &mut [u64]| {
            for (slot, words) in dst.chunks_exact_mut(SLOT_BYTES / 8).zip(&encoded) {
                slot.iter_mut().zip(words).for_each(|(to, word)| *to = word.0);
            }
        })
    }

    fn program(&self, job: usize, task: &Task) -> MatmulTask {
        let s = &self.share.sequence;
        let (bytes, _) = output_of(s, job);
        let iova = |p: Place| self.outputs[&(bytes, p.buffer)].iova() + p.offset as u32;
        MatmulTask {
            dtype: s.dtype,
            m: task.extent.m as u32,
            k: task.extent.k as u32,
            n: task.extent.n as u32,
            input: self.features.iova() + task.input as u32,
            weights: self.weights.iova() + task.weights as u32,
            output: iova(task.output),
            operand: task.add.map(|p| Operand { op: Ew::Add, iova: iova(p) }),
            reuse: task.reuse,
        }
    }

    fn run(&mut self, waits: Waits, mut product: Option<&mut [f64]>, n: usize) -> Result<()> {
        let s = &self.share.sequence;
        self.pack_features()?;
        self.load_programs()?;
        let mut first = 0;
        for last in 0..s.jobs.len() {
            if waits == Waits::Last && !s.delivers(last) {
                continue;
            }
            let jobs: Vec<_> = (first..=last).map(|j| self.driver_job(j)).collect();
            let pending = self.file.submit(&jobs)?;
            first = last + 1;
            match &mut product {
                // The read below is the one PREP of this job; a wait would make it two.
                Some(_) if s.delivers(last) => std::mem::forget(pending),
                _ => pending.wait()?,
            }
            drop(jobs);
            if let Some(product) = product.as_deref_mut().filter(|_| s.delivers(last)) {
                self.add_results(last, product, n)?;
            }
        }
        Ok(())
    }

    fn driver_job(&self, j: usize) -> device::Job<'_> {
        let s = &self.share.sequence;
        let before: usize = s.jobs[..j].iter().map(|job| job.tasks.len()).sum();
        let (bytes, buffer) = output_of(s, j);
        let mut reads = vec![&self.programs, &self.features, &self.weights];
        let operand = s.jobs[j].tasks[0].add;
        reads.extend(operand.map(|p| &self.outputs[&(bytes, p.buffer)]));
        device::Job {
            tasks: (before..before + s.jobs[j].tasks.len())
                .map(|slot| uapi::Task {
                    regcmd: self.programs.iova() + (slot * SLOT_BYTES) as u32,
                    regcmd_count: MATMUL_WORDS as u32,
                })
                .collect(),
            reads,
            writes: vec![&self.outputs[&(bytes, buffer)]],
            batched: false,
        }
    }

    /// Reads what a job wrote and adds it to the product of `n` columns.
    fn add_results(&mut self, j: usize, product: &mut [f64], n: usize) -> Result<()> {
        let (s, first) = (&self.share.sequence, self.share.columns.start);
        let Some(bo) = self.outputs.get_mut(&output_of(s, j)) else { return Ok(()) };
        bo.read(|bytes: &[u8]| {
            for task in &s.jobs[j].tasks {
                let (from, t) = (s.origin(task), task.extent);
                for i in 0..t.m * t.n {
                    let (row, column) = (i / t.n, i % t.n);
                    let at = output_index(s.dtype.info().c2_out, t.m, row, column);
                    product[(from.m + row) * n + first + from.n + column] +=
                        get(s.dtype, &bytes[task.output.offset..], at);
                }
            }
        })
    }
}

/// The object that job `j` writes: it holds the job's slots.
fn output_of(s: &Sequence, j: usize) -> Output {
    let tasks = &s.jobs[j].tasks;
    (tasks.len() * s.slots().output, tasks[0].output.buffer)
}

/// One task for each place of an operand.
fn once(s: &Sequence, place: impl Fn(&Task) -> usize) -> BTreeMap<usize, &Task> {
    s.tasks().map(|t| (place(t), t)).collect()
}
