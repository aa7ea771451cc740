use crate::file::SimFile;
use crate::kernel::fence::lock;
use crate::kernel::memory::Backing;
use crate::kernel::sched;
use crate::machine::Machine;
use crate::npu::Npu;
use crate::{CORES, Call, Config, CoreActivity, Counters, Explanation, Fault};
use nix::errno::Errno;
use rocket_runtime::device::{Board, Node, leave_signals_to_others};
use rocket_runtime::soc::{Profile, RK3588};
use serde::{Deserialize, Serialize};
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

/// A board in software. Clones are the same board; it ends when the last clone and the last file
/// are gone.
#[derive(Debug, Clone)]
pub struct SimBoard {
    inner: Arc<Inner>,
}

impl Default for SimBoard {
    fn default() -> SimBoard {
        SimBoard::new(Config::default())
    }
}

impl SimBoard {
    /// A board that has just been powered on.
    pub fn new(config: Config) -> SimBoard {
        let machine = Arc::new(Machine::new(config));
        SimBoard {
            inner: Arc::new(Inner {
                machine,
                threads: Mutex::default(),
                stepped: Mutex::default(),
            }),
        }
    }

    /// Opens a file, as [`Board::open`] does, with its concrete type.
    ///
    /// # Errors
    /// The errno of an injected fault.
    pub fn open_file(&self) -> Result<SimFile, Errno> {
        SimFile::open(&self.inner, Backing::Words)
    }

    /// Opens a file whose buffers other processes can map: see [`SimFile::memory`].
    ///
    /// # Errors
    /// As [`SimBoard::open_file`].
    pub fn open_shared(&self) -> Result<SimFile, Errno> {
        SimFile::open(&self.inner, Backing::File)
    }

    /// Calls of a kind since the board was made, failed ones included: what `Fault::Fail` counts.
    pub fn calls(&self, call: Call) -> u64 {
        self.inner.machine.calls(call)
    }

    /// What exists now: files, buffers and their bytes, jobs queued or running. All zero when
    /// nothing leaks.
    pub fn alive(&self) -> Alive {
        let m = &self.inner.machine;
        Alive {
            files: m.alive.files.load(Acquire),
            buffers: m.alive.buffers.load(Relaxed),
            bytes: m.alive.bytes.load(Relaxed),
            jobs: m.sched.in_flight() as u64,
        }
    }

    /// What its cores were doing up to now, in time on the wall.
    pub fn activity(&self) -> [CoreActivity; CORES] {
        self.inner.machine.activity.at(std::time::Instant::now())
    }

    /// What it is made of.
    pub fn config(&self) -> &Config {
        &self.inner.machine.config
    }

    /// What it did so far. Everything a job did is counted before its fence signals.
    pub fn counters(&self) -> Counters {
        self.inner.machine.counters()
    }

    /// The latest explanations, oldest first; at most 256 are kept.
    pub fn explanations(&self) -> Vec<Explanation> {
        self.inner.machine.explanations().0
    }

    /// How many explanations there were in all.
    pub fn explanation_count(&self) -> u64 {
        self.inner.machine.explanations().1
    }

    /// The explanations from the n-th on, as far as they are kept, and how many there were in all.
    pub fn explanations_from(&self, n: u64) -> (Vec<Explanation>, u64) {
        let (mut kept, total) = self.inner.machine.explanations();
        let first = total - kept.len() as u64;
        kept.drain(
            ..usize::try_from(n.saturating_sub(first)).map_or(kept.len(), |k| k.min(kept.len())),
        );
        (kept, total)
    }

    /// NPU clock now, in Hz.
    pub fn clock_hz(&self) -> u64 {
        self.inner.machine.clock_hz.load(Relaxed)
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        self.inner.machine.inject(fault);
    }

    /// Removes all faults.
    pub fn clear_faults(&self) {
        self.inner.machine.clear_faults();
    }

    /// The number the next submitted job will have.
    pub fn next_job(&self) -> u64 {
        self.inner.machine.jobs_seen.load(Relaxed)
    }

    /// Runs the oldest job that waits, on this thread and to its end; false when none does. For a
    /// board with [`Config::stepped`]: on any other, its own threads run the jobs.
    pub fn step(&self) -> bool {
        let machine = &self.inner.machine;
        // Held to the end: one step at a time, so that jobs end in the order they were taken.
        let mut cores = lock(&self.inner.stepped);
        let job = if machine.config.stepped { machine.sched.take_any() } else { None };
        let Some((core, job)) = job else { return false };
        let npu = cores[core % CORES]
            .get_or_insert_with(|| Box::new(Npu::new(machine.config.assumptions)));
        sched::run(machine, npu, core, job);
        true
    }

    /// Reloads the driver module as far as that matters here: wedged cores work again (trap 4).
    pub fn reload(&self) {
        self.inner.machine.reload();
    }
}

impl Board for SimBoard {
    fn profile(&self) -> &'static Profile {
        &RK3588
    }

    fn describe(&self) -> String {
        let c = self.config();
        format!(
            "simulated {} ({} driver, {:?} arithmetic)",
            RK3588.name,
            c.profile.name(),
            c.arithmetic
        )
    }

    fn open(&self) -> rocket_runtime::Result<Arc<dyn Node>> {
        let failed = |errno| rocket_runtime::Error::Driver {
            call: "open",
            errno,
            doing: "opening the simulated accel node".to_owned(),
        };
        Ok(Arc::new(self.open_file().map_err(failed)?))
    }
}

/// What exists on a board at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Alive {
    /// Open files.
    pub files: u64,
    /// Buffer objects.
    pub buffers: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Jobs queued or running.
    pub jobs: u64,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub machine: Arc<Machine>,
    threads: Mutex<[Option<JoinHandle<()>>; CORES]>,
    /// The cores of a board without threads.
    stepped: Mutex<[Option<Box<Npu>>; CORES]>,
}

impl Inner {
    /// Starts a core's thread on its first job.
    pub fn start(&self, core: usize) {
        if self.machine.config.stepped {
            return;
        }
        let slot = &mut lock(&self.threads)[core];
        if slot.is_none() {
            let machine = Arc::clone(&self.machine);
            let thread = std::thread::Builder::new().name(format!("sim-npu-{core}"));
            let run = move || {
                // A handler that waits for jobs must not wait in the thread that runs them.
                leave_signals_to_others();
                sched::run_core(&machine, core);
            };
            match thread.spawn(run) {
                Ok(handle) => *slot = Some(handle),
                // The jobs stay queued and the next submission tries again.
                Err(e) => tracing::error!("cannot start simulated core {core}: {e}"),
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.machine.sched.shutdown();
        for thread in lock(&self.threads).iter_mut().filter_map(Option::take) {
            // A core thread catches its panics; there is nothing to report from here.
            let _ = thread.join();
        }
    }
}
