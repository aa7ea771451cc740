//! One worker: a file, its scratch buffers, and the loop that runs a [`Sequence`] on them.

use super::pool::Pool;
use super::weights::{Weights, pack_tiles};
use super::{Stats, witness};
use crate::device::{self, Bo, File};
use crate::layout::pack::{self, Matrix};
use crate::plan::jobs::{Group, Sequence, Summation, Tile};
use crate::program::{Ew, MATMUL_WORDS, MatmulTask, Operand, SLOT_BYTES, Word};
use crate::uapi::Task;
use crate::{Error, Result};
use half::f16;
use half::slice::HalfBitsSliceExt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, Instant};

/// Longest a group that lost a job may have taken to be run again.
const WORTH_A_RETRY: Duration = Duration::from_millis(device::JOB_TIMEOUT_MS * 9 / 10);

#[derive(Debug)]
pub(super) struct Worker {
    file: Arc<File>,
    pool: Pool,
    /// Bytes of this file's window that resident weights hold.
    window: Arc<AtomicU64>,
}

/// A worker's share of a GEMM.
#[derive(Debug)]
pub(super) struct Job<'a> {
    pub columns: Range<usize>,
    pub sequence: Sequence,
    pub weights: Source<'a>,
}

#[derive(Debug)]
pub(super) enum Source<'a> {
    Packed(&'a Bo),
    Rows(&'a dyn Weights),
}

/// The buffers of a group's operands, and the tile column its weights start at.
struct Operands<'a> {
    features: &'a Bo,
    weights: &'a Bo,
    first_column: usize,
}

impl Worker {
    pub(super) fn new(file: Arc<File>) -> Worker {
        Worker { pool: Pool::new(file.clone()), file, window: Arc::default() }
    }

    pub(super) fn file(&self) -> &Arc<File> {
        &self.file
    }

    pub(super) fn window(&self) -> &Arc<AtomicU64> {
        &self.window
    }

    /// Frees scratch buffers.
    pub(super) fn trim(&mut self) {
        self.pool.clear();
    }

    /// Runs the share. `rows` are this worker's columns of each output row.
    pub(super) fn run(
        &mut self,
        job: &Job<'_>,
        a: Matrix<'_>,
        rows: &mut [&mut [f32]],
        scale: Option<&[f32]>,
    ) -> Result<Stats> {
        self.file.check_process()?;
        let s = &job.sequence;
        if let Source::Packed(bo) = job.weights
            && !bo.is_on(&self.file)
        {
            return Err(Error::Shape {
                what: describe(s),
                why: "the weights were packed for another Npu".into(),
            });
        }
        let mut stats = Stats {
            executed_macs: s.executed_macs(),
            padding_macs: s.padding_macs(),
            workers: 1,
            ..Stats::default()
        };
        if s.summation == Summation::Host {
            rows.iter_mut().for_each(|r| r.fill(0.0));
        }
        let features = self.pack_features(s, a)?;
        for group in &s.groups {
            self.group(job, group, &features, rows, scale, &mut stats)?;
        }
        if let (Summation::Host, Some(scale)) = (s.summation, scale) {
            for (row, x) in rows.iter_mut().zip(scale) {
                row.iter_mut().for_each(|c| *c *= x);
            }
        }
        self.pool.put([features]);
        Ok(stats)
    }

    /// All feature tiles of the sequence, without gaps: tile rows one after another, in each its
    /// K steps.
    fn pack_features(&mut self, s: &Sequence, a: Matrix<'_>) -> Result<Bo> {
        let len = s.padded.m * s.padded.k;
        let mut bo = self.pool.take(len * size_of::<f16>(), "activations")?;
        bo.fill(|dst: &mut [f16]| {
            for mi in 0..s.plan.n_mt {
                let m0 = mi * s.plan.mt;
                let m = s.plan.mt.min(s.padded.m - m0);
                let part = a.slice_rows(m0, m);
                for ki in 0..s.plan.n_kt {
                    let k0 = ki * s.plan.kt;
                    let k = s.plan.kt.min(s.padded.k - k0);
                    let at = m0 * s.padded.k + k0 * m;
                    pack::feature_f16(part, k0, m, k, &mut dst[at..][..m * k]);
                }
            }
        })?;
        Ok(bo)
    }

