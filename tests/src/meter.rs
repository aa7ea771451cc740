//! A simulated board that tells what one call cost: the exact counters, and what they lack, the
//! longest job and how jobs spread over the cores.
//!
//! Jobs run one after another on the thread that submits them, each between two snapshots of the
//! counters, so that what is told does not depend on the speed of this machine or on which thread
//! came first. When each would have run is worked out afterwards by [`timeline`](crate::timeline).

use crate::timeline::{Event, busy};
use rocket_runtime::device::{BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node};
use rocket_runtime::soc::Profile;
use rocket_runtime::uapi::BoRange;
use rocket_sim::{Config, Counters, Errno, SimBoard};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What a call cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The board's counters. Its cores and waits say nothing: see the module.
    pub counters: Counters,
    /// The longest job, modelled at the slowest clock, in ns.
    pub longest_job_ns: u64,
    /// What the busiest core had to do, modelled at the nominal clock, in ns. Host time is none.
    pub busiest_core_ns: u64,
}

impl Cost {
    /// Bytes moved by the cores: features, weights, operands and results.
    pub fn dma(&self) -> u64 {
        moved(&self.counters)
    }
}

fn moved(c: &Counters) -> u64 {
    c.dma_read_feature + c.dma_read_weight + c.dma_read_operand + c.dma_write
}

/// See the module.
#[derive(Debug)]
pub struct Meter {
    sim: SimBoard,
    trace: Arc<Mutex<Trace>>,
}

#[derive(Debug, Default)]
struct Trace {
    files: usize,
    /// By file.
    events: BTreeMap<usize, Vec<Event>>,
    /// The job that wrote an object last, by file and handle.
    writers: BTreeMap<(usize, u32), usize>,
    /// Modelled time of each job, at the nominal and at the slowest clock.
    jobs: Vec<[u64; 2]>,
}

impl Meter {
    /// A meter of a board like this one, at the nominal clock.
    pub fn new(config: Config) -> Meter {
        let clock_hz = rocket_runtime::soc::RK3588.nominal_hz;
        let sim = SimBoard::new(Config { stepped: true, clock_hz, ..config });
        Meter { sim, trace: Arc::default() }
    }

    /// The board.
    pub fn board(&self) -> &SimBoard {
        &self.sim
    }

    /// What `call` cost from when it says so, by calling what it is given. Nothing may be in
    /// flight then, nor at its end.
    ///
    /// # Errors
    /// What `call` returns.
    pub fn measure<T, E>(
        &self,
        call: impl FnOnce(&mut dyn FnMut()) -> Result<T, E>,
    ) -> Result<(T, Cost), E> {
        let mut before = Counters::default();
        let mut begin = || {
            let mut trace = self.trace();
            *trace = Trace { files: trace.files, ..Trace::default() };
            before = self.sim.counters();
        };
        begin();
        let result = call(&mut begin)?;
        let counters = self.sim.counters() - before;
        let trace = self.trace();
        let at = |clock: usize| trace.jobs.iter().map(move |j| j[clock]);
        let nominal: Vec<u64> = at(0).collect();
        let files: Vec<&[Event]> = trace.events.values().map(Vec::as_slice).collect();
        let cost = Cost {
            counters,
            longest_job_ns: at(1).max().unwrap_or(0),
            busiest_core_ns: busy(&files, &nominal, self.sim.config().cores)
                .into_iter()
                .max()
                .unwrap_or(0),
        };
        Ok((result, cost))
    }

    fn trace(&self) -> MutexGuard<'_, Trace> {
        lock(&self.trace)
    }
}

fn lock(trace: &Mutex<Trace>) -> MutexGuard<'_, Trace> {
    trace.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Board for Meter {
    fn profile(&self) -> &'static Profile {
        self.sim.profile()
    }

    fn describe(&self) -> String {
        self.sim.describe()
    }

    fn open(&self) -> rocket_runtime::Result<Arc<dyn Node>> {
        let node = self.sim.open()?;
        let mut trace = self.trace();
        let file = trace.files;
        trace.files += 1;
        Ok(Arc::new(Metered { node, file, sim: self.sim.clone(), trace: Arc::clone(&self.trace) }))
    }
}

#[derive(Debug)]
struct Metered {
    node: Arc<dyn Node>,
    file: usize,
    sim: SimBoard,
    trace: Arc<Mutex<Trace>>,
}

/// Modelled time of a job that did this, at another clock: only multiplying depends on it.
fn at_clock(profile: &Profile, job: &Counters, ns: u64, hz: u64) -> u64 {
    let t = &profile.timing;
    let fixed = t.job_ns + job.kicks * t.kick_ns + moved(job) * 1000 / t.bytes_per_us;
    fixed + ns.saturating_sub(fixed) * profile.nominal_hz / hz
}

