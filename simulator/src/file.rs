use crate::fault::Call;
use crate::kernel::fence::{Fence, lock};
use crate::kernel::ioctl::in_order;
use crate::kernel::memory::{Backing, Bo, PAGE};
use crate::kernel::space::Space;
use crate::kernel::submit::{Origin, Refusal, Request};
use crate::machine::Machine;
use crate::node::Inner;
use crate::{DriverProfile, Rule};
use nix::errno::Errno;
use rocket_runtime::device::{BoInfo, Deadline, DriverVersion, JobRef, Mapping, Node};
use rocket_runtime::uapi::{self, BoRange};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::slice::from_ref;
use std::sync::atomic::Ordering::{Relaxed, Release};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

/// One open file of a simulated board: its own address space, handles and job queue.
#[derive(Debug)]
pub struct SimFile {
    id: u64,
    board: Arc<Inner>,
    space: Arc<Space>,
    backing: Backing,
    handles: Mutex<BTreeMap<u32, Handle>>,
}

#[derive(Debug)]
struct Handle {
    bo: Arc<Bo>,
    offset: u64,
}

impl SimFile {
    pub(crate) fn open(board: &Arc<Inner>, backing: Backing) -> Result<SimFile, Errno> {
        let machine = &board.machine;
        machine.enter(Call::Open)?;
        machine.alive.files.fetch_add(1, Relaxed);
        Ok(SimFile {
            id: machine.files_seen.fetch_add(1, Relaxed),
            board: Arc::clone(board),
            space: Arc::new(Space::default()),
            backing,
            handles: Mutex::default(),
        })
    }

