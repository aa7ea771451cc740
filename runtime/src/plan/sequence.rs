//! Every task of a GEMM: which tiles run in which job, in which order, with which reuse bits,
//! and where each result goes.
//!
//! A [`Group`] is a block of the output whose results are held at once. Its K steps are the outer
//! loop (npu-rk3588 6.4), inside them a [sweep](super::sweep) of tiles. Jobs are cut by time
//! alone, so that a GEMM of common size is one job a worker: the tasks of a job run in order on
//! one core, and a step may read what the step before it wrote.

use super::search::{Request, search};
use super::sweep::{Axis, order};
use super::{Shape, TilePlan, cost};
use crate::dtype::DType;
use crate::program::Reuse;
use crate::soc::RK3588;
use std::collections::HashMap;
use std::ops::Range;

/// Most tasks of a job: what a batched kick can count (kernel-and-uapi A.6).
const MAX_TASKS: usize = 4095;

/// Where a task's result cube lies. Offsets are in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In one of the group's images.
    Image {
        /// On chip two take turns; else there is one.
        index: usize,
        /// First element.
        offset: usize,
    },
    /// In a place of its own: the last task of a job, which proves that the job ran.
    Witness {
        /// The job, counted in its group.
        job: usize,
    },
}

/// One task: a tile of one K step. Origins and extents are in elements of the padded GEMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tile {
    /// First row, channel and column.
    pub origin: Shape,
    /// Rows, channels and columns.
    pub extent: Shape,
    /// Which operand the CBUF still holds.
    pub reuse: Reuse,
    /// Where the result goes.
    pub output: Place,
    /// What is added to it: the same tile of the K step before.
    pub operand: Option<Place>,
}

/// The tiles of one driver job, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Tasks.
    pub tiles: Vec<Tile>,
}

/// A finished tile and where its values are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResultTile {
    /// First row and column; `k` is 0.
    pub origin: Shape,
    /// Rows and columns; `k` is the whole padded K.
    pub extent: Shape,
    /// One cube a K step in order, or the one that holds their sum.
    pub cubes: Vec<Place>,
}

/// A block of the output: jobs that are queued in one submit and read together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// Rows of the padded GEMM.
    pub rows: Range<usize>,
    /// Columns of the padded GEMM.
    pub columns: Range<usize>,
    /// Jobs in order.
    pub jobs: Vec<Job>,
    /// Elements of each image; an image that nothing is written to has none.
    pub images: Vec<usize>,
    /// Elements of the largest tile: of a witness.
    pub witness: usize,
    /// What is to be read.
    pub results: Vec<ResultTile>,
}

/// A whole GEMM on one worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sequence {
    /// What was asked.
    pub request: Request,
    /// The GEMM as run: every dimension on its grid.
    pub padded: Shape,
    /// The tiles.
    pub plan: TilePlan,
    /// In order: for each block of columns its blocks of rows.
    pub groups: Vec<Group>,
}

impl Sequence {
    /// Plans `request`, `None` where [`search`] finds nothing.
    pub fn new(request: Request) -> Option<Sequence> {
        let plan = search(&request)?;
        let padded = request.padded(plan.n_kt);
        let [rows, columns] = request.block(&plan);
        let blocks = |len: usize, step: usize| {
            (0..len).step_by(step).map(move |first| first..(first + step).min(len))
        };
        let groups = blocks(padded.n, columns)
            .flat_map(|n| blocks(padded.m, rows).map(move |m| (m, n.clone())))
            .map(|(m, n)| {
                Block { request: &request, plan: &plan, padded, rows: m, columns: n }.group()
            })
            .collect();
        Some(Sequence { request, padded, plan, groups })
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
        self.executed_macs() - self.request.shape.macs()
    }

    /// Bytes that the tasks move between memory and the core, programs not counted.
    pub fn moved_bytes(&self) -> u64 {
        self.jobs().flat_map(|j| &j.tiles).map(|t| moved(self.request.dtype, t)).sum()
    }
}

/// Bytes a task moves.
fn moved(dtype: DType, tile: &Tile) -> u64 {
    let t = dtype.info();
    let Shape { m, k, n } = tile.extent;
    let fetched = match tile.reuse {
        Reuse::None => m + n,
        Reuse::Data => n,
        Reuse::Weights => m,
    };
    let images = if tile.operand.is_some() { 2 } else { 1 };
    (t.row_bytes(fetched * k) + images * m * n * t.out_bytes) as u64
}

