//! The task sequence of a GEMM: which tiles run in which job, in which order, with which reuse
//! bits (npu-rk3588 7.3).
//!
//! Differences from the reference's order, each better by a count:
//!
//! * A last M tile of fewer than 12 rows is padded to 12 instead of sending the whole GEMM to
//!   the host summation: one output image is read back instead of one a K step.
//! * The reuse mode is the one that saves more DMA bytes for the shape at hand.
//! * Groups are blocks of columns, so that streamed weights need room for one group only.

use super::cost;
use super::{Shape, TilePlan, plan};
use crate::dtype::DType;
use crate::program::Reuse;
use crate::program::matmul::OPERAND_MIN_ROWS;
use crate::soc::RK3588;

/// Longest a job may take at the slowest clock, modelled: the driver kills at 500 ms, whatever
/// the clock (kernel-and-uapi A.5).
pub const JOB_BUDGET_NS: u64 = 100_000_000;

/// Who adds up the K steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Summation {
    /// The elementwise stage, rounding to fp16 at each step (6).
    OnChip,
    /// The host, from one fp32 output a step.
    Host,
}

/// One task: a tile of one K step. Origins and extents are in elements of the padded GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// Tile indices along M, K and N.
    pub at: [usize; 3],
    /// First row, channel and column.
    pub origin: Shape,
    /// Rows, channels and columns.
    pub extent: Shape,
    /// Which operand the CBUF still holds.
    pub reuse: Reuse,
}

/// The tiles of one driver job, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Tasks.
    pub tiles: Vec<Tile>,
}

/// Jobs that are queued together and whose results are read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// With on-chip summation one job a K step, each accumulating on the one before; with host
    /// summation a single job.
    pub jobs: Vec<Job>,
}

/// A whole GEMM on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// The GEMM as asked.
    pub shape: Shape,
    /// The GEMM as run: every dimension on its grid.
    pub padded: Shape,
    /// The tiles.
    pub plan: TilePlan,
    /// How K steps are added up.
    pub summation: Summation,
    /// The program type.
    pub dtype: DType,
    /// In order.
    pub groups: Vec<Group>,
}

impl Sequence {
    /// Plans `shape`, of any size, with tiles of its own choosing.
    pub fn new(shape: Shape, summation: Summation) -> Option<Sequence> {
        let dtype = dtype_of(summation);
        let aligned = on_grid(dtype, shape);
        let first = plan(dtype, aligned)?;
        let padded = pad_rows(aligned, first, summation);
        let tiles = if padded == aligned { first } else { plan(dtype, padded)? };
        Some(Sequence::of(shape, padded, tiles, summation))
    }

    /// Plans `shape` on weights that are packed already, with the K steps and columns of `packed`.
    pub fn on_packed(shape: Shape, packed: &TilePlan, summation: Summation) -> Option<Sequence> {
        let dtype = dtype_of(summation);
        let aligned = on_grid(dtype, shape);
        // Admission is the same as for a fresh plan.
        plan(dtype, aligned)?;
        let padded = pad_rows(aligned, packed.with_rows(aligned.m), summation);
        Some(Sequence::of(shape, padded, packed.with_rows(padded.m), summation))
    }

    fn of(shape: Shape, padded: Shape, plan: TilePlan, summation: Summation) -> Sequence {
        let dtype = dtype_of(summation);
        let most = cost::tasks_per_job(&RK3588, dtype, &plan, RK3588.slowest_hz, JOB_BUDGET_NS);
        let cut = Cut { padded, plan };
        let groups = match summation {
            Summation::OnChip => on_chip(&cut, most),
            Summation::Host => host(&cut, most),
        };
        Sequence { shape, padded, plan, summation, dtype, groups }
    }

    /// All jobs in order.
    pub fn jobs(&self) -> impl Iterator<Item = &Job> {
        self.groups.iter().flat_map(|g| &g.jobs)
    }

    /// Multiply-accumulates that the programs execute, padding included.
    pub fn executed_macs(&self) -> u64 {
        self.jobs().flat_map(|j| &j.tiles).map(|t| t.extent.macs()).sum()
    }

