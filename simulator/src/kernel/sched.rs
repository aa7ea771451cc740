//! The scheduler: one queue a file, jobs in order within it, one file on one core at a time
//! (kernel-and-uapi A.5).

use super::fence::{Fence, lock};
use super::memory::Bo;
use super::space::Space;
use crate::machine::Machine;
use crate::npu::Npu;
use crate::{CORES, Rule};
use rocket_runtime::uapi;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// A job that SUBMIT accepted.
#[derive(Debug)]
pub struct Job {
    pub number: u64,
    pub file: u64,
    pub tasks: Vec<uapi::Task>,
    pub batched: bool,
    pub space: Arc<Space>,
    /// Kept alive until the job has ended (kernel-and-uapi A.3).
    pub buffers: Vec<Arc<Bo>>,
    pub fence: Arc<Fence>,
    /// Fences of other jobs that must signal first.
    pub after: Vec<Arc<Fence>>,
}

impl Job {
    fn ready(&self) -> bool {
        self.after.iter().all(|fence| fence.signalled())
    }
}

#[derive(Debug)]
struct Queue {
    core: usize,
    jobs: VecDeque<Job>,
    running: bool,
    closed: bool,
}

impl Queue {
    fn idle(&self) -> bool {
        self.jobs.is_empty() && !self.running
    }
}

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<u64, Queue>,
    /// Cores that wait for the driver's timeout.
    hanging: [bool; CORES],
    shutdown: bool,
}

impl State {
    /// The core a file moves to when it has nothing queued: the least loaded, see
    /// [`assumptions`](crate::assumptions).
    fn choose_core(&self, file: u64, cores: usize) -> usize {
        let current = self.files.get(&file).map(|q| q.core);
        let load = |core: usize| -> usize {
            let others = self.files.iter().filter(|(id, q)| **id != file && q.core == core);
            others.map(|(_, q)| 1 + q.jobs.len() + usize::from(q.running)).sum()
        };
        (0..cores).min_by_key(|&c| (load(c), Some(c) != current, c)).unwrap_or(0)
    }

    /// Takes the oldest job that can run on one of these cores; its file counts as running.
    fn oldest(&mut self, wanted: impl Fn(usize) -> bool) -> Option<(usize, Job)> {
        let ready = self.files.values_mut().filter(|q| wanted(q.core) && !q.running);
        let (_, queue) = ready
            .filter_map(|q| q.jobs.front().filter(|j| j.ready()).map(|j| j.number).map(|n| (n, q)))
            .min_by_key(|(n, _)| *n)?;
        let job = queue.jobs.pop_front()?;
        queue.running = true;
        Some((queue.core, job))
    }
}

/// The queues, and what wakes the cores.
#[derive(Debug)]
pub struct Sched {
    cores: usize,
    state: Mutex<State>,
    wake: Condvar,
}

impl Sched {
    pub fn new(cores: usize) -> Sched {
        Sched { cores, state: Mutex::default(), wake: Condvar::new() }
    }

    /// Queues a job and says which core it will run on.
    pub fn push(&self, job: Job) -> usize {
        let mut state = lock(&self.state);
        let file = job.file;
        let moved = state.choose_core(file, self.cores);
        let queue = state.files.entry(file).or_insert_with(|| Queue {
            core: moved,
            jobs: VecDeque::new(),
            running: false,
            closed: false,
        });
        if queue.idle() {
            queue.core = moved;
        }
        queue.jobs.push_back(job);
        let core = queue.core;
        drop(state);
        self.wake.notify_all();
        core
    }

    /// A file is closed. Its queued jobs still run; says how many jobs were in flight.
    pub fn close(&self, file: u64) -> usize {
        let mut state = lock(&self.state);
        let Some(queue) = state.files.get_mut(&file) else { return 0 };
        let in_flight = queue.jobs.len() + usize::from(queue.running);
        queue.closed = true;
        if in_flight == 0 {
            state.files.remove(&file);
        }
        in_flight
    }

    /// Whether a file's jobs are not done only because this machine is slower than silicon: the
    /// core they are queued to computes.
    pub fn computes(&self, file: u64) -> bool {
        let state = lock(&self.state);
        let busy = state.files.get(&file).filter(|q| !q.idle());
        busy.is_some_and(|q| !state.hanging[q.core % CORES])
    }

    /// Jobs queued or running.
    pub fn in_flight(&self) -> usize {
        let state = lock(&self.state);
        state.files.values().map(|q| q.jobs.len() + usize::from(q.running)).sum()
    }

    pub fn shutdown(&self) {
        lock(&self.state).shutdown = true;
        self.wake.notify_all();
    }

    /// Takes the oldest job of this core's files; none when the board is going away.
    fn take(&self, core: usize) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if state.shutdown {
                return None;
            }
            if let Some((_, job)) = state.oldest(|c| c == core) {
                return Some(job);
            }
            state = self.wake.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Takes the oldest job of all, and says which core it is for; none when nothing waits.
    pub fn take_any(&self) -> Option<(usize, Job)> {
        lock(&self.state).oldest(|_| true)
    }

    fn finished(&self, file: u64) {
        let mut state = lock(&self.state);
        if let Some(queue) = state.files.get_mut(&file) {
            queue.running = false;
            if queue.closed && queue.jobs.is_empty() {
                state.files.remove(&file);
            }
        }
    }

    /// Has cores look again: whether a hang is over, or a job can run now.
    pub fn wake(&self) {
        // Under the lock, so that no core is between its look and its sleep.
        let _state = lock(&self.state);
        self.wake.notify_all();
    }

    /// A hanging core: sleeps until the driver's timeout, or until `over`.
    fn hang_until(&self, core: usize, end: Instant, over: impl Fn() -> bool) {
        let mut state = lock(&self.state);
        state.hanging[core % CORES] = true;
        while !state.shutdown && !over() {
            let Some(left) = end.checked_duration_since(Instant::now()).filter(|d| !d.is_zero())
            else {
                break;
            };
            let wait = self.wake.wait_timeout(state, left);
            state = wait.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.hanging[core % CORES] = false;
    }
}

/// The life of one core: jobs one after another until the board goes away.
pub fn run_core(machine: &Machine, core: usize) {
    let mut npu = Npu::new(machine.config.assumptions);
    while let Some(job) = machine.sched.take(core) {
        run(machine, &mut npu, core, job);
    }
}

/// One job that was taken, to its end and its signal.
pub fn run(machine: &Machine, npu: &mut Npu, core: usize, job: Job) {
    let end = Instant::now() + machine.config.timeout;
    machine.count(|c| c.jobs_by_core[core % CORES] += 1);
    machine.activity.start(core, Instant::now());
    let run = catch_unwind(AssertUnwindSafe(|| npu.run_job(&job, machine, core)));
    let completed = machine.gone()
        || run.unwrap_or_else(|_| {
            let message = "the core panicked while running the job".to_owned();
            machine.explain(Rule::Internal, job.file, Some(job.number), None, message);
            false
        });
    if !completed {
        if !machine.config.stepped {
            machine.sched.hang_until(core, end, || machine.gone());
        }
        // A node that has gone has ended the job by itself.
        machine.count(|c| c.jobs_timed_out += u64::from(!machine.gone()));
        npu.reset();
    }
    let Job { file, fence, buffers, space, tasks, .. } = job;
    machine.activity.end(core, Instant::now(), completed.then_some(tasks.len() as u64));
    drop((buffers, space));
    // First idle, then the signal: whoever wakes finds the file free to move.
    machine.sched.finished(file);
    machine.count(|c| c.fences += 1);
    fence.signal();
    machine.sched.wake();
}
