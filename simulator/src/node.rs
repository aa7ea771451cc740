use crate::kernel::fence::lock;
use crate::kernel::memory::{Bo, PAGE};
use crate::kernel::sched;
use crate::kernel::space::Space;
use crate::kernel::submit::Origin;
use crate::machine::Machine;
use crate::{CORES, Config, Counters, DriverProfile, Explanation, Fault, Rule};
use nix::errno::Errno;
use rocket_runtime::device::{BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node};
use rocket_runtime::soc::{Profile, RK3588};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
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
        SimBoard { inner: Arc::new(Inner { machine, threads: Mutex::default() }) }
    }

    /// Opens a file, as [`Board::open`] does, with its concrete type.
    ///
    /// # Errors
    /// EPERM when [`Fault::OpenEperm`] is injected.
    pub fn open_file(&self) -> rocket_runtime::Result<SimFile> {
        let machine = &self.inner.machine;
        if machine.fault(|f| (*f == Fault::OpenEperm).then_some(())).is_some() {
            return Err(rocket_runtime::Error::Driver {
                call: "open",
                errno: Errno::EPERM,
                doing: "opening the simulated accel node".to_owned(),
            });
        }
        Ok(SimFile {
            id: machine.files_seen.fetch_add(1, Relaxed),
            board: Arc::clone(&self.inner),
            space: Arc::new(Space::default()),
            handles: Mutex::default(),
        })
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
        format!("simulated {} ({:?} driver, {:?} arithmetic)", RK3588.name, c.profile, c.arithmetic)
    }

    fn open(&self) -> rocket_runtime::Result<Arc<dyn Node>> {
        Ok(Arc::new(self.open_file()?))
    }
}

#[derive(Debug)]
struct Inner {
    machine: Arc<Machine>,
    threads: Mutex<[Option<JoinHandle<()>>; CORES]>,
}

impl Inner {
    /// Starts a core's thread on its first job.
    fn start(&self, core: usize) {
        let slot = &mut lock(&self.threads)[core];
        if slot.is_none() {
            let machine = Arc::clone(&self.machine);
            let thread = std::thread::Builder::new().name(format!("sim-npu-{core}"));
            match thread.spawn(move || sched::run_core(&machine, core)) {
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

/// One open file of a simulated board: its own address space, handles and job queue.
#[derive(Debug)]
pub struct SimFile {
    id: u64,
    board: Arc<Inner>,
    space: Arc<Space>,
    handles: Mutex<BTreeMap<u32, Handle>>,
}

#[derive(Debug)]
struct Handle {
    bo: Arc<Bo>,
    offset: u64,
}

impl SimFile {
    /// The file's number in explanations.
    pub fn id(&self) -> u64 {
        self.id
    }

    fn machine(&self) -> &Machine {
        &self.board.machine
    }

    fn bo(&self, handle: u32) -> Result<Arc<Bo>, Errno> {
        lock(&self.handles).get(&handle).map(|h| Arc::clone(&h.bo)).ok_or(Errno::ENOENT)
    }
}

impl Node for SimFile {
    fn version(&self) -> Result<DriverVersion, Errno> {
        Ok(match self.machine().config.profile {
            DriverProfile::Stock => DriverVersion { major: 0, minor: 0 },
            DriverProfile::Patched => DriverVersion { major: 1, minor: 1 },
        })
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        let m = self.machine();
        let n = m.creates_seen.fetch_add(1, Relaxed);
        if m.fault(|f| (*f == Fault::CreateBoEnomem(n)).then_some(())).is_some() {
            return Err(Errno::ENOMEM);
        }
        let bo = Bo::create(&self.space, size)?;
        let offset = m.next_offset.fetch_add(bo.size() / PAGE, Relaxed) * PAGE;
        let iova = bo.iova();
        let mut handles = lock(&self.handles);
        // GEM gives out the lowest free handle, from 1.
        let handle = (1..).zip(handles.keys()).find(|(want, have)| want != *have);
        let handle = handle.map_or(handles.len() as u32 + 1, |(want, _)| want);
        handles.insert(handle, Handle { bo: Arc::new(bo), offset });
        Ok(BoInfo { handle, iova, mmap_offset: offset })
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        let handles = lock(&self.handles);
        let found = handles.values().find(|h| h.offset == bo.mmap_offset).ok_or(Errno::EINVAL)?;
        if len == 0 || len as u64 > found.bo.size() {
            return Err(Errno::EINVAL);
        }
        Mapping::of_words(Arc::clone(&found.bo), len).ok_or(Errno::EINVAL)
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        // Held to the end: the order of fences is the order of the queue.
        let handles = lock(&self.handles);
        let by_handle: BTreeMap<u32, Arc<Bo>> = jobs
            .iter()
            .flat_map(|j| j.reads.iter().chain(j.writes))
            .filter_map(|h| handles.get(h).map(|x| (*h, Arc::clone(&x.bo))))
            .collect();
        let origin = Origin {
            machine: self.machine(),
            file: self.id,
            space: &self.space,
            handles: &by_handle,
        };
        origin.submit(jobs, |core| self.board.start(core))
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        let bo = self.bo(handle)?;
        let waited = bo.last_writer().map_or(Ok(()), |fence| fence.wait(deadline));
        // The caches are synchronised even when the wait fails (kernel-and-uapi A.4).
        bo.to_cpu();
        self.machine().count(|c| c.cpu_sync += bo.size());
        waited
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        let bo = self.bo(handle)?;
        bo.to_device();
        self.machine().count(|c| c.cpu_sync += bo.size());
        Ok(())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        // The object itself goes when no mapping and no job needs it any more.
        let closed = lock(&self.handles).remove(&handle);
        closed.map(drop).ok_or(Errno::EINVAL)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let m = self.machine();
        let in_flight = m.sched.close(self.id);
        m.count(|c| c.files_closed += 1);
        if in_flight > 0 && m.config.profile == DriverProfile::Stock {
            m.count(|c| c.closed_with_jobs_in_flight += 1);
            let message = format!(
                "{in_flight} job(s) queued or running at close; a stock kernel frees their \
                 buffers into freed memory and may crash"
            );
            m.explain(Rule::ClosedInFlight, self.id, None, None, message);
        }
    }
}