    /// The file's number in explanations.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn machine(&self) -> &Machine {
        &self.board.machine
    }

    pub(crate) fn profile(&self) -> DriverProfile {
        self.machine().config.profile
    }

    pub(crate) fn bo(&self, handle: u32) -> Result<Arc<Bo>, Errno> {
        lock(&self.handles).get(&handle).map(|h| Arc::clone(&h.bo)).ok_or(Errno::ENOENT)
    }

    /// Whether a job is still to write that buffer.
    pub(crate) fn is_busy(&self, handle: u32) -> bool {
        let writer = self.bo(handle).ok().and_then(|bo| bo.last_writer());
        writer.is_some_and(|fence| !fence.signalled())
    }

    fn insert(&self, bo: Arc<Bo>, offset: u64) -> u32 {
        let mut handles = lock(&self.handles);
        // GEM gives out the lowest free handle, from 1.
        let handle = (1..).zip(handles.keys()).find(|(want, have)| want != *have);
        let handle = handle.map_or(handles.len() as u32 + 1, |(want, _)| want);
        handles.insert(handle, Handle { bo, offset });
        handle
    }

    /// The object behind an mmap offset, if `len` bytes of it can be mapped.
    fn mappable(&self, offset: u64, len: u64) -> Result<Arc<Bo>, Errno> {
        self.machine().enter(Call::Map)?;
        let handles = lock(&self.handles);
        let found = handles.values().find(|h| h.offset == offset).ok_or(Errno::EINVAL)?;
        // The kernel aligns first, and has no address for what then wraps.
        let pages = len.checked_next_multiple_of(PAGE).ok_or(Errno::ENOMEM)?;
        if len == 0 || pages > found.bo.size() {
            return Err(Errno::EINVAL);
        }
        Ok(Arc::clone(&found.bo))
    }

    /// What another process maps instead of the file at that offset.
    ///
    /// # Errors
    /// EINVAL: no object has that offset, it is shorter than `len`, or the file was not opened by
    /// [`SimBoard::open_shared`](crate::SimBoard::open_shared).
    pub fn memory(&self, offset: u64, len: u64) -> Result<File, Errno> {
        let bo = self.mappable(offset, len)?;
        bo.file().and_then(|f| f.try_clone().ok()).ok_or(Errno::EINVAL)
    }

    /// A file that stands for the buffer elsewhere (kernel-and-uapi A.3, dma-buf).
    pub(crate) fn export(&self, handle: u32) -> Result<File, Errno> {
        let bo = self.bo(handle)?;
        let file = bo.file().and_then(|f| f.try_clone().ok()).ok_or(Errno::EINVAL)?;
        let number = file.metadata().map_err(|_| Errno::EINVAL)?.ino();
        let mut exported = lock(&self.machine().exported);
        exported.retain(|_, bo| bo.strong_count() > 0);
        exported.insert(number, Arc::downgrade(&bo));
        Ok(file)
    }

    /// A handle for a buffer that a file of this board exported; it has no address here. Foreign
    /// files are refused.
    pub(crate) fn import(&self, file: &File) -> Result<u32, Errno> {
        let number = file.metadata().map_err(|_| Errno::EINVAL)?.ino();
        let exported = lock(&self.machine().exported).get(&number).and_then(Weak::upgrade);
        let bo = exported.ok_or(Errno::EINVAL)?;
        let known = lock(&self.handles)
            .iter()
            .find_map(|(handle, h)| Arc::ptr_eq(&h.bo, &bo).then_some(*handle));
        Ok(known.unwrap_or_else(|| {
            let offset = self.machine().next_offset(bo.size());
            self.insert(bo, offset)
        }))
    }

    /// Holds the order of the queue while a SUBMIT looks at its jobs one by one.
    pub(crate) fn submission(&self) -> Submission<'_> {
        Submission { file: self, handles: lock(&self.handles) }
    }

    /// Waits with `wait` for the last writer, then shows the CPU what the device wrote, even when
    /// the wait failed (kernel-and-uapi A.4).
    pub(crate) fn prep(
        &self,
        bo: &Bo,
        ranges: &[Range<u64>],
        deadline: Deadline,
        wait: impl FnMut(&Arc<Fence>, Deadline) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let waited = match bo.last_writer() {
            None => Ok(()),
            Some(fence) => {
                fence.poll(deadline).unwrap_or_else(|| self.wait(&fence, deadline, wait))
            }
        };
        self.sync(bo, ranges, Bo::to_cpu);
        waited
    }

    fn wait(
        &self,
        fence: &Arc<Fence>,
        mut deadline: Deadline,
        mut wait: impl FnMut(&Arc<Fence>, Deadline) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        /// How far a deadline is put off at a time.
        const LONGER_MS: u64 = 20;
        let m = self.machine();
        m.count(|c| c.waits += 1);
        loop {
            let waited = wait(fence, deadline);
            let slow = waited == Err(Errno::ETIMEDOUT) && m.config.patient;
            if !slow || !m.sched.computes(self.id) {
                return waited;
            }
            deadline = Deadline::after_ms(LONGER_MS);
        }
    }

    /// The object and the parts of it, where the driver has the calls.
    fn parts(&self, handle: u32, list: &[BoRange]) -> Result<(Arc<Bo>, Vec<Range<u64>>), Errno> {
        if !self.profile().has_ranges() || list.len() > uapi::MAX_RANGES as usize {
            return Err(Errno::EINVAL);
        }
        let bo = self.bo(handle)?;
        let ranges = match list {
            [] => Vec::from([bo.whole()]),
            list => in_order(list, bo.size())?,
        };
        Ok((bo, ranges))
    }

    /// Shows the device what the CPU wrote.
    pub(crate) fn fini(&self, bo: &Bo, ranges: &[Range<u64>]) {
        self.sync(bo, ranges, Bo::to_device);
    }

    /// Cache maintenance of whole cache lines, counted.
    fn sync(&self, bo: &Bo, ranges: &[Range<u64>], copy: impl Fn(&Bo, u64, u64)) {
        const LINE: u64 = 64;
        for r in ranges {
            let (from, to) = (r.start / LINE * LINE, r.end.next_multiple_of(LINE).min(bo.size()));
            copy(bo, from, to);
            self.machine().count(|c| c.cpu_sync += to - from);
        }
    }
}

