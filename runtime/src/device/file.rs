//! [`File`]: an open accel file that copes with what the stock driver gets wrong.

use super::bo::Bo;
use super::in_flight;
use super::node::{Abilities, Board, Deadline, JobRef, Node};
use crate::uapi::{self, Task};
use crate::{Error, Result};
use nix::errno::Errno;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// The driver kills a job after this long (kernel-and-uapi A.5).
pub const JOB_TIMEOUT_MS: u64 = 500;
/// Bytes behind every buffer's contents: the feature DMA may over-read one bank (npu-rk3588 3.7).
pub const TAIL_BYTES: usize = 32768;
/// Caps that keep the driver's allocator from warning (kernel-and-uapi A.5).
const MAX_TASKS: usize = 65_536;
pub(crate) const MAX_JOBS: usize = 1_024;

/// An open file: an IOVA space, a job queue, and the buffers in them. Dropping it waits for its
/// jobs first: closing with a job in flight is a use after free in unpatched kernels
/// (kernel-and-uapi B.6 U1).
#[derive(Debug)]
pub struct File {
    node: Arc<dyn Node>,
    pid: u32,
    /// Submits not waited for yet.
    pending: Mutex<Vec<Submitted>>,
    serial: AtomicU64,
    /// A fence did not signal in its time; it will not be waited for again.
    wedged: AtomicBool,
    /// Files of this process that may share the cores, for the wait limit.
    sharers: u64,
    abilities: Abilities,
}

/// A submit by its own number: handles are reused.
#[derive(Debug, Clone, Copy)]
struct Submitted {
    serial: u64,
    /// Written by its last job.
    handle: u32,
    /// Bytes of it in use.
    len: usize,
    jobs: usize,
}

/// One job for [`File::submit`].
#[derive(Debug)]
pub struct Job<'a> {
    /// Programs, run in order on one core.
    pub tasks: Vec<Task>,
    /// Buffers that the job only reads, the program's own included.
    pub reads: Vec<&'a Bo>,
    /// Buffers that the job writes; the first is what is waited on.
    pub writes: Vec<&'a Bo>,
    /// Whether the programs are chained into one kick; only where [`File::abilities`] says that
    /// the driver can.
    pub batched: bool,
}

/// Jobs on their way. Holds the borrow of every buffer they touch, so that none can be prepared
/// for writing until the jobs were waited for: inputs have no fence of their own (A.4).
#[derive(Debug)]
pub struct Pending<'a> {
    file: &'a File,
    /// Every buffer in use: what makes this a borrow.
    _buffers: PhantomData<&'a Bo>,
    submitted: Submitted,
    done: bool,
}

impl File {
    /// Opens one more file of `board`. `sharers` is how many files will keep its cores busy.
    ///
    /// # Errors
    /// What the board says, or [`Error::Driver`] when the first allocation fails.
    pub fn open(board: &dyn Board, sharers: usize) -> Result<Arc<File>> {
        let node = board.open()?;
        let version =
            node.version().map_err(|e| driver("DRM_IOCTL_VERSION", e, "the interface version"))?;
        let file = Arc::new(File {
            abilities: Abilities::new(version, board.may_batch()),
            node,
            pid: std::process::id(),
            pending: Mutex::new(Vec::new()),
            serial: AtomicU64::new(0),
            wedged: AtomicBool::new(false),
            sharers: sharers.max(1) as u64,
        });
        // The first object gets IOVA 0 (A.3); a page that is never used keeps 0 meaning "none".
        // It lives until the file closes.
        file.node.create_bo(4096).map_err(|e| driver("CREATE_BO", e, "guard page"))?;
        Ok(file)
    }

    /// The driver's calls.
    pub(crate) fn node(&self) -> &dyn Node {
        &*self.node
    }

    /// What the driver offers.
    pub fn abilities(&self) -> Abilities {
        self.abilities
    }

    /// Refuses to go on in a forked child: it shares the parent's queue and buffers.
    ///
    /// # Errors
    /// [`Error::Unusable`].
    pub fn check_process(&self) -> Result<()> {
        if self.pid == std::process::id() {
            return Ok(());
        }
        Err(Error::Unusable { why: "the process was forked after the NPU was opened".into() })
    }

