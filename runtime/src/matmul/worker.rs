//! One worker: a file, its scratch buffers, and the loop that runs a [`Sequence`] on them.

use super::operand::Stored;
use super::output::Out;
use super::pool::Pool;
use super::resident::{Columns, Scratch, pack_columns};
use super::{Stats, Times, witness};
use crate::device::{self, Bo, File};
use crate::kernels::{self, Bytes};
use crate::plan::{Group, Place, Sequence, Shape, Tile};
use crate::program::{Ew, MATMUL_WORDS, MatmulTask, Operand, SLOT_BYTES, Word, chain};
use crate::uapi::Task;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

#[derive(Debug)]
pub(super) struct Worker {
    file: Arc<File>,
    pool: Pool,
    /// Bytes of this file's window that resident weights hold.
    window: Arc<AtomicU64>,
    scratch: Scratch,
    /// Not yet in any call's figures.
    times: Times,
}

/// Nanoseconds since then.
fn ns(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// A worker's share of a GEMM.
#[derive(Clone)]
pub(super) struct Share<'a> {
    /// Which of the workers has it.
    pub worker: usize,
    pub columns: Range<usize>,
    pub sequence: Arc<Sequence>,
    pub weights: Source<'a>,
}

#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Packed(&'a Bo),
    Rows(&'a dyn Stored),
}

/// The buffers of a group's operands. The weights are those of `columns`.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub features: &'a Bo,
    pub weights: &'a Bo,
    pub columns: &'a Range<usize>,
}

/// A group that is ready to be submitted.
pub(super) struct Loaded {
    results: Results,
    regcmd: Bo,
    /// Where the programs of each job begin.
    starts: Vec<u32>,
}

impl Loaded {
    /// Its driver jobs.
    pub(super) fn jobs<'b>(
        &'b self,
        s: &Sequence,
        group: &Group,
        operands: Operands<'b>,
    ) -> Vec<device::Job<'b>> {
        device_jobs(s, group, &self.starts, || {
            let reads = vec![&self.regcmd, operands.features, operands.weights];
            let images = self.results.images.iter().flatten();
            (reads, std::iter::once(&self.results.witness).chain(images).collect())
        })
    }
}

/// The buffers of a group's results.
struct Results {
    images: Vec<Option<Bo>>,
    witness: Bo,
}

impl Worker {
    pub(super) fn new(file: Arc<File>) -> Worker {
        Worker {
            pool: Pool::new(file.clone()),
            file,
            window: Arc::default(),
            scratch: Scratch::default(),
            times: Times::default(),
        }
    }