    /// Runs one group, once more if a job is lost, and delivers its results.
    fn group(
        &mut self,
        job: &Job<'_>,
        group: &Group,
        features: &Bo,
        rows: &mut [&mut [f32]],
        scale: Option<&[f32]>,
        stats: &mut Stats,
    ) -> Result<()> {
        let s = &job.sequence;
        let columns = columns_of(group);
        let mut streamed = None;
        let operands = match job.weights {
            Source::Packed(bo) => Operands { features, weights: bo, first_column: 0 },
            Source::Rows(source) => {
                let last = (columns.end * s.plan.nt).min(s.padded.n);
                let len = (last - columns.start * s.plan.nt) * s.padded.k;
                let mut bo = self.pool.take(len * size_of::<f16>(), "streamed weights")?;
                bo.fill(|dst| {
                    pack_tiles(source, &job.columns, &s.plan, s.padded.k, columns.clone(), dst);
                })?;
                let weights = streamed.insert(bo);
                Operands { features, weights, first_column: columns.start }
            }
        };
        let mut attempt = |stats: &mut Stats| match s.summation {
            Summation::OnChip => self.on_chip(s, group, &operands, rows, scale, stats),
            Summation::Host => self.host(s, group, &operands, rows, stats),
        };
        let start = Instant::now();
        match attempt(stats) {
            // A job that ran into the driver's time limit would do so again.
            Err(Error::JobLost { job, jobs, doing }) if start.elapsed() < WORTH_A_RETRY => {
                tracing::warn!("job {job} of {jobs} lost ({doing}); running the group again");
                stats.retries += 1;
                attempt(stats)?;
            }
            other => other?,
        }
        self.pool.put(streamed);
        Ok(())
    }

    /// One job a K step, queued together. Step `ki` reads what step `ki - 1` wrote and writes the
    /// other of two buffers (npu-rk3588 6.4), except for the last tile: each step writes that one
    /// to a place of its own, marked before, which is the step's witness.
    fn on_chip(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: &Operands<'_>,
        rows: &mut [&mut [f32]],
        scale: Option<&[f32]>,
        stats: &mut Stats,
    ) -> Result<()> {
        let steps = group.jobs.len();
        let last = group.jobs[0].tiles.len() - 1;
        let slot = output_slot(s) * size_of::<f16>();
        let mut turns = [
            self.pool.take(last * slot, "results")?,
            self.pool.take(if steps > 1 { last * slot } else { 0 }, "results")?,
        ];
        let mut witness = self.pool.take(steps * slot, "results")?;
        let of_witness = group.jobs[0].tiles[last].extent;
        witness.write(|w: &mut [u16]| {
            for cube in w.chunks_exact_mut(slot / 2).take(steps) {
                witness::mark(cube, of_witness.m, of_witness.n);
            }
        })?;
        let place = |ki: usize, i: usize| match i == last {
            true => witness.iova() + (ki * slot) as u32,
            false => turns[ki % 2].iova() + (i * slot) as u32,
        };
        let programs = group.jobs.iter().enumerate().flat_map(|(ki, job)| {
            job.tiles.iter().enumerate().map(move |(i, tile)| {
                let operand = (ki > 0).then(|| Operand { op: Ew::Add, iova: place(ki - 1, i) });
                task(s, tile, operands, place(ki, i), operand)
            })
        });
        let regcmd = self.load_programs(programs)?;
        let jobs = device_jobs(group, &regcmd, operands, || vec![&witness, &turns[0], &turns[1]]);
        count(stats, &jobs);
        self.file.submit(&jobs)?.wait()?;
        drop(jobs);

        let tiles = &group.jobs[steps - 1].tiles;
        witness.read(|w: &[u16]| {
            let mut cubes = w.chunks_exact(slot / 2).take(steps);
            let lost = cubes.position(|c| !witness::written(c, of_witness.m, of_witness.n));
            if let Some(job) = lost {
                return Err(Error::JobLost { job, jobs: steps, doing: describe(s) });
            }
            let result = w[(steps - 1) * slot / 2..][..slot / 2].reinterpret_cast();
            deliver(s, &tiles[last], result, rows, scale);
            Ok(())
        })??;
        if last > 0 {
            turns[(steps - 1) % 2].read(|cubes: &[f16]| {
                for (tile, cube) in tiles[..last].iter().zip(cubes.chunks_exact(slot / 2)) {
                    deliver(s, tile, cube, rows, scale);
                }
            })?;
        }
        self.pool.put(turns);
        self.pool.put([witness, regcmd]);
        Ok(())
    }

    /// One job whose tasks each write an fp32 cube of their own, marked before; the host adds
    /// them up.
    fn host(
        &mut self,
        s: &Sequence,
        group: &Group,
        operands: &Operands<'_>,
        rows: &mut [&mut [f32]],
        stats: &mut Stats,
    ) -> Result<()> {
        let tiles = &group.jobs[0].tiles;
        let slot = output_slot(s);
        let mut results = self.pool.take(tiles.len() * slot * size_of::<f32>(), "results")?;
        results.write(|r: &mut [u32]| {
            for (tile, cube) in tiles.iter().zip(r.chunks_exact_mut(slot)) {
                witness::mark(cube, tile.extent.m, tile.extent.n);
            }
        })?;
        let base = results.iova();
        let programs = tiles.iter().enumerate().map(|(i, tile)| {
            task(s, tile, operands, base + (i * slot * size_of::<f32>()) as u32, None)
        });
        let regcmd = self.load_programs(programs)?;
        let jobs = device_jobs(group, &regcmd, operands, || vec![&results]);
        count(stats, &jobs);
        self.file.submit(&jobs)?.wait()?;
        drop(jobs);

        results.read(|r: &[u32]| {
            let mut cubes = tiles.iter().zip(r.chunks_exact(slot));
            if !cubes.all(|(t, c)| witness::written(c, t.extent.m, t.extent.n)) {
                return Err(Error::JobLost { job: 0, jobs: 1, doing: describe(s) });
            }
            for (tile, cube) in tiles.iter().zip(bytemuck::cast_slice(r).chunks_exact(slot)) {
                for (m, row) in rows_of(tile, rows) {
                    pack::add_output_row_f32(cube, tile.extent.m, m, row);
                }
            }
            Ok(())
        })??;
        self.pool.put([results, regcmd]);
        Ok(())
    }