impl Metered {
    /// Notes that the last job that wrote the object is waited for.
    fn waited(&self, handle: u32) {
        let mut trace = lock(&self.trace);
        if let Some(&job) = trace.writers.get(&(self.file, handle)) {
            trace.events.entry(self.file).or_default().push(Event::Wait(job));
        }
    }
}

impl Node for Metered {
    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        // Held over the jobs: between two snapshots there is one job's work and no other's.
        let mut trace = lock(&self.trace);
        self.node.submit(jobs)?;
        let mut numbers = Vec::new();
        let mut queued = jobs.iter();
        loop {
            let before = self.sim.counters();
            if !self.sim.step() {
                break;
            }
            let done = self.sim.counters() - before;
            let ns: u64 = done.modelled_ns.iter().sum();
            let profile = self.sim.profile();
            let number = trace.jobs.len();
            trace.jobs.push([ns, at_clock(profile, &done, ns, profile.slowest_hz)]);
            for handle in queued.next().map_or(&[][..], |j| j.writes) {
                trace.writers.insert((self.file, *handle), number);
            }
            numbers.push(number);
        }
        trace.events.entry(self.file).or_default().push(Event::Submit(numbers));
        Ok(())
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        self.waited(handle);
        self.node.prep_bo(handle, deadline)
    }

    fn version(&self) -> Result<DriverVersion, Errno> {
        self.node.version()
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        self.node.create_bo(size)
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        self.node.map_bo(bo, len)
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        self.node.fini_bo(handle)
    }

    fn prep_bo_ranges(
        &self,
        handle: u32,
        ranges: &[BoRange],
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.waited(handle);
        self.node.prep_bo_ranges(handle, ranges, deadline)
    }

    fn fini_bo_ranges(&self, handle: u32, ranges: &[BoRange]) -> Result<(), Errno> {
        self.node.fini_bo_ranges(handle, ranges)
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        self.node.close_bo(handle)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reference::{Kind, Residency, Waits, replay, split};
    use rocket_runtime::dtype::DType;
    use rocket_runtime::plan::Shape;
    use rocket_sim::Arithmetic;

    fn cost(clock_hz: u64, waits: Waits) -> (Cost, Counters) {
        let config = Config { arithmetic: Arithmetic::Count, ..Config::default() };
        let shape = Shape { m: 300, k: 2080, n: 400 };
        let shares = split(Kind::plain(DType::Fp16), shape, 1, Residency::Resident).unwrap();
        let meter = Meter::new(config.clone());
        let (_, cost) = meter.measure(|begin| replay(&meter, &shares, waits, None, begin)).unwrap();
        let board = SimBoard::new(Config { clock_hz, ..config });
        let mut before = board.counters();
        replay(&board, &shares, waits, None, || before = board.counters()).unwrap();
        (cost, board.counters() - before)
    }

    /// What a board with core threads counts of the same calls.
    #[test]
    fn a_meter_counts_what_a_board_does() {
        let (cost, board) = cost(600_000_000, Waits::Each);
        let without = |c: Counters| Counters {
            waits: 0,
            jobs_by_core: [0; 3],
            modelled_ns: [0; 3],
            files_closed: 0,
            ..c
        };
        assert_eq!(without(cost.counters), without(board));
        // One file: its jobs are never on two cores at a time.
        let sum = |c: &Counters| c.modelled_ns.iter().sum::<u64>();
        assert_eq!(sum(&board), sum(&cost.counters));
        assert_eq!(cost.counters.jobs, 5);
        // Tiles of 256 x 512 x 128, five K steps: of four tiles in a row of tiles two reuse their
        // features, the last is narrower.
        let features = 2 * 300 * 2080 * 2;
        let weights = 2 * 400 * 2080 * 2;
        let results = 300 * 400 * 2;
        assert_eq!(cost.dma(), features + weights + 5 * results + 4 * results);
    }

    /// The jobs' own sum at the slow clock lies at the sum a slow board counts.
    #[test]
    fn a_job_is_as_long_at_the_slow_clock_as_a_slow_board_has_it() {
        let config = Config { arithmetic: Arithmetic::Count, ..Config::default() };
        let shape = Shape { m: 256, k: 512, n: 1024 };
        let shares = split(Kind::plain(DType::Fp16), shape, 1, Residency::Resident).unwrap();
        assert_eq!(shares[0].sequence.jobs.len(), 1);
        let meter = Meter::new(config.clone());
        let run = |board: &dyn Board, begin: &mut dyn FnMut()| {
            replay(board, &shares, Waits::Each, None, begin)
        };
        let (_, cost) = meter.measure(|begin| run(&meter, begin)).unwrap();
        let slow = SimBoard::new(Config { clock_hz: 200_000_000, ..config });
        run(&slow, &mut || ()).unwrap();
        let want: u64 = slow.counters().modelled_ns.iter().sum();
        assert!(cost.longest_job_ns.abs_diff(want) < 100, "{} {want}", cost.longest_job_ns);
        assert!(cost.busiest_core_ns < want);
    }
}