    /// What time went into since this was last asked.
    pub(super) fn take_times(&mut self) -> Times {
        std::mem::take(&mut self.times)
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn window(&self) -> &Arc<AtomicU64> {
        &self.window
    }

    pub(super) fn scratch(&mut self) -> &mut Scratch {
        &mut self.scratch
    }

    /// Frees scratch buffers.
    pub(super) fn trim(&mut self) {
        self.pool.clear();
        self.scratch = Scratch::default();
    }

    /// Runs the share of a GEMM with the activations `a`.
    pub(super) fn run(
        &mut self,
        share: &Share<'_>,
        a: Bytes<'_>,
        out: &mut Out<'_>,
    ) -> Result<Stats> {
        self.file.check_process()?;
        let s = &*share.sequence;
        if let Source::Packed(bo) = share.weights
            && !bo.is_on(&self.file)
        {
            return Err(foreign());
        }
        let mut stats = planned(s);
        let features = self.pack_features(s, a)?;
        let mut streamed: Option<(Range<usize>, Bo)> = None;
        for group in &s.groups {
            let whole = 0..s.padded.n;
            let (columns, weights) = match share.weights {
                Source::Packed(bo) => (&whole, bo),
                Source::Rows(rows) => {
                    // Blocks of rows follow one another on the same columns.
                    if streamed.as_ref().is_none_or(|(c, _)| *c != group.columns) {
                        self.pool.put(streamed.take().map(|(_, bo)| bo));
                        let bo = self.stream(s, rows, &share.columns, &group.columns)?;
                        streamed = Some((group.columns.clone(), bo));
                    }
                    match &streamed {
                        Some((columns, bo)) => (columns, bo),
                        None => continue,
                    }
                }
            };
            let operands = Operands { features: &features, weights, columns };
            self.group(s, group, operands, out, &mut stats)?;
        }
        self.pool.put(streamed.map(|(_, bo)| bo));
        self.pool.put([features]);
        stats.times += self.take_times();
        Ok(stats)
    }

    /// Gives buffers back.
    pub(super) fn put(&mut self, bos: impl IntoIterator<Item = Bo>) {
        self.pool.put(bos);
    }

    /// All feature tiles of the sequence, without gaps: tile rows one after another, in each its
    /// K steps.
    pub(super) fn pack_features(&mut self, s: &Sequence, a: Bytes<'_>) -> Result<Bo> {
        let begun = Instant::now();
        let t = s.request.dtype.info();
        let mut bo = self.pool.operand(t.row_bytes(s.padded.m * s.padded.k), "activations")?;
        bo.fill(|dst: &mut [u8]| {
            for m0 in (0..s.padded.m).step_by(s.plan.mt) {
                let m = s.plan.mt.min(s.padded.m - m0);
                let rows = a.slice_rows(m0, m);
                for k0 in (0..s.padded.k).step_by(s.plan.kt) {
                    let k = s.plan.kt.min(s.padded.k - k0);
                    let at = t.row_bytes(m0 * s.padded.k + k0 * m);
                    let part = rows.slice_bytes(t.row_bytes(k0), t.row_bytes(k));
                    kernels::feature(part, m, &mut dst[at..][..t.row_bytes(m * k)]);
                }
            }
        })?;
        self.times.activations += ns(begun);
        Ok(bo)
    }

    /// Packs the weights of a block of columns.
    pub(super) fn stream(
        &mut self,
        s: &Sequence,
        rows: &dyn Stored,
        share: &Range<usize>,
        columns: &Range<usize>,
    ) -> Result<Bo> {
        let begun = Instant::now();
        let t = s.request.dtype.info();
        let len = t.row_bytes(columns.len() * s.padded.k);
        let mut bo = self.pool.operand(len, "streamed weights")?;
        let first = share.start + columns.start;
        let part = Columns {
            dtype: s.request.dtype,
            rows: first..(share.start + columns.end).min(share.end),
            padded: columns.len(),
            k: s.padded.k,
            step: s.plan.kt,
        };
        let scratch = &mut self.scratch;
        bo.fill(|dst| pack_columns(rows, &part, scratch, dst))??;
        self.times.weights += ns(begun);
        Ok(bo)
    }

    /// Runs one group, once more if a job is lost, and delivers its results.
    fn group(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: Operands<'_>,
        out: &mut Out<'_>,
        stats: &mut Stats,
    ) -> Result<()> {
        match self.attempt(s, group, operands, out, stats) {
            // Once: the driver has reset the core by now.
            Err(Error::JobLost { job, jobs, doing }) => {
                tracing::warn!("job {job} of {jobs} lost ({doing}); running the group again");
                stats.retries += 1;
                self.attempt(s, group, operands, out, stats)
            }
            other => other,
        }
    }

    /// Runs one group and delivers its results.
    pub(super) fn attempt(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: Operands<'_>,
        out: &mut Out<'_>,
        stats: &mut Stats,
    ) -> Result<()> {
        let loaded = self.load(s, group, operands)?;
        let jobs = loaded.jobs(s, group, operands);
        self.submit(&jobs, stats)?;
        drop(jobs);
        self.finish(s, group, loaded, out, true)
    }

    /// Makes a group ready to be submitted.
    pub(super) fn load(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: Operands<'_>,
    ) -> Result<Loaded> {
        let results = self.results(s, group)?;
        let (regcmd, starts) = self.programs(s, group, operands, &results)?;
        Ok(Loaded { results, regcmd, starts })
    }

    /// Runs jobs to their end.
    pub(super) fn submit(&self, jobs: &[device::Job<'_>], stats: &mut Stats) -> Result<()> {
        stats.jobs += jobs.len() as u64;
        stats.tasks += jobs.iter().map(|j| j.tasks.len() as u64).sum::<u64>();
        for part in jobs.chunks(device::MAX_JOBS) {
            stats.submits += 1;
            let begun = Instant::now();
            self.file.submit(part)?.wait()?;
            stats.times.npu += ns(begun);
        }
        Ok(())
    }

    /// Delivers what a group's jobs left. `last`: they were the last of their submit, whose
    /// witness was made readable by the wait.
    pub(super) fn finish(
        &mut self,
        s: &Sequence,
        group: &Group,
        mut loaded: Loaded,
        out: &mut Out<'_>,
        last: bool,
    ) -> Result<()> {
        let begun = Instant::now();
        loaded.results.deliver(s, group, out, last)?;
        self.times.results += ns(begun);
        self.pool.put(loaded.results.images.into_iter().flatten());
        self.pool.put([loaded.results.witness, loaded.regcmd]);
        Ok(())
    }

    /// Buffers for what the group writes. Each job's last task has a place of its own, marked
    /// here: the job's witness.
    fn results(&mut self, s: &Sequence, group: &Group) -> Result<Results> {
        let ob = s.request.dtype.info().out_bytes;
        let images = group
            .images
            .iter()
            .map(|&len| match len {
                0 => Ok(None),
                len => self.pool.exact(len * ob, "results").map(Some),
            })
            .collect::<Result<_>>()?;
        let slot = group.witness * ob;
        let mut witness = self.pool.exact(group.jobs.len() * slot, "results")?;
        // What is not marked is written by the job or not read.
        witness.fill(|bytes: &mut [u8]| {
            for (job, cube) in group.jobs.iter().zip(bytes.chunks_exact_mut(slot)) {
                if let Some(last) = job.tiles.last() {
                    witness::mark(s.request.dtype, cube, last.extent.m, last.extent.n);
                }
            }
        })?;
        Ok(Results { images, witness })
    }

    /// The programs of all jobs in one buffer, and where each job's begin.
    fn programs(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: Operands<'_>,
        results: &Results,
    ) -> Result<(Bo, Vec<u32>)> {
        let sizes: Vec<usize> = group
            .jobs
            .iter()
            .map(|j| j.tiles.len() * if chained(s, j.tiles.len()) { CHAINED } else { SLOT_BYTES })
            // Programs begin on 16-byte boundaries (npu-rk3588 1.4).
            .map(|bytes| bytes.next_multiple_of(SLOT_BYTES))
            .collect();
        let mut bo = self.pool.exact(sizes.iter().sum(), "programs")?;
        let base = bo.iova();
        let starts: Vec<u32> = sizes
            .iter()
            .scan(base, |at, size| {
                let start = *at;
                *at += *size as u32;
                Some(start)
            })
            .collect();
        bo.fill(|dst: &mut [u64]| {
            for (job, &start) in group.jobs.iter().zip(&starts) {
                let at = (start - base) as usize / 8;
                load(s, group, &job.tiles, operands, results, start, &mut dst[at..])?;
            }
            Ok(())
        })??;
        Ok((bo, starts))
    }
}

/// Bytes from one program of a kick to the next.
const CHAINED: usize = chain::stride(MATMUL_WORDS);

/// Whether a job of so many tasks runs in one kick.
fn chained(s: &Sequence, tasks: usize) -> bool {
    s.request.chained && tasks > 1
}

/// Encodes a job's programs into `dst`, which lies at `start`.
fn load(
    s: &Sequence,
    group: &Group,
    tiles: &[Tile],
    operands: Operands<'_>,
    results: &Results,
    start: u32,
    dst: &mut [u64],
) -> Result<()> {
    let encode = |tile: &Tile| -> Result<[Word; MATMUL_WORDS]> {
        let t = task(s, group, tile, operands, results);
        t.encode().map_err(|e| Error::Shape {
            what: format!("a tile of {} x {} x {}", t.m, t.k, t.n),
            why: e.to_string(),
        })
    };
    if chained(s, tiles.len()) {
        let programs: Vec<[Word; MATMUL_WORDS]> =
            tiles.iter().map(encode).collect::<Result<_>>()?;
        let words = chain::link(&programs, start);
        dst.iter_mut().zip(words).for_each(|(place, word)| *place = word.0);
    } else {
        for (tile, slot) in tiles.iter().zip(dst.chunks_exact_mut(SLOT_BYTES / 8)) {
            slot.iter_mut().zip(encode(tile)?).for_each(|(place, word)| *place = word.0);
        }
    }
    Ok(())
}

fn task(
    s: &Sequence,
    group: &Group,
    tile: &Tile,
    operands: Operands<'_>,
    results: &Results,
) -> MatmulTask {
    let t = s.request.dtype.info();
    let Shape { m, k, n } = tile.extent;
    let feature = tile.origin.m * s.padded.k + tile.origin.k * m;
    // K steps one after another, in each its columns.
    let column = tile.origin.n - operands.columns.start;
    let weight = tile.origin.k * operands.columns.len() + column * k;
    let iova = |place| results.iova(s, group, place);
    MatmulTask {
        dtype: s.request.dtype,
        m: m as u32,
        k: k as u32,
        n: n as u32,
        input: operands.features.iova() + t.row_bytes(feature) as u32,
        weights: operands.weights.iova() + t.row_bytes(weight) as u32,
        output: iova(tile.output),
        operand: tile.operand.map(|place| Operand { op: Ew::Add, iova: iova(place) }),
        reuse: tile.reuse,
    }
}

/// The driver jobs of a group, whose programs begin at `starts`.
fn device_jobs<'b>(
    s: &Sequence,
    group: &Group,
    starts: &[u32],
    buffers: impl Fn() -> (Vec<&'b Bo>, Vec<&'b Bo>),
) -> Vec<device::Job<'b>> {
    group
        .jobs
        .iter()
        .zip(starts)
        .map(|(job, &start)| {
            let batched = chained(s, job.tiles.len());
            let stride = if batched { CHAINED } else { SLOT_BYTES };
            let tasks = (0..job.tiles.len())
                .map(|i| Task {
                    regcmd: start + (i * stride) as u32,
                    regcmd_count: MATMUL_WORDS as u32,
                })
                .collect();
            let (reads, writes) = buffers();
            device::Job { tasks, reads, writes, batched }
        })
        .collect()
}

