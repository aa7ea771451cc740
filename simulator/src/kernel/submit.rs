//! SUBMIT: the checks and the errors of kernel-and-uapi A.5, and their silence on a stock driver.

use super::fence::Fence;
use super::memory::Bo;
use super::sched;
use super::space::Space;
use crate::machine::Machine;
use crate::{Fault, Rule};
use nix::errno::Errno;
use rocket_runtime::uapi;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Most tasks of a batched kick: TASK_NUMBER has 12 bits (kernel-and-uapi A.6).
const MAX_BATCH: usize = 4095;

/// A job as a caller describes it.
#[derive(Debug, Clone, Default)]
pub struct Request {
    pub tasks: Vec<uapi::Task>,
    pub reads: Vec<u32>,
    pub writes: Vec<u32>,
    pub flags: u32,
}

/// Why a job is not taken.
#[derive(Debug)]
pub struct Refusal {
    pub rule: Rule,
    pub errno: Errno,
    pub why: String,
}

impl Refusal {
    pub fn new(errno: Errno, why: impl Into<String>) -> Refusal {
        Refusal { rule: Rule::JobRejected, errno, why: why.into() }
    }
}

/// The file a submission comes from.
pub struct Origin<'a> {
    pub machine: &'a Machine,
    pub file: u64,
    pub space: &'a Arc<Space>,
    pub handles: &'a BTreeMap<u32, Arc<Bo>>,
}

impl Origin<'_> {
    /// Takes one job of a SUBMIT, or the news that it could not be read, and says on which core it
    /// will run, if it runs. A stock driver throws errors away and goes on with the next job.
    pub fn job(&self, request: Result<Request, Refusal>) -> Result<Option<usize>, Errno> {
        let m = self.machine;
        let number = m.jobs_seen.fetch_add(1, Relaxed);
        match request.and_then(|r| self.queue(number, r)) {
            Ok(core) => Ok(Some(core)),
            Err(Refusal { rule, errno, why }) => {
                m.count(|c| c.jobs_dropped += 1);
                m.explain(rule, self.file, Some(number), None, format!("{why} ({errno})"));
                if m.config.profile.reports_job_errors() { Err(errno) } else { Ok(None) }
            }
        }
    }

    /// Queues one job and says on which core.
    fn queue(&self, number: u64, job: Request) -> Result<usize, Refusal> {
        let m = self.machine;
        let profile = m.config.profile;
        let bad = |errno, why: String| Err(Refusal::new(errno, why));
        let faults = m.job_faults(number, false);
        if faults.contains(&Fault::RejectJob(number)) {
            m.job_faults(number, true);
            let (rule, why) = (Rule::Injected, "job rejected on request".to_owned());
            return Err(Refusal { rule, errno: Errno::EINVAL, why });
        }
        if profile.batches() && job.flags & !profile.known_flags() != 0 {
            return bad(Errno::EINVAL, format!("unknown flags 0x{:x}", job.flags));
        }
        if job.tasks.is_empty() {
            return bad(Errno::EINVAL, "task_count is 0".to_owned());
        }
        if let Some(i) = job.tasks.iter().position(|t| t.regcmd_count == 0) {
            return bad(Errno::EINVAL, format!("regcmd_count of task {i} is 0"));
        }
        let mut handles = [job.reads.as_slice(), &job.writes].concat();
        let mut buffers: Vec<Arc<Bo>> = Vec::with_capacity(handles.len());
        for handle in &handles {
            match self.handles.get(handle) {
                Some(bo) => buffers.push(Arc::clone(bo)),
                None => return bad(Errno::ENOENT, format!("no buffer has handle {handle}")),
            }
        }
        handles.sort_unstable();
        if let Some(twice) = handles.windows(2).find(|w| w[0] == w[1]) {
            let why = format!("handle {} stands twice in the job's lists", twice[0]);
            return Err(Refusal { rule: Rule::BufferInBothLists, errno: Errno::EALREADY, why });
        }

        // Readers leave no fence, so a write after a read on another file is not ordered (A.5).
        let after = buffers.iter().filter_map(|bo| bo.last_writer()).collect();
        let fence = Arc::new(Fence::default());
        for bo in &buffers[job.reads.len()..] {
            bo.set_writer(&fence);
        }
        // A dropped job keeps its place: fences of one queue signal in its order.
        let dropped = faults.contains(&Fault::DropJob(number));
        if dropped {
            let why = "job dropped on request".to_owned();
            m.explain(Rule::Injected, self.file, Some(number), None, why);
            m.count(|c| c.jobs_dropped += 1);
        }
        m.count(|c| c.jobs += 1);
        let batched = !dropped
            && profile.batches()
            && job.flags & uapi::JOB_BATCHED != 0
            && (2..=MAX_BATCH).contains(&job.tasks.len());
        Ok(m.sched.push(sched::Job {
            number,
            file: self.file,
            tasks: if dropped { Vec::new() } else { job.tasks },
            batched,
            space: Arc::clone(self.space),
            buffers,
            fence,
            after,
        }))
    }
}