    /// Of these, the ones that only multiply padding.
    pub fn padding_macs(&self) -> u64 {
        self.executed_macs() - self.shape.macs()
    }

    /// Bytes of features and weights the tasks fetch.
    pub fn fetched_bytes(&self) -> u64 {
        self.jobs().flat_map(|j| &j.tiles).map(|t| fetched(self.dtype, t)).sum()
    }

    /// Bytes of output images the host reads back.
    pub fn readback_bytes(&self) -> u64 {
        let images = match self.summation {
            Summation::OnChip => 1,
            Summation::Host => self.plan.n_kt,
        };
        (images * self.padded.m * self.padded.n * self.dtype.info().out_bytes) as u64
    }
}

fn fetched(dtype: DType, tile: &Tile) -> u64 {
    let Shape { m, k, n } = tile.extent;
    let rows = match tile.reuse {
        Reuse::None => m + n,
        Reuse::Data => n,
        Reuse::Weights => m,
    };
    dtype.info().row_bytes(rows * k) as u64
}

/// The program type a summation needs.
pub fn dtype_of(summation: Summation) -> DType {
    match summation {
        Summation::OnChip => DType::Fp16,
        Summation::Host => DType::Fp16F32Out,
    }
}

fn on_grid(dtype: DType, shape: Shape) -> Shape {
    let info = dtype.info();
    Shape {
        m: shape.m.next_multiple_of(4),
        k: shape.k.next_multiple_of(info.k_group),
        n: shape.n.next_multiple_of(info.n_group),
    }
}

/// The operand of an accumulating step needs at least 12 rows (trap 22).
fn pad_rows(shape: Shape, plan: TilePlan, summation: Summation) -> Shape {
    let least = OPERAND_MIN_ROWS as usize;
    let tail = shape.m - (plan.n_mt - 1) * plan.mt;
    if summation == Summation::OnChip && plan.n_kt > 1 && tail < least {
        Shape { m: shape.m + least - tail, ..shape }
    } else {
        shape
    }
}

struct Cut {
    padded: Shape,
    plan: TilePlan,
}

impl Cut {
    fn tile(&self, at: [usize; 3]) -> Tile {
        let p = &self.plan;
        let origin = Shape { m: at[0] * p.mt, k: at[1] * p.kt, n: at[2] * p.nt };
        let extent = Shape {
            m: p.mt.min(self.padded.m - origin.m),
            k: p.kt.min(self.padded.k - origin.k),
            n: p.nt.min(self.padded.n - origin.n),
        };
        Tile { at, origin, extent, reuse: Reuse::None }
    }
}

/// Blocks of at most `most` tiles; in each, one job a K step.
fn on_chip(cut: &Cut, most: usize) -> Vec<Group> {
    let rows = cut.plan.n_mt.min(most);
    let columns = most / rows;
    let mut groups = Vec::new();
    for m0 in (0..cut.plan.n_mt).step_by(rows) {
        for n0 in (0..cut.plan.n_nt).step_by(columns) {
            let ms = m0..(m0 + rows).min(cut.plan.n_mt);
            let ns = n0..(n0 + columns).min(cut.plan.n_nt);
            let jobs = (0..cut.plan.n_kt)
                .map(|ki| {
                    let by_rows = ms.clone().flat_map(|mi| ns.clone().map(move |ni| [mi, ki, ni]));
                    let by_columns =
                        ns.clone().flat_map(|ni| ms.clone().map(move |mi| [mi, ki, ni]));
                    cheaper(
                        with_reuse(by_rows.map(|at| cut.tile(at)).collect(), Reuse::Data),
                        with_reuse(by_columns.map(|at| cut.tile(at)).collect(), Reuse::Weights),
                    )
                })
                .collect();
            groups.push(Group { jobs });
        }
    }
    groups
}

/// Row blocks outer, K steps innermost, one job a group; every task has an output of its own.
fn host(cut: &Cut, most: usize) -> Vec<Group> {
    let p = &cut.plan;
    let all: Vec<Tile> = (0..p.n_mt)
        .flat_map(|mi| (0..p.n_nt).flat_map(move |ni| (0..p.n_kt).map(move |ki| [mi, ki, ni])))
        .map(|at| cut.tile(at))
        .collect();
    all.chunks(most).map(|tiles| Group { jobs: vec![Job { tiles: tiles.to_vec() }] }).collect()
}

