//! The order of tasks of one worker (npu-rk3588 7.3).

use rocket_runtime::dtype::{DType, Info};
use rocket_runtime::plan::{Shape, TilePlan};
use rocket_runtime::program::Reuse;
use rocket_runtime::program::matmul::OPERAND_MIN_ROWS;

/// Most tasks of a job (7.3).
const JOB_TASKS: usize = 64;

/// A place in one of the two output buffers that K steps alternate between (6.4); other flows use
/// the first only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place {
    /// 0 or 1.
    pub buffer: usize,
    /// Bytes from its start.
    pub offset: usize,
}

/// One program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Task {
    /// Rows, channels and columns of the tile.
    pub extent: Shape,
    /// Bytes from the start of the features.
    pub input: usize,
    /// Bytes from the start of the weights.
    pub weights: usize,
    /// Where results go.
    pub output: Place,
    /// What an accumulating task adds.
    pub add: Option<Place>,
    /// What the CBUF still holds.
    pub reuse: Reuse,
}

/// The tasks of one driver job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// In order.
    pub tasks: Vec<Task>,
}

/// What one worker runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// Program type.
    pub dtype: DType,
    /// On the dtype's grid.
    pub shape: Shape,
    /// The tiles.
    pub plan: TilePlan,
    /// In order.
    pub jobs: Vec<Job>,
}

/// Bytes of one tile's slot in each buffer (3.7).
#[derive(Debug, Clone, Copy)]
pub struct Slots {
    /// Features.
    pub input: usize,
    /// Weights.
    pub weights: usize,
    /// Results.
    pub output: usize,
}

impl Slots {
    fn of(info: &Info, plan: &TilePlan) -> Slots {
        let k = plan.kt.next_multiple_of(info.k_group);
        let rows = plan.mt.next_multiple_of(4);
        Slots {
            input: info.row_bytes(rows * k),
            weights: info.row_bytes(plan.nt.next_multiple_of(info.n_group) * k),
            output: rows * plan.nt.next_multiple_of(16) * info.out_bytes,
        }
    }
}

impl Sequence {
    /// By the notes, for a shape on the dtype's grid.
    pub fn new(dtype: DType, shape: Shape, plan: TilePlan) -> Sequence {
        let cut = Cut { shape, plan, slots: Slots::of(dtype.info(), &plan) };
        let jobs = if cut.on_chip(dtype) {
            let info = dtype.info();
            let [data, weights] = [Reuse::Data, Reuse::Weights].map(|mode| cut.by_steps(mode));
            if fetched(info, &weights) < fetched(info, &data) { weights } else { data }
        } else {
            cut.by_tiles()
        };
        Sequence { dtype, shape, plan, jobs }
    }

    /// Bytes of a tile's slots.
    pub fn slots(&self) -> Slots {
        Slots::of(self.dtype.info(), &self.plan)
    }

    /// First row, channel and column of a task's tile, from where its operands lie.
    pub fn origin(&self, task: &Task) -> Shape {
        let (p, slots) = (&self.plan, self.slots());
        let (input, weights) = (task.input / slots.input, task.weights / slots.weights);
        Shape { m: input / p.n_kt * p.mt, k: input % p.n_kt * p.kt, n: weights / p.n_kt * p.nt }
    }

    /// Whether what job `j` writes is what the host takes, and not the operand of the next.
    pub fn delivers(&self, j: usize) -> bool {
        !self.jobs.get(j + 1).is_some_and(|next| next.tasks.iter().any(|t| t.add.is_some()))
    }

    /// All tasks.
    pub fn tasks(&self) -> impl Iterator<Item = &Task> {
        self.jobs.iter().flat_map(|j| &j.tasks)
    }
}

struct Cut {
    shape: Shape,
    plan: TilePlan,
    slots: Slots,
}

impl Cut {
    /// Accumulating tasks need 12 rows; else the host adds (6.4).
    fn on_chip(&self, dtype: DType) -> bool {
        let tail = self.shape.m - (self.plan.n_mt - 1) * self.plan.mt;
        dtype == DType::Fp16 && (self.plan.n_kt == 1 || tail >= OPERAND_MIN_ROWS as usize)
    }

    fn task(&self, [mi, ki, ni]: [usize; 3], output: Place, add: Option<Place>) -> Task {
        let (p, s) = (&self.plan, self.shape);
        Task {
            extent: Shape {
                m: p.mt.min(s.m - mi * p.mt),
                k: p.kt.min(s.k - ki * p.kt),
                n: p.nt.min(s.n - ni * p.nt),
            },
            input: (mi * p.n_kt + ki) * self.slots.input,
            weights: (ni * p.n_kt + ki) * self.slots.weights,
            output,
            add,
            reuse: Reuse::None,
        }
    }

    /// On-chip summation: groups of tiles, in each a job a K step (7.3).
    fn by_steps(&self, mode: Reuse) -> Vec<Job> {
        let (rows, columns) = (self.plan.n_mt, self.plan.n_nt);
        let tiles: Vec<[usize; 2]> = (0..rows * columns)
            .map(|i| match mode {
                Reuse::Weights => [i % rows, i / rows],
                _ => [i / columns, i % columns],
            })
            .collect();
        let mut jobs = Vec::new();
        for group in tiles.chunks(JOB_TASKS) {
            for ki in 0..self.plan.n_kt {
                let place = |ki: usize, i| Place { buffer: ki & 1, offset: i * self.slots.output };
                let tasks = group.iter().enumerate().map(|(i, &[mi, ni])| {
                    let add = (ki > 0).then(|| place(ki - 1, i));
                    let mut task = self.task([mi, ki, ni], place(ki, i), add);
                    let Some(&before) = i.checked_sub(1).and_then(|b| group.get(b)) else {
                        return task;
                    };
                    let held =
                        if mode == Reuse::Weights { before[1] == ni } else { before[0] == mi };
                    let last = self.task([before[0], ki, before[1]], task.output, None);
                    if held && last.extent == task.extent {
                        task.reuse = mode;
                    }
                    task
                });
                jobs.push(Job { tasks: tasks.collect() });
            }
        }
        jobs
    }

    /// The host adds: K steps innermost, each task with a slot of its own, nothing reused (7.3).
    fn by_tiles(&self) -> Vec<Job> {
        let p = &self.plan;
        let tiles: Vec<[usize; 3]> = (0..p.n_mt)
            .flat_map(|mi| (0..p.n_nt).flat_map(move |ni| (0..p.n_kt).map(move |ki| [mi, ki, ni])))
            .collect();
        let job = |tiles: &[[usize; 3]]| Job {
            tasks: tiles
                .iter()
                .enumerate()
                .map(|(i, &at)| {
                    self.task(at, Place { buffer: 0, offset: i * self.slots.output }, None)
                })
                .collect(),
        };
        tiles.chunks(JOB_TASKS).map(job).collect()
    }
}

/// Operand bytes that tasks load.
fn fetched(info: &Info, jobs: &[Job]) -> usize {
    jobs.iter()
        .flat_map(|j| &j.tasks)
        .map(|t| {
            let rows = match t.reuse {
                Reuse::None => t.extent.m + t.extent.n,
                Reuse::Data => t.extent.n,
                Reuse::Weights => t.extent.m,
            };
            info.row_bytes(rows * t.extent.k)
        })
        .sum()
}
