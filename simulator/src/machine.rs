//! What the board's files, cores and observers share.

use crate::activity::Activity;
use crate::explain::Log;
use crate::fault::Call;
use crate::kernel::fence::lock;
use crate::kernel::memory::{Bo, PAGE};
use crate::kernel::sched::Sched;
use crate::{CORES, Config, Counters, Explanation, Fault, Rule};
use nix::errno::Errno;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// What exists now.
#[derive(Debug, Default)]
pub struct Alive {
    pub files: AtomicU64,
    pub buffers: AtomicU64,
    pub bytes: AtomicU64,
}

#[derive(Debug)]
pub struct Machine {
    pub config: Config,
    pub sched: Sched,
    /// What the cores were doing, and when.
    pub activity: Activity,
    /// Trap 4: set by a wrong operand configuration, cleared by a reload.
    pub wedged: [AtomicBool; CORES],
    pub jobs_seen: AtomicU64,
    pub files_seen: AtomicU64,
    /// Buffers known outside their file, by the inode of their memory.
    pub exported: Mutex<BTreeMap<u64, Weak<Bo>>>,
    pub alive: Arc<Alive>,
    /// NPU clock now, in Hz.
    pub clock_hz: AtomicU64,
    /// Next mmap offset, in pages.
    next_page: AtomicU64,
    calls_seen: [AtomicU64; Call::ALL.len()],
    all_calls_seen: AtomicU64,
    gone: AtomicBool,
    counters: Mutex<Counters>,
    log: Mutex<Log>,
    faults: Mutex<Vec<Fault>>,
}

impl Machine {
    pub fn new(mut config: Config) -> Machine {
        config.cores = config.cores.clamp(1, CORES);
        let faults = Mutex::new(std::mem::take(&mut config.faults));
        Machine {
            sched: Sched::new(config.cores),
            activity: Activity::new(config.profile.autosuspend()),
            clock_hz: AtomicU64::new(config.clock_hz),
            config,
            wedged: Default::default(),
            jobs_seen: AtomicU64::new(0),
            files_seen: AtomicU64::new(0),
            exported: Mutex::default(),
            next_page: AtomicU64::new(1 << 20),
            alive: Arc::default(),
            calls_seen: Default::default(),
            all_calls_seen: AtomicU64::new(0),
            gone: AtomicBool::new(false),
            counters: Mutex::default(),
            log: Mutex::default(),
            faults,
        }
    }

    /// An mmap offset that no buffer has (kernel-and-uapi A.3: from 4 GiB on).
    pub fn next_offset(&self, size: u64) -> u64 {
        self.next_page.fetch_add(size.div_ceil(PAGE), Relaxed) * PAGE
    }

    pub fn count(&self, f: impl FnOnce(&mut Counters)) {
        f(&mut lock(&self.counters));
    }

    pub fn counters(&self) -> Counters {
        *lock(&self.counters)
    }

    pub fn explain(
        &self,
        rule: Rule,
        file: u64,
        job: Option<u64>,
        task: Option<usize>,
        message: String,
    ) {
        lock(&self.log).push(Explanation { rule, file, job, task, message });
    }

    pub fn explanations(&self) -> (Vec<Explanation>, u64) {
        let log = lock(&self.log);
        (log.latest(), log.total())
    }

    pub fn inject(&self, fault: Fault) {
        lock(&self.faults).push(fault);
    }

    pub fn clear_faults(&self) {
        lock(&self.faults).clear();
        self.gone.store(false, Relaxed);
    }

    /// The first injected fault that `pick` recognises; it counts as met.
    pub fn fault<T>(&self, pick: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        let found = lock(&self.faults).iter().find_map(pick);
        if found.is_some() {
            self.count(|c| c.faults += 1);
        }
        found
    }

    /// Counts a call of the driver, and fails it when a fault says so.
    pub fn enter(&self, call: Call) -> Result<(), Errno> {
        let all = self.all_calls_seen.fetch_add(1, Relaxed);
        let n = self.calls_seen[call as usize].fetch_add(1, Relaxed);
        let vanishes = |f: &Fault| matches!(f, Fault::Vanish(at) if *at <= all).then_some(());
        if self.gone.load(Relaxed) || self.fault(vanishes).is_some() {
            if !self.gone.swap(true, Relaxed) {
                self.sched.wake();
            }
            return Err(if call == Call::Open { Errno::ENOENT } else { Errno::ENODEV });
        }
        self.fault(|f| f.at_call(call, n)).map_or(Ok(()), Err)
    }

    /// Calls of a kind so far, failed ones included.
    pub fn calls(&self, call: Call) -> u64 {
        self.calls_seen[call as usize].load(Relaxed)
    }

    /// Whether the node has vanished.
    pub fn gone(&self) -> bool {
        self.gone.load(Relaxed)
    }

    /// The faults of one job; they count as met when `meet` is set.
    pub fn job_faults(&self, job: u64, meet: bool) -> Vec<Fault> {
        let found: Vec<Fault> = lock(&self.faults).iter().filter_map(|f| f.at_job(job)).collect();
        if meet && !found.is_empty() {
            self.count(|c| c.faults += found.len() as u64);
        }
        found
    }

    pub fn reload(&self) {
        for w in &self.wedged {
            w.store(false, Relaxed);
        }
        self.clock_hz.store(self.config.clock_hz, Relaxed);
        self.gone.store(false, Relaxed);
    }
}