    /// Queues `jobs` in one call. Success says nothing about the jobs: a stock driver drops a job
    /// it rejects in silence. Whoever submits must find a witness of each job in its outputs.
    ///
    /// # Errors
    /// [`Error::Driver`] when the call itself fails, [`Error::Unusable`] after a fork or a job that
    /// never finished, [`Error::Ending`] once a signal asked the process to end, [`Error::Shape`]
    /// for job lists the driver would mishandle.
    pub fn submit<'a>(&'a self, jobs: &[Job<'a>]) -> Result<Pending<'a>> {
        self.check_process()?;
        if self.is_wedged() {
            return Err(Error::Unusable { why: "an earlier job never finished".into() });
        }
        let Some(wait_on) = jobs.last().and_then(|j| j.writes.first().copied()) else {
            return Err(malformed(
                "no job, or a job that writes nothing and could not be waited for",
            ));
        };
        if jobs.len() > MAX_JOBS {
            return Err(malformed("more than 1024 jobs"));
        }
        let handles: Vec<(Vec<u32>, Vec<u32>)> = jobs.iter().map(handles).collect();
        let refs: Vec<JobRef<'_>> = jobs
            .iter()
            .zip(&handles)
            .map(|(job, (reads, writes))| JobRef {
                tasks: &job.tasks,
                reads,
                writes,
                flags: if job.batched { uapi::JOB_BATCHED } else { 0 },
            })
            .collect();
        for job in &refs {
            let counts =
                job.tasks.iter().all(|t| t.regcmd_count > 0 && t.regcmd.is_multiple_of(16));
            if job.tasks.is_empty() || job.tasks.len() > MAX_TASKS || !counts {
                return Err(malformed(
                    "a job needs 1 to 65536 tasks with 16-byte aligned programs",
                ));
            }
        }
        if jobs.iter().any(|j| j.batched) && !self.abilities.batched {
            return Err(malformed("a batched job for a driver that cannot run one"));
        }
        in_flight::enter(self.limit_ms(jobs.len()))?;
        let submitted = Submitted {
            serial: self.serial.fetch_add(1, Ordering::Relaxed),
            handle: wait_on.handle(),
            len: wait_on.len(),
            jobs: jobs.len(),
        };
        self.lock().push(submitted);
        match self.node.submit(&refs) {
            Ok(()) => Ok(Pending { file: self, _buffers: PhantomData, submitted, done: false }),
            Err(e) => {
                // Jobs before the failing one may be queued: wait for them, then report.
                self.drain();
                Err(driver("SUBMIT", e, "matmul jobs"))
            }
        }
    }

    /// Waits for the last writer of `bo` and makes the device's writes visible.
    pub(super) fn prep(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        loop {
            match self.node.prep_bo(handle, deadline) {
                // The same absolute deadline: an interrupted wait must not grow.
                Err(Errno::EINTR) => {}
                other => return other,
            }
        }
    }

    /// As [`File::prep`], for the first `len` bytes where the driver can leave the rest out.
    pub(super) fn prep_part(&self, handle: u32, len: usize, until: Deadline) -> Result<(), Errno> {
        if !self.abilities.ranges || len == 0 {
            return self.prep(handle, until);
        }
        loop {
            match self.node.prep_bo_ranges(handle, &[first(len)], until) {
                Err(Errno::EINTR) => {}
                other => return other,
            }
        }
    }

    /// Makes the CPU's writes to the first `len` bytes visible to the device.
    pub(super) fn fini_part(&self, handle: u32, len: usize) -> Result<(), Errno> {
        match self.abilities.ranges && len > 0 {
            true => self.node.fini_bo_ranges(handle, &[first(len)]),
            false => self.node.fini_bo(handle),
        }
    }

    /// How long `jobs` queued jobs may take before something is broken for good: the driver ends
    /// each by itself, and the cores are shared.
    fn limit_ms(&self, jobs: usize) -> u64 {
        (jobs as u64 + 1) * JOB_TIMEOUT_MS * self.sharers + 1_000
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Submitted>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets a submit: its jobs were waited for.
    fn settle(&self, submitted: Submitted) {
        let mut pending = self.lock();
        if let Some(i) = pending.iter().position(|p| p.serial == submitted.serial) {
            pending.remove(i);
            if !self.is_wedged() {
                in_flight::leave();
            }
        }
    }

    fn is_wedged(&self) -> bool {
        self.wedged.load(Ordering::Relaxed)
    }

    /// A fence did not signal in its time. Its jobs stay pending, so that the file is not closed,
    /// but nobody waits for them any more, a signal neither.
    fn give_up(&self) {
        let pending = self.lock();
        if !self.wedged.swap(true, Ordering::Relaxed) {
            pending.iter().for_each(|_| in_flight::leave());
        }
    }

    /// Waits for everything that is queued. Returns whether the queue is known to be empty.
    fn drain(&self) -> bool {
        self.drain_where(|_| true)
    }

    /// Waits for submits whose Pending was forgotten, so that a buffer they write may be closed.
    /// A Pending that lives borrows its buffers, so there is no other kind. Returns whether
    /// nothing of the file can still be running unseen.
    pub(super) fn drain_forgotten(&self, handle: u32) -> bool {
        self.drain_where(|s| s.handle == handle) && !self.is_wedged()
    }

    fn drain_where(&self, which: impl Fn(&Submitted) -> bool) -> bool {
        let waiting: Vec<Submitted> = self.lock().iter().copied().filter(|s| which(s)).collect();
        let mut empty = true;
        for submitted in waiting {
            if self.is_wedged() {
                return false;
            }
            let limit = Deadline::after_ms(self.limit_ms(submitted.jobs));
            if matches!(self.prep(submitted.handle, limit), Ok(()) | Err(Errno::ENOENT)) {
                self.settle(submitted);
            } else {
                self.give_up();
                empty = false;
            }
        }
        empty
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.pid != std::process::id() {
            // A forked child must neither wait for nor close the parent's jobs.
            std::mem::forget(self.node.clone());
        } else if !self.drain() {
            // Closing now could crash the kernel; a leaked file is the smaller harm.
            tracing::error!("jobs still run after their time limit; leaving the NPU file open");
            std::mem::forget(self.node.clone());
        }
    }
}

impl Pending<'_> {
    /// Waits for the jobs. The first written buffer of the last job is prepared for reading.
    ///
    /// # Errors
    /// [`Error::Timeout`] when the fence did not signal although the driver should long have
    /// ended the jobs, [`Error::Driver`] for anything else.
    pub fn wait(mut self) -> Result<()> {
        let limit = self.file.limit_ms(self.submitted.jobs);
        let Submitted { handle, len, .. } = self.submitted;
        match self.file.prep_part(handle, len, Deadline::after_ms(limit)) {
            Ok(()) => {
                self.file.settle(self.submitted);
                self.done = true;
                Ok(())
            }
            Err(Errno::ETIMEDOUT | Errno::EBUSY) => {
                self.file.give_up();
                Err(Error::Timeout { waited_ms: limit, doing: "matmul jobs".into() })
            }
            Err(e) => Err(driver("PREP_BO", e, "waiting for matmul jobs")),
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.file.drain();
        }
    }
}

/// Handles without repeats; a buffer that is written is not listed as read as well, or the
/// driver would drop the job (A.5).
fn handles(job: &Job<'_>) -> (Vec<u32>, Vec<u32>) {
    let mut writes: Vec<u32> = job.writes.iter().map(|b| b.handle()).collect();
    let mut reads: Vec<u32> =
        job.reads.iter().map(|b| b.handle()).filter(|h| !writes.contains(h)).collect();
    for list in [&mut reads, &mut writes] {
        list.sort_unstable();
        list.dedup();
    }
    (reads, writes)
}

fn first(len: usize) -> uapi::BoRange {
    uapi::BoRange { offset: 0, size: len as u64 }
}

fn malformed(why: &str) -> Error {
    Error::Shape { what: "a submit".into(), why: why.into() }
}

/// An errno with its call and purpose.
pub(super) fn driver(call: &'static str, errno: Errno, doing: &str) -> Error {
    Error::Driver { call, errno, doing: doing.into() }
}
