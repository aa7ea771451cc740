//! The choice of tiles: every plan that fits is priced by the cost model, and the fastest is
//! taken of those that move no more bytes than the reference's fixed rule would.
//!
//! What there is to gain (npu-rk3588 8.6): a K step costs a whole output image written (and, on
//! chip, read again), so long K steps with fewer columns a tile move fewer bytes than the
//! rule's; equal tiles leave no edge at which operands are fetched anew.

use super::sweep::{Axis, cheaper};
use super::{Fit, Shape, TilePlan, cost, plan};
use crate::dtype::DType;
use crate::program::matmul::OPERAND_MIN_ROWS;
use crate::soc::RK3588;

/// Rows and columns of a tile at most: what was ever run on silicon (npu-rk3588 2.3).
const MAX_TILE: usize = 256;
/// Largest dimension the planner admits (7.1).
pub(crate) const MAX_DIM: usize = 1 << 24;
/// Plans are tried from the fewest row tiles and K steps to this many more.
const MORE_ROWS: usize = 6;
const MORE_STEPS: usize = 24;
/// Bytes of result images, and of streamed weights, that a worker holds at once.
const IMAGE_BYTES: usize = 64 << 20;
const STREAM_BYTES: usize = 32 << 20;

/// What is to be planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Request {
    /// Program type. [`DType::Fp16`] adds its K steps up on chip (npu-rk3588 6); every other
    /// type leaves that to the host.
    pub dtype: DType,
    /// The GEMM as asked, of any size.
    pub shape: Shape,
    /// Channels of a K step where the weights are packed already.
    pub step: Option<usize>,
    /// Channels of a K step at most: int4's saturation bound (5.3).
    pub most: usize,
    /// K steps stay inside groups of so many channels: group-wise scales (7.6).
    pub group: Option<usize>,
    /// Whether the tasks of a job run in one kick (1.6).
    pub chained: bool,
    /// Whether the weights are packed for this call and need room of their own.
    pub streamed: bool,
    /// Longest a job may take at the slowest clock, modelled.
    pub job_ns: u64,
}

/// Longest a job may take at the slowest clock: a fifth of what the driver kills at, whatever the
/// clock (kernel-and-uapi A.5).
pub const JOB_NS: u64 = 100_000_000;

impl Request {
    /// A plain request.
    pub fn new(dtype: DType, shape: Shape) -> Request {
        let most = dtype.info().k_cap;
        Request {
            dtype,
            shape,
            step: None,
            most,
            group: None,
            chained: false,
            streamed: false,
            job_ns: JOB_NS,
        }
    }

    /// The shape with every dimension on its grid; more rows where K is split on chip, whose
    /// operand needs twelve (trap 22).
    pub fn padded(&self, n_kt: usize) -> Shape {
        let t = self.dtype.info();
        let least = if self.on_chip() && n_kt > 1 { OPERAND_MIN_ROWS as usize } else { 4 };
        Shape {
            m: self.shape.m.next_multiple_of(4).max(least),
            k: self.shape.k.next_multiple_of(t.k_group),
            n: self.shape.n.next_multiple_of(t.n_group),
        }
    }

    /// Whether K steps are added up on chip.
    pub fn on_chip(&self) -> bool {
        self.dtype == DType::Fp16
    }

    /// Result images of a block: two that take turns on chip, else one a K step.
    pub fn images(&self, plan: &TilePlan) -> usize {
        if self.on_chip() { plan.n_kt.min(2) } else { plan.n_kt }
    }

    /// Rows and columns of the blocks that are run and read together.
    pub fn block(&self, plan: &TilePlan) -> [usize; 2] {
        let t = self.dtype.info();
        let padded = self.padded(plan.n_kt);
        let cell = self.images(plan) * t.out_bytes;
        // Blocks of equal size, so that one's buffers fit the next.
        let whole = |bytes: usize, unit: usize, tile: usize, len: usize| {
            let most = (bytes / unit / tile).max(1);
            let tiles = len.div_ceil(tile);
            (tiles.div_ceil(tiles.div_ceil(most)) * tile).min(len)
        };
        let rows = whole(IMAGE_BYTES, cell * plan.nt, plan.mt, padded.m);
        let columns = whole(IMAGE_BYTES, cell * rows, plan.nt, padded.n);
        if !self.streamed {
            return [rows, columns];
        }
        [rows, columns.min(whole(STREAM_BYTES, t.row_bytes(padded.k), plan.nt, padded.n))]
    }
}

/// What a plan costs one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cost {
    /// Bytes that tasks move between memory and the core, programs not counted.
    pub bytes: u64,
    /// Tasks.
    pub tasks: u64,
    /// Modelled time at the nominal clock, with the host's share of it.
    pub ns: u64,
}