    fn load_programs(&mut self, tasks: impl Iterator<Item = MatmulTask>) -> Result<Bo> {
        let programs: Vec<[Word; MATMUL_WORDS]> = tasks
            .map(|t| {
                t.encode().map_err(|e| Error::Shape {
                    what: format!("a tile of {} x {} x {}", t.m, t.k, t.n),
                    why: e.to_string(),
                })
            })
            .collect::<Result<_>>()?;
        let mut bo = self.pool.take(programs.len() * SLOT_BYTES, "programs")?;
        bo.fill(|dst: &mut [u64]| {
            for (program, slot) in programs.iter().zip(dst.chunks_exact_mut(SLOT_BYTES / 8)) {
                for (word, place) in program.iter().zip(slot) {
                    *place = word.0;
                }
            }
        })?;
        Ok(bo)
    }
}

/// Elements of an output slot.
fn output_slot(s: &Sequence) -> usize {
    s.plan.mt.next_multiple_of(4) * s.plan.nt.next_multiple_of(16)
}

/// Tile columns a group works on: contiguous by construction.
fn columns_of(group: &Group) -> Range<usize> {
    let columns = group.jobs.iter().flat_map(|j| &j.tiles).map(|t| t.at[2]);
    let (low, high) = columns.fold((usize::MAX, 0), |(l, h), n| (l.min(n), h.max(n)));
    low..high + 1
}

fn task(
    s: &Sequence,
    tile: &Tile,
    operands: &Operands<'_>,
    output: u32,
    operand: Option<Operand>,
) -> MatmulTask {
    let (origin, extent) = (tile.origin, tile.extent);
    let feature = (origin.m * s.padded.k + origin.k * extent.m) * size_of::<f16>();
    let column = origin.n - operands.first_column * s.plan.nt;
    let weight = column * s.padded.k + origin.k * extent.n;
    MatmulTask {
        dtype: s.dtype,
        m: tile.extent.m as u32,
        k: tile.extent.k as u32,
        n: tile.extent.n as u32,
        input: operands.features.iova() + feature as u32,
        weights: operands.weights.iova() + (weight * size_of::<f16>()) as u32,
        output,
        operand,
        reuse: tile.reuse,
    }
}

/// The driver jobs of a group, whose programs lie one after another in `regcmd`.
fn device_jobs<'b>(
    group: &Group,
    regcmd: &'b Bo,
    operands: &Operands<'b>,
    writes: impl Fn() -> Vec<&'b Bo>,
) -> Vec<device::Job<'b>> {
    let mut next = regcmd.iova();
    let mut slots = std::iter::repeat_with(|| {
        let at = next;
        next += SLOT_BYTES as u32;
        Task { regcmd: at, regcmd_count: MATMUL_WORDS as u32 }
    });
    group
        .jobs
        .iter()
        .map(|job| device::Job {
            tasks: slots.by_ref().take(job.tiles.len()).collect(),
            reads: vec![regcmd, operands.features, operands.weights],
            writes: writes(),
        })
        .collect()
}

fn count(stats: &mut Stats, jobs: &[device::Job<'_>]) {
    stats.submits += 1;
    stats.jobs += jobs.len() as u64;
    stats.tasks += jobs.iter().map(|j| j.tasks.len() as u64).sum::<u64>();
}

/// The output segments a tile covers, with the row inside the tile. Padding has none.
fn rows_of<'r, 'o: 'r>(
    tile: &Tile,
    rows: &'r mut [&'o mut [f32]],
) -> impl Iterator<Item = (usize, &'r mut [f32])> {
    let (m0, n0) = (tile.origin.m, tile.origin.n);
    let (m, n) = (tile.extent.m, tile.extent.n);
    rows.iter_mut().skip(m0).take(m).enumerate().map(move |(i, row)| {
        let end = (n0 + n).min(row.len());
        (i, &mut row[n0..end])
    })
}

fn deliver(
    s: &Sequence,
    tile: &Tile,
    cube: &[f16],
    rows: &mut [&mut [f32]],
    scale: Option<&[f32]>,
) {
    debug_assert_eq!(s.summation, Summation::OnChip);
    for (m, row) in rows_of(tile, rows) {
        pack::output_row_f16(cube, tile.extent.m, m, row);
        if let Some(scale) = scale {
            let x = scale[tile.origin.m + m];
            row.iter_mut().for_each(|c| *c *= x);
        }
    }
}

fn describe(s: &Sequence) -> String {
    format!("matmul of {} x {} x {}", s.shape.m, s.shape.k, s.shape.n)
}