/// What a group is made from.
struct Block<'a> {
    request: &'a Request,
    plan: &'a TilePlan,
    padded: Shape,
    rows: Range<usize>,
    columns: Range<usize>,
}

impl Block<'_> {
    fn group(self) -> Group {
        let p = self.plan;
        let on_chip = self.request.on_chip();
        let (m0, n0) = (self.rows.start / p.mt, self.columns.start / p.nt);
        let rows = Axis { len: self.rows.len(), tile: p.mt };
        let columns = Axis { len: self.columns.len(), tile: p.nt };
        let sweep = order(p, m0, n0, rows, columns);

        let mut jobs = vec![Job { tiles: Vec::new() }];
        let mut spent = RK3588.timing.job_ns;
        // Tiles one after another, on chip the same in each step; else steps one after another.
        let mut offsets: HashMap<[usize; 2], usize> = HashMap::new();
        let mut end = 0;
        // The latest cubes of each tile.
        let mut latest: HashMap<[usize; 2], Vec<Place>> = HashMap::new();
        let most = if self.request.chained { MAX_TASKS } else { usize::MAX };
        for (step, &[mi, ni]) in (0..p.n_kt).flat_map(|s| sweep.iter().map(move |at| (s, at))) {
            let mut tile = self.tile(mi, step, ni);
            let len = tile.extent.m * tile.extent.n;
            let ns = self.ns(&tile, step);
            let full = jobs.last().map_or(0, |j| j.tiles.len()) >= most;
            if (spent + ns > self.request.job_ns && spent > RK3588.timing.job_ns) || full {
                end -= self.close(&mut jobs, &mut latest);
                jobs.push(Job { tiles: Vec::new() });
                spent = RK3588.timing.job_ns;
            }
            spent += ns;
            let cubes = latest.entry([mi, ni]).or_default();
            if on_chip {
                tile.operand = cubes.pop();
                let offset = *offsets.entry([mi, ni]).or_insert_with(|| {
                    end += len;
                    end - len
                });
                tile.output = Place::Image { index: step % 2, offset };
            } else {
                tile.output = Place::Image { index: 0, offset: end };
                end += len;
            }
            cubes.push(tile.output);
            if let Some(job) = jobs.last_mut() {
                tile.reuse = job.tiles.last().map_or(Reuse::None, |before| reuse(before, &tile));
                job.tiles.push(tile);
            }
        }
        self.close(&mut jobs, &mut latest);

        let mut images = vec![0; if on_chip { 2 } else { 1 }];
        for tile in jobs.iter().flat_map(|j| &j.tiles) {
            if let Place::Image { index, offset } = tile.output {
                images[index] = images[index].max(offset + tile.extent.m * tile.extent.n);
            }
        }
        let results = sweep
            .iter()
            .filter_map(|at| {
                let cubes = latest.remove(at)?;
                let Tile { origin, extent, .. } = self.tile(at[0], 0, at[1]);
                let extent = Shape { k: self.padded.k, ..extent };
                Some(ResultTile { origin, extent, cubes })
            })
            .collect();
        let witness = p.mt.min(self.rows.len()) * p.nt.min(self.columns.len());
        Group { images, rows: self.rows, columns: self.columns, jobs, witness, results }
    }

    fn tile(&self, mi: usize, step: usize, ni: usize) -> Tile {
        let p = self.plan;
        let origin = Shape { m: mi * p.mt, k: step * p.kt, n: ni * p.nt };
        let extent = Shape {
            m: p.mt.min(self.rows.end - origin.m),
            k: p.kt.min(self.padded.k - origin.k),
            n: p.nt.min(self.columns.end - origin.n),
        };
        let output = Place::Image { index: 0, offset: 0 };
        Tile { origin, extent, reuse: Reuse::None, output, operand: None }
    }

    /// Modelled time of a task at the slowest clock, reuse not counted.
    fn ns(&self, tile: &Tile, step: usize) -> u64 {
        let dtype = self.request.dtype;
        let bytes = cost::task_bytes(dtype, tile.extent, self.request.on_chip() && step > 0);
        let bits = dtype.info().bits;
        cost::task_ns(&RK3588, bits, tile.extent.macs(), bytes, RK3588.slowest_hz)
            + RK3588.timing.kick_ns
    }

    /// Ends a job: its last task writes to a place that no other task touches. Returns how many
    /// elements at the end of the image it gives back.
    fn close(&self, jobs: &mut [Job], latest: &mut HashMap<[usize; 2], Vec<Place>>) -> usize {
        let job = jobs.len() - 1;
        let Some(tile) = jobs.last_mut().and_then(|j| j.tiles.last_mut()) else { return 0 };
        tile.output = Place::Witness { job };
        let at = [tile.origin.m / self.plan.mt, tile.origin.n / self.plan.nt];
        if let Some(cube) = latest.get_mut(&at).and_then(|cubes| cubes.last_mut()) {
            *cube = tile.output;
        }
        if self.request.on_chip() { 0 } else { tile.extent.m * tile.extent.n }
    }
}