/// Prices `plan` for `request`.
pub fn price(request: &Request, plan: &TilePlan) -> Cost {
    let t = request.dtype.info();
    let timing = &RK3588.timing;
    let padded = request.padded(plan.n_kt);
    let [rows, columns] = request.block(plan);
    let parts = |len: usize, part: usize| {
        let full = len / part;
        [(full, part), (usize::from(!len.is_multiple_of(part)), len % part)]
    };
    let mut fetched = 0;
    for (times_m, m) in parts(padded.m, rows) {
        for (times_n, n) in parts(padded.n, columns) {
            if times_m * times_n > 0 {
                let block = (Axis { len: m, tile: plan.mt }, Axis { len: n, tile: plan.nt });
                fetched += times_m * times_n * cheaper(block.0, block.1).1;
            }
        }
    }
    let cells = (padded.m * padded.n * t.out_bytes) as u64;
    let steps = plan.n_kt as u64;
    let images = if request.on_chip() { 1 } else { steps };
    let moved = if request.on_chip() { 2 * steps - 1 } else { steps };
    let bytes = (fetched * t.row_bytes(padded.k)) as u64 + cells * moved;
    let tasks = plan.tasks() as u64;
    let kicks = if request.chained { tasks.div_ceil(64) } else { tasks };
    let on_core = cost::task_ns(&RK3588, t.bits, padded.macs(), bytes, RK3588.nominal_hz);
    let host = cells * images * 1000 / timing.host_bytes_per_us;
    let starts = kicks * timing.kick_ns + (tasks - kicks) * timing.link_ns;
    Cost { bytes, tasks, ns: on_core + starts + host }
}

/// The plan for `request`, `None` when a dimension is 0 or beyond 2^24, when a K step that is
/// given cannot be run, or when a group is not whole weight blocks.
pub fn search(request: &Request) -> Option<TilePlan> {
    let t = request.dtype.info();
    let Shape { m, k, n } = request.shape;
    if m.min(k).min(n) == 0 || m.max(k).max(n) > MAX_DIM {
        return None;
    }
    if request.group.is_some_and(|g| g == 0 || !g.is_multiple_of(t.k_group)) {
        return None;
    }
    let rule = rule(request);
    let limit = rule.map_or(u64::MAX, |p| price(request, &p).bytes);
    let fit = Fit::of(request.dtype);
    let mut best: Option<(u64, u64, TilePlan)> = None;
    let mut offer = |p: TilePlan| {
        let cost = price(request, &p);
        let better = best.is_none_or(|(ns, bytes, _)| (cost.ns, cost.bytes) < (ns, bytes));
        if better && cost.bytes <= limit {
            best = Some((cost.ns, cost.bytes, p));
        }
    };
    rule.into_iter().for_each(&mut offer);
    for kt in steps(request) {
        let padded = request.padded(request.shape.k.div_ceil(kt));
        for mt in rows(request, padded.m, kt) {
            let columns = (t.n_group..=padded.n.min(MAX_TILE)).step_by(t.n_group);
            for nt in columns.take_while(|&nt| fit.holds(mt, kt, nt)) {
                offer(TilePlan::new(padded, mt, kt, nt));
            }
        }
    }
    best.map(|(_, _, p)| p)
}

/// The reference's plan, where it is one that can be run here as it is.
fn rule(request: &Request) -> Option<TilePlan> {
    let p = plan(request.dtype, request.padded(2))?;
    let same = request.padded(p.n_kt) == request.padded(2);
    let step = request.step.is_none_or(|s| s == p.kt) && p.kt <= request.most;
    let tail = request.padded(p.n_kt).m - (p.n_mt - 1) * p.mt;
    let rows = !request.on_chip() || p.n_kt == 1 || tail >= OPERAND_MIN_ROWS as usize;
    (same && step && rows && request.group.is_none()).then_some(p)
}

/// K steps worth a try, longest first.
fn steps(request: &Request) -> Vec<usize> {
    let t = request.dtype.info();
    let k = request.shape.k.next_multiple_of(t.k_group);
    let cap = t.k_cap.min(request.most).min(k) / t.k_group * t.k_group;
    if let Some(step) = request.step {
        return if step > 0 && step <= cap.max(t.k_group) { vec![step] } else { Vec::new() };
    }
    if let Some(group) = request.group {
        let units = (1..=cap.min(group) / t.k_group).rev().map(|i| i * t.k_group);
        return units.filter(|d| group.is_multiple_of(*d)).collect();
    }
    if cap == 0 {
        return Vec::new();
    }
    let fewest = k.div_ceil(cap);
    let mut all: Vec<usize> = (fewest..=fewest + MORE_STEPS)
        .map(|s| k.div_ceil(s).next_multiple_of(t.k_group))
        .filter(|kt| *kt <= cap)
        .collect();
    // Above, a step that does not even leave a column its bank is passed over; below, K may be
    // so long that none of these fits.
    let fit = Fit::of(request.dtype);
    if !all.iter().any(|kt| fit.holds(MAX_TILE, *kt, t.n_group)) {
        let fits = |kt: &usize| fit.holds(MAX_TILE.min(request.shape.m), *kt, t.n_group);
        all.extend(
            (1..=cap / t.k_group).rev().map(|i| i * t.k_group).filter(fits).take(MORE_STEPS),
        );
    }
    all.dedup();
    all
}