/// Sets `kind` wherever the task before used the same tile of that operand with identical
/// extents; never on a job's first task (4.3).
fn with_reuse(mut tiles: Vec<Tile>, kind: Reuse) -> Job {
    for i in 1..tiles.len() {
        let (before, now) = (tiles[i - 1], tiles[i]);
        let same_operand = match kind {
            Reuse::Data => before.at[0] == now.at[0],
            Reuse::Weights => before.at[2] == now.at[2],
            Reuse::None => false,
        };
        if same_operand && before.extent == now.extent {
            tiles[i].reuse = kind;
        }
    }
    Job { tiles }
}

fn cheaper(a: Job, b: Job) -> Job {
    let bytes = |j: &Job| j.tiles.iter().map(|t| fetched(DType::Fp16, t)).sum::<u64>();
    if bytes(&b) < bytes(&a) { b } else { a }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn modelled_ns(s: &Sequence, job: &Job) -> u64 {
        let accumulate = s.summation == Summation::OnChip && s.plan.n_kt > 1;
        job.tiles
            .iter()
            .map(|t| {
                let bytes = cost::task_bytes(s.dtype, t.extent, accumulate);
                let bits = s.dtype.info().bits;
                let macs = t.extent.macs();
                RK3588.timing.kick_ns + cost::task_ns(&RK3588, bits, macs, bytes, RK3588.slowest_hz)
            })
            .sum::<u64>()
            + RK3588.timing.job_ns
    }

    proptest! {
        /// Every element of every K step is covered once; K steps of a column come in order; no
        /// job is over its budget or over 64 tasks; accumulating tiles have 12 rows.
        #[test]
        fn sequences_cover_each_element_once(
            m in 1usize..900, k in 1usize..5000, n in 1usize..3000,
            host in any::<bool>(), packed in any::<bool>(),
        ) {
            let summation = if host { Summation::Host } else { Summation::OnChip };
            let shape = Shape { m, k, n };
            let s = if packed {
                let grid = Shape { m: 256, ..on_grid(DType::Fp16, shape) };
                let p = plan(dtype_of(summation), grid).expect("plans");
                Sequence::on_packed(shape, &p, summation).expect("plans")
            } else {
                Sequence::new(shape, summation).expect("plans")
            };
            let mut area = 0u64;
            let mut seen = std::collections::HashSet::new();
            for job in s.jobs() {
                prop_assert!(!job.tiles.is_empty() && job.tiles.len() <= 64);
                prop_assert!(modelled_ns(&s, job) <= JOB_BUDGET_NS);
                prop_assert_eq!(job.tiles[0].reuse, Reuse::None);
                for t in &job.tiles {
                    prop_assert!(seen.insert(t.at));
                    if summation == Summation::OnChip && s.plan.n_kt > 1 {
                        prop_assert!(t.extent.m >= 12);
                    }
                    let end = Shape { m: t.origin.m + t.extent.m, k: t.origin.k + t.extent.k, n: t.origin.n + t.extent.n };
                    prop_assert!(end.m <= s.padded.m && end.k <= s.padded.k && end.n <= s.padded.n);
                    area += t.extent.macs();
                }
            }
            // Distinct tile indices inside the bounds that add up to the whole: a partition.
            prop_assert_eq!(area, s.padded.macs());
            prop_assert_eq!(seen.len(), s.plan.tasks());
            prop_assert_eq!(s.executed_macs() - s.padding_macs(), shape.macs());
            for g in &s.groups {
                for (ki, job) in g.jobs.iter().enumerate() {
                    if summation == Summation::OnChip {
                        prop_assert!(job.tiles.iter().all(|t| t.at[1] == ki));
                        // The same order in each step: a position names an output slot.
                        let spots = |j: &Job| j.tiles.iter().map(|t| (t.at[0], t.at[2])).collect::<Vec<_>>();
                        prop_assert_eq!(spots(job), spots(&g.jobs[0]));
                    }
                }
            }
        }
    }
}