/// What of the task before is still in the CBUF: the same tile of one operand, if the extents
/// are identical (4.3).
fn reuse(before: &Tile, now: &Tile) -> Reuse {
    if before.extent != now.extent || before.origin.k != now.origin.k {
        Reuse::None
    } else if before.origin.m == now.origin.m {
        Reuse::Data
    } else if before.origin.n == now.origin.n {
        Reuse::Weights
    } else {
        Reuse::None
    }
}

#[cfg(test)]
mod tests {
    use super::super::Fit;
    use super::super::search::{JOB_NS, price};
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn modelled_ns(s: &Sequence, job: &Job) -> u64 {
        let one = |t: &Tile| {
            let bytes = cost::task_bytes(s.request.dtype, t.extent, t.operand.is_some());
            let bits = s.request.dtype.info().bits;
            let macs = t.extent.macs();
            RK3588.timing.kick_ns + cost::task_ns(&RK3588, bits, macs, bytes, RK3588.slowest_hz)
        };
        RK3588.timing.job_ns + job.tiles.iter().map(one).sum::<u64>()
    }

    fn requests() -> impl Strategy<Value = Request> {
        let dtypes: Vec<DType> = DType::ALL.into_iter().filter(|d| *d != DType::Int16).collect();
        let dtype = prop::sample::select(dtypes);
        let group = prop_oneof![3 => Just(None), 1 => (1usize..9).prop_map(|g| Some(g * 32))];
        (dtype, 1usize..900, 1usize..5000, 1usize..3000, group, any::<[bool; 3]>()).prop_map(
            |(dtype, m, k, n, group, [streamed, chained, packed])| {
                let shape = Shape { m, k, n };
                let most = if dtype == DType::Int4 { 511 } else { dtype.info().k_cap };
                let group = group.filter(|_| matches!(dtype, DType::Int8 | DType::Int4));
                let job_ns = if chained { 1_000_000 } else { JOB_NS };
                let new = Request {
                    streamed,
                    chained,
                    group,
                    most,
                    job_ns,
                    ..Request::new(dtype, shape)
                };
                if !packed {
                    return new;
                }
                let at_512 = Request { shape: Shape { m: 512, ..shape }, ..new };
                Request { step: search(&at_512).map(|p| p.kt), ..new }
            },
        )
    }