/// Row counts of a tile worth a try: equal parts of `m`, and the rule's.
fn rows(request: &Request, m: usize, kt: usize) -> Vec<usize> {
    let split = request.shape.k > kt && request.on_chip();
    let fewest = m.div_ceil(MAX_TILE);
    let part = |j: usize| m.div_ceil(j).next_multiple_of(4);
    let equal = (fewest..=fewest + MORE_ROWS).map(part);
    let long_enough = |mt: &usize| {
        let last = m - (m.div_ceil(*mt) - 1) * mt;
        !split || last >= OPERAND_MIN_ROWS as usize
    };
    let mut all: Vec<usize> = equal.chain([m.min(MAX_TILE)]).filter(long_enough).collect();
    // A step that was planned for fewer rows may leave room for none of these.
    let fit = Fit::of(request.dtype);
    let fits = |mt: &usize| fit.holds(*mt, kt, request.dtype.info().n_group);
    if request.step.is_some() && !all.iter().any(fits) {
        let more = (fewest + MORE_ROWS + 1..=m.div_ceil(4)).map(part);
        all.extend(more.filter(long_enough).filter(fits).take(MORE_ROWS));
    }
    all.sort_unstable_by(|a, b| b.cmp(a));
    all.dedup();
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 944 channels of tf32 leave room for fewer rows than a tenth of these.
    #[test]
    fn a_long_packed_step_has_low_tiles() {
        let request =
            |m| Request { chained: true, ..Request::new(DType::Tf32, Shape { m, k: 929, n: 1 }) };
        let step = search(&request(512)).expect("plans").kt;
        assert_eq!(step, 944);
        let plan = search(&Request { step: Some(step), ..request(841) }).expect("plans");
        assert!(plan.mt * step * 4 <= 10 * RK3588.bank_bytes, "{plan:?}");
    }

    proptest! {
        /// The rule is npu-rk3588 7.2, which recorded plans prove.
        #[test]
        fn no_plan_moves_more_than_the_rules(
            dtype in prop::sample::select(DType::ALL.to_vec()),
            m in 1usize..900, k in 1usize..5000, n in 1usize..3000, streamed: bool,
        ) {
            let request = Request { streamed, ..Request::new(dtype, Shape { m, k, n }) };
            let [ours, rules] = [search(&request), rule(&request)]
                .map(|p| p.map(|p| price(&request, &p).bytes));
            let ours = ours.expect("plans");
            prop_assert!(rules.is_none_or(|rules| ours <= rules), "{:?} {:?}", ours, rules);
        }

        /// Weights packed for 512 rows serve any number of rows.
        #[test]
        fn a_packed_step_serves_every_m(
            dtype in prop::sample::select(DType::ALL.to_vec()),
            m in 1usize..4000, k in 1usize..5000, n in 1usize..600, chained: bool,
        ) {
            let at = |m| Request { chained, ..Request::new(dtype, Shape { m, k, n }) };
            let packed = search(&at(512)).expect("plans");
            let plan = search(&Request { step: Some(packed.kt), ..at(m) });
            prop_assert_eq!(plan.map(|p| p.kt), Some(packed.kt));
        }

        /// What a worker holds at once is bounded, unless one tile is more.
        #[test]
        fn blocks_keep_to_their_memory(
            dtype in prop::sample::select(DType::ALL.to_vec()),
            m in 1usize..9000, k in 1usize..20_000, n in 1usize..60_000, streamed: bool,
        ) {
            let request = Request { streamed, ..Request::new(dtype, Shape { m, k, n }) };
            let p = search(&request).expect("plans");
            let [rows, columns] = request.block(&p);
            let t = dtype.info();
            let images = rows * columns * request.images(&p) * t.out_bytes;
            prop_assert!(images <= 64 << 20 || columns <= p.nt && rows <= p.mt, "{:?}", p);
            let weights = t.row_bytes(columns * request.padded(p.n_kt).k);
            prop_assert!(!streamed || weights <= 32 << 20 || columns <= p.nt, "{:?}", p);
        }
    }
}
