//! A product as its publisher ran it, and the model's time for it.

use rocket_runtime::dtype::DType;
use rocket_runtime::plan::{Shape, TilePlan, cost, plan_with};
use rocket_runtime::program::Reuse;
use rocket_runtime::soc::Profile;

/// Most tasks of a job (npu-rk3588 7.3).
const JOB_TASKS: usize = 64;

/// The host's part of a figure, and who measured it: all npu-rk3588 8.4, 512 x 3840 x 4096.
mod host {
    /// Packing, a value: 33.75 MB of fp16 in 36 ms.
    pub const PACK_NS: f64 = 2.03;
    /// Reading results and un-tiling, a value: 4 MB of fp16 in 10 ms. Taken for the host's sums of
    /// partial results as well.
    pub const READ_NS: f64 = 4.77;
    /// Cores that read results at a time: the big ones.
    pub const CORES: usize = 4;
}

/// Who adds up the K steps, and in what order the tiles run (npu-rk3588 7.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// The element-wise stage: a job for each K step.
    OnChip,
    /// The host: K steps innermost.
    Host,
}

/// How one product is run.
#[derive(Debug, Clone, Copy)]
pub struct Run {
    pub shape: [usize; 3],
    pub dtype: DType,
    pub flow: Flow,
    pub reuse: Reuse,
    /// Columns tiled narrower once K is split (7.2).
    pub asymmetric: bool,
    /// One kick a job, not one a task.
    pub batched: bool,
    /// Weights are packed beforehand.
    pub resident: bool,
    pub workers: usize,
    pub clock_hz: u64,
}

impl Run {
    /// Time of the NPU in ns: of all workers, shared by the cores they reach.
    pub fn npu_ns(&self, p: &Profile) -> f64 {
        let total: f64 = self.shares().map(|n| self.worker_ns(p, n)).sum();
        total / self.workers.min(p.cores) as f64
    }

    /// Time with the host's part, one after the other.
    pub fn whole_ns(&self, p: &Profile) -> f64 {
        let [m, k, n] = self.shape;
        let packed = m * k + if self.resident { 0 } else { k * n };
        let images: usize = self
            .shares()
            .filter_map(|n| self.plan(n).map(|plan| (n, plan)))
            .map(|(n, plan)| m * n * if self.flow == Flow::OnChip { 1 } else { plan.n_kt })
            .sum();
        let readers = self.workers.min(host::CORES) as f64;
        self.npu_ns(p) + packed as f64 * host::PACK_NS + images as f64 * host::READ_NS / readers
    }

    pub fn operations(&self) -> f64 {
        self.shape.iter().map(|&d| d as f64).product::<f64>() * 2.0
    }

    /// Columns of each worker (npu-rk3588 7.4).
    fn shares(&self) -> impl Iterator<Item = usize> {
        let n = self.shape[2];
        let step = n.div_ceil(self.workers).next_multiple_of(self.dtype.info().n_group);
        (0..n).step_by(step).map(move |first| step.min(n - first))
    }

    fn plan(&self, n: usize) -> Option<TilePlan> {
        let [m, k, _] = self.shape;
        plan_with(self.dtype, Shape { m, k, n }, self.asymmetric)
    }

    /// Time of one worker's jobs.
    fn worker_ns(&self, p: &Profile, n: usize) -> f64 {
        let Some(plan) = self.plan(n) else { return f64::NAN };
        let mut ns = 0;
        for tiles in self.runs(&plan) {
            for job in tiles.chunks(JOB_TASKS) {
                let kicks = if self.batched { 1 } else { job.len() as u64 };
                ns += p.timing.job_ns + kicks * p.timing.kick_ns;
                let mut before = None;
                for &at in job {
                    ns += self.task_ns(p, &plan, n, at, before);
                    before = Some(at);
                }
            }
        }
        ns as f64
    }

    /// Tiles in order, as (mi, ki, ni); a job ends where one of these lists does.
    fn runs(&self, plan: &TilePlan) -> Vec<Vec<[usize; 3]>> {
        let (ms, ks, ns) = (plan.n_mt, plan.n_kt, plan.n_nt);
        let step = |ki| -> Vec<[usize; 3]> {
            if self.reuse == Reuse::Weights {
                (0..ns).flat_map(|ni| (0..ms).map(move |mi| [mi, ki, ni])).collect()
            } else {
                (0..ms).flat_map(|mi| (0..ns).map(move |ni| [mi, ki, ni])).collect()
            }
        };
        match self.flow {
            Flow::OnChip => (0..ks).map(step).collect(),
            Flow::Host => {
                let row = |mi| (0..ns).flat_map(move |ni| (0..ks).map(move |ki| [mi, ki, ni]));
                vec![(0..ms).flat_map(row).collect()]
            }
        }
    }

    fn task_ns(
        &self,
        p: &Profile,
        plan: &TilePlan,
        n: usize,
        at: [usize; 3],
        before: Option<[usize; 3]>,
    ) -> u64 {
        let [m, k, _] = self.shape;
        let extent = |[mi, ki, ni]: [usize; 3]| Shape {
            m: plan.mt.min(m - mi * plan.mt),
            k: plan.kt.min(k - ki * plan.kt),
            n: plan.nt.min(n - ni * plan.nt),
        };
        let (tile, info) = (extent(at), self.dtype.info());
        let accumulates = self.flow == Flow::OnChip && at[1] > 0;
        let kept = before.filter(|b| extent(*b) == tile && b[1] == at[1]);
        let reused = match (self.reuse, kept) {
            (Reuse::Data, Some(b)) if b[0] == at[0] => tile.m,
            (Reuse::Weights, Some(b)) if b[2] == at[2] => tile.n,
            _ => 0,
        };
        let bytes = cost::task_bytes(self.dtype, tile, accumulates)
            - info.row_bytes(tile.k * reused) as u64;
        cost::task_ns(p, info.bits, tile.macs(), bytes, self.clock_hz)
    }
}
