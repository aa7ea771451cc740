//! What the board's files, cores and observers share.

use crate::explain::Log;
use crate::kernel::fence::lock;
use crate::kernel::sched::Sched;
use crate::{CORES, Config, Counters, Explanation, Fault, Rule};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

#[derive(Debug)]
pub struct Machine {
    pub config: Config,
    pub sched: Sched,
    /// Trap 4: set by a wrong operand configuration, cleared by a reload.
    pub wedged: [AtomicBool; CORES],
    pub jobs_seen: AtomicU64,
    pub submits_seen: AtomicU64,
    pub creates_seen: AtomicU64,
    pub files_seen: AtomicU64,
    /// Next mmap offset, in pages (kernel-and-uapi A.3: from 4 GiB).
    pub next_offset: AtomicU64,
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
            config,
            wedged: Default::default(),
            jobs_seen: AtomicU64::new(0),
            submits_seen: AtomicU64::new(0),
            creates_seen: AtomicU64::new(0),
            files_seen: AtomicU64::new(0),
            next_offset: AtomicU64::new(1 << 20),
            counters: Mutex::default(),
            log: Mutex::default(),
            faults,
        }
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
    }

    /// The first injected fault that `pick` recognises.
    pub fn fault<T>(&self, pick: impl FnMut(&Fault) -> Option<T>) -> Option<T> {
        lock(&self.faults).iter().find_map(pick)
    }

    /// The faults of one job.
    pub fn job_faults(&self, job: u64) -> Vec<Fault> {
        lock(&self.faults).iter().copied().filter(|f| f.job() == Some(job)).collect()
    }

    pub fn reload(&self) {
        for w in &self.wedged {
            w.store(false, Relaxed);
        }
    }
}