impl Results {
    fn iova(&self, s: &Sequence, group: &Group, place: Place) -> u32 {
        let ob = s.request.dtype.info().out_bytes;
        let (buffer, element) = match place {
            // An image that a place names has a buffer; address 0 is the page that faults.
            Place::Image { index, offset } => (self.images[index].as_ref(), offset),
            Place::Witness { job } => (Some(&self.witness), job * group.witness),
        };
        buffer.map_or(0, Bo::iova) + (element * ob) as u32
    }

    /// Checks that every job ran, and delivers the group's tiles.
    fn deliver(
        &mut self,
        s: &Sequence,
        group: &Group,
        out: &mut Out<'_>,
        waited: bool,
    ) -> Result<()> {
        let ob = s.request.dtype.info().out_bytes;
        let slot = group.witness * ob;
        // All results lie in one image, but for the witnesses.
        let from = group.results.iter().flat_map(|r| &r.cubes).find_map(|p| match p {
            Place::Image { index, .. } => Some(*index),
            Place::Witness { .. } => None,
        });
        let Results { images, witness } = self;
        if !waited {
            witness.read(|_: &[u8]| ())?;
        }
        let marks: &[u8] = witness.prepared();
        let lost = group.jobs.iter().zip(marks.chunks_exact(slot)).position(|(job, cube)| {
            job.tiles
                .last()
                .is_some_and(|t| !witness::written(s.request.dtype, cube, t.extent.m, t.extent.n))
        });
        if let Some(job) = lost {
            let jobs = group.jobs.len();
            return Err(Error::JobLost { job, jobs, doing: describe(s) });
        }
        let mut all = |values: &[u8]| {
            for tile in &group.results {
                let len = tile.extent.m * tile.extent.n * ob;
                out.deliver(s, tile, |i| match tile.cubes[i] {
                    Place::Witness { job } => &marks[job * slot..][..len],
                    Place::Image { offset, .. } => &values[offset * ob..][..len],
                });
            }
        };
        match from.and_then(|index| images[index].as_mut()) {
            Some(image) => image.read(all),
            None => {
                all(&[]);
                Ok(())
            }
        }
    }
}

/// What a sequence will run, without its jobs.
pub(super) fn planned(s: &Sequence) -> Stats {
    Stats {
        executed_macs: s.executed_macs(),
        padding_macs: s.padding_macs(),
        workers: 1,
        ..Stats::default()
    }
}

/// Weights whose buffers are on another Npu's files.
pub(super) fn foreign() -> Error {
    Error::Unusable {
        why: "the weights were packed for another Npu; pack them with this one".into(),
    }
}

fn describe(s: &Sequence) -> String {
    let Shape { m, k, n } = s.request.shape;
    format!("{} matmul of {m} x {k} x {n}", s.request.dtype.info().name)
}