/// A SUBMIT on its way.
pub(crate) struct Submission<'a> {
    file: &'a SimFile,
    // Held to the end: the order of fences is the order of the queue.
    handles: MutexGuard<'a, BTreeMap<u32, Handle>>,
}

impl Submission<'_> {
    /// Takes the next job, or the news that it could not be read.
    pub fn job(&self, request: Result<Request, Refusal>) -> Result<(), Errno> {
        let wanted = request.iter().flat_map(|r| r.reads.iter().chain(&r.writes));
        let by_handle: BTreeMap<u32, Arc<Bo>> =
            wanted.filter_map(|h| self.handles.get(h).map(|x| (*h, Arc::clone(&x.bo)))).collect();
        let file = self.file;
        let origin = Origin {
            machine: file.machine(),
            file: file.id,
            space: &file.space,
            handles: &by_handle,
        };
        if let Some(core) = origin.job(request)? {
            file.board.start(core);
        }
        Ok(())
    }
}

impl Node for SimFile {
    fn version(&self) -> Result<DriverVersion, Errno> {
        self.machine().enter(Call::Version)?;
        let (major, minor) = self.profile().version();
        Ok(DriverVersion { major, minor })
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        let m = self.machine();
        m.enter(Call::CreateBo)?;
        let bo = Bo::create(&self.space, size, self.backing, &m.alive)?;
        let mmap_offset = m.next_offset(bo.size());
        let iova = bo.iova();
        Ok(BoInfo { handle: self.insert(Arc::new(bo), mmap_offset), iova, mmap_offset })
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        let bo = self.mappable(bo.mmap_offset, len as u64)?;
        Mapping::of_words(bo, len).ok_or(Errno::EINVAL)
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        self.machine().count(|c| c.submits += 1);
        self.machine().enter(Call::Submit)?;
        let submission = self.submission();
        for job in jobs {
            submission.job(Ok(Request {
                tasks: job.tasks.to_vec(),
                reads: job.reads.to_vec(),
                writes: job.writes.to_vec(),
                flags: job.flags,
            }))?;
        }
        Ok(())
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        self.machine().enter(Call::PrepBo)?;
        let bo = self.bo(handle)?;
        self.prep(&bo, from_ref(&bo.whole()), deadline, |fence, until| fence.wait(until))
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        self.machine().enter(Call::FiniBo)?;
        let bo = self.bo(handle)?;
        self.fini(&bo, from_ref(&bo.whole()));
        Ok(())
    }

    fn prep_bo_ranges(
        &self,
        handle: u32,
        ranges: &[BoRange],
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.machine().enter(Call::PrepBo)?;
        let (bo, ranges) = self.parts(handle, ranges)?;
        self.prep(&bo, &ranges, deadline, |fence, until| fence.wait(until))
    }

    fn fini_bo_ranges(&self, handle: u32, ranges: &[BoRange]) -> Result<(), Errno> {
        self.machine().enter(Call::FiniBo)?;
        let (bo, ranges) = self.parts(handle, ranges)?;
        self.fini(&bo, &ranges);
        Ok(())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        self.machine().enter(Call::CloseBo)?;
        // The object itself goes when no mapping and no job needs it any more.
        let closed = lock(&self.handles).remove(&handle);
        closed.map(drop).ok_or(Errno::EINVAL)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let m = self.machine();
        let in_flight = m.sched.close(self.id);
        // Its buffers go first: a file that counts as gone has left none behind.
        lock(&self.handles).clear();
        m.alive.files.fetch_sub(1, Release);
        m.count(|c| c.files_closed += 1);
        if in_flight > 0 && self.profile().is_stock() {
            m.count(|c| c.closed_with_jobs_in_flight += 1);
            let message = format!(
                "{in_flight} job(s) queued or running at close; a stock kernel frees their \
                 buffers into freed memory and may crash"
            );
            m.explain(Rule::ClosedInFlight, self.id, None, None, message);
        }
    }
}