    /// Elements `len` from `offset` on of a flat space, each taken once.
    fn take(taken: &mut HashSet<usize>, offset: usize, len: usize) -> bool {
        (offset..offset + len).step_by(16).all(|at| taken.insert(at))
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

        /// Every element of every K step is covered once; a tile's K steps come in order, and on
        /// chip each adds what the step before it left; no job is over its budget; reuse bits
        /// keep their rules; no two results of a step share a place.
        #[test]
        fn sequences_cover_each_element_once(request in requests()) {
            let s = Sequence::new(request).expect("plans");
            let on_chip = request.on_chip();
            let mut seen = HashSet::new();
            let mut area = 0u64;
            for g in &s.groups {
                let mut left = HashMap::new();
                let mut places = HashSet::new();
                for (j, job) in g.jobs.iter().enumerate() {
                    prop_assert!(!job.tiles.is_empty());
                    prop_assert!(job.tiles.len() == 1 || modelled_ns(&s, job) <= request.job_ns);
                    prop_assert_eq!(job.tiles[0].reuse, Reuse::None);
                    let witness = job.tiles.last().expect("not empty").output;
                    prop_assert_eq!(witness, Place::Witness { job: j });
                    for (i, t) in job.tiles.iter().enumerate() {
                        let (o, e) = (t.origin, t.extent);
                        prop_assert!(seen.insert((o.m, o.k, o.n)), "twice");
                        prop_assert!(g.rows.contains(&o.m) && o.m + e.m <= g.rows.end);
                        prop_assert!(g.columns.contains(&o.n) && o.n + e.n <= g.columns.end);
                        prop_assert!(o.k + e.k <= s.padded.k && e.k <= request.most);
                        let crosses = |len: usize| o.k / len != (o.k + e.k - 1) / len;
                        prop_assert!(!request.group.is_some_and(crosses));
                        prop_assert!(e.m * e.n <= g.witness);
                        prop_assert!(Fit::of(request.dtype).holds(e.m, e.k, e.n));
                        if on_chip && s.plan.n_kt > 1 {
                            prop_assert!(e.m >= 12);
                        }
                        if t.reuse != Reuse::None {
                            let b = &job.tiles[i - 1];
                            prop_assert_eq!(b.extent, e);
                            let same = if t.reuse == Reuse::Data { b.origin.m == o.m } else { b.origin.n == o.n };
                            prop_assert!(same && b.origin.k == o.k);
                        }
                        let step = o.k / s.plan.kt;
                        match t.output {
                            Place::Image { index, offset } => {
                                prop_assert!(offset + e.m * e.n <= g.images[index]);
                                let space = if on_chip { step } else { index };
                                let taken = &mut places;
                                let base = space << 40;
                                prop_assert!(take(taken, base + offset, e.m * e.n), "shared");
                            }
                            Place::Witness { .. } => prop_assert_eq!(i + 1, job.tiles.len()),
                        }
                        let before: &mut Vec<Place> = left.entry((o.m, o.n)).or_default();
                        prop_assert_eq!(before.len(), step, "out of order");
                        let adds = if on_chip { before.last().copied() } else { None };
                        prop_assert_eq!(t.operand, adds);
                        prop_assert!(t.operand != Some(t.output), "in place (trap 21)");
                        before.push(t.output);
                        area += e.macs();
                    }
                }
                for r in &g.results {
                    let places = left.remove(&(r.origin.m, r.origin.n)).expect("a result that ran");
                    let want = if on_chip { &places[places.len() - 1..] } else { &places[..] };
                    prop_assert_eq!(&r.cubes[..], want);
                }
                prop_assert!(left.is_empty(), "a tile that nobody reads");
            }
            // Distinct tiles inside the bounds that add up to the whole: a partition.
            prop_assert_eq!(area, s.padded.macs());
            prop_assert_eq!(s.executed_macs() - s.padding_macs(), request.shape.macs());
        }

        /// The price that plans are compared by is what the tasks move: exactly, but for what
        /// the first tasks of further jobs fetch anew.
        #[test]
        fn the_price_is_what_is_moved(request in requests()) {
            let s = Sequence::new(request).expect("plans");
            let jobs = s.jobs().count() - s.groups.len();
            let t = request.dtype.info();
            let anew = jobs * t.row_bytes(s.plan.kt * s.plan.mt.max(s.plan.nt));
            let (price, moved) = (price(&request, &s.plan).bytes, s.moved_bytes());
            prop_assert!(price <= moved && moved <= price + anew as u64, "{} {}", price, moved);
        }
    }

    /// A batched kick counts to 4095 (kernel-and-uapi A.6), however long a job may take.
    #[test]
    fn a_chained_job_is_no_longer_than_a_kick_counts() {
        let shape = Shape { m: 12, k: 32 * 4200, n: 16 };
        let request = Request {
            step: Some(32),
            chained: true,
            job_ns: u64::MAX >> 1,
            ..Request::new(DType::Fp16, shape)
        };
        let tasks = |request| -> Vec<usize> {
            Sequence::new(request).expect("plans").jobs().map(|j| j.tiles.len()).collect()
        };
        assert_eq!(tasks(request), [4095, 105]);
        assert_eq!(tasks(Request { chained: false, ..request }), [4200]);
    }
}
