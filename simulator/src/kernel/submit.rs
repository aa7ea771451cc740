//! SUBMIT: the checks and the errors of kernel-and-uapi A.5, and their silence on a stock driver.

use super::fence::Fence;
use super::memory::Bo;
use super::sched::Job;
use super::space::Space;
use crate::machine::Machine;
use crate::{DriverProfile, Fault, Rule};
use nix::errno::Errno;
use rocket_runtime::device::JobRef;
use rocket_runtime::uapi;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Most tasks of a batched kick: TASK_NUMBER has 12 bits (kernel-and-uapi A.6).
const MAX_BATCH: usize = 4095;

/// The file a submission comes from.
pub struct Origin<'a> {
    pub machine: &'a Machine,
    pub file: u64,
    pub space: &'a Arc<Space>,
    pub handles: &'a BTreeMap<u32, Arc<Bo>>,
}

impl Origin<'_> {
    /// Runs one SUBMIT call. `started` hears of every core that got work.
    pub fn submit(&self, jobs: &[JobRef<'_>], mut started: impl FnMut(usize)) -> Result<(), Errno> {
        let m = self.machine;
        let call = m.submits_seen.fetch_add(1, Relaxed);
        m.count(|c| c.submits += 1);
        let refused = |f: &Fault| match f {
            Fault::SubmitErrno(n, errno) if *n == call => Some(*errno),
            _ => None,
        };
        if let Some(errno) = m.fault(refused) {
            return Err(errno);
        }
        for job in jobs {
            let number = m.jobs_seen.fetch_add(1, Relaxed);
            match self.submit_job(number, job) {
                Ok(core) => started(core),
                Err((rule, errno, why)) => {
                    m.count(|c| c.jobs_dropped += 1);
                    m.explain(rule, self.file, Some(number), None, format!("{why} ({errno})"));
                    // A stock driver throws the result away and goes on with the next job.
                    if m.config.profile == DriverProfile::Patched {
                        return Err(errno);
                    }
                }
            }
        }
        Ok(())
    }

    /// Queues one job and says on which core.
    fn submit_job(&self, number: u64, job: &JobRef<'_>) -> Result<usize, (Rule, Errno, String)> {
        let m = self.machine;
        let patched = m.config.profile == DriverProfile::Patched;
        let bad = |errno, why: String| Err((Rule::JobRejected, errno, why));
        if m.job_faults(number).contains(&Fault::RejectJob(number)) {
            return Err((Rule::Injected, Errno::EINVAL, "job rejected on request".to_owned()));
        }
        if patched && job.flags & !uapi::JOB_BATCHED != 0 {
            return bad(Errno::EINVAL, format!("unknown flags 0x{:x}", job.flags));
        }
        if job.tasks.is_empty() {
            return bad(Errno::EINVAL, "task_count is 0".to_owned());
        }
        if let Some(i) = job.tasks.iter().position(|t| t.regcmd_count == 0) {
            return bad(Errno::EINVAL, format!("regcmd_count of task {i} is 0"));
        }
        let mut buffers: Vec<Arc<Bo>> = Vec::with_capacity(job.reads.len() + job.writes.len());
        for handle in job.reads.iter().chain(job.writes) {
            match self.handles.get(handle) {
                Some(bo) => buffers.push(Arc::clone(bo)),
                None => return bad(Errno::ENOENT, format!("no buffer has handle {handle}")),
            }
        }
        let mut handles: Vec<u32> = job.reads.iter().chain(job.writes).copied().collect();
        handles.sort_unstable();
        if let Some(twice) = handles.windows(2).find(|w| w[0] == w[1]) {
            let why = format!("handle {} stands twice in the job's lists", twice[0]);
            return Err((Rule::BufferInBothLists, Errno::EALREADY, why));
        }

        let fence = Arc::new(Fence::default());
        for bo in &buffers[job.reads.len()..] {
            bo.set_writer(&fence);
        }
        // A dropped job keeps its place: fences of one queue signal in its order.
        let dropped = m.job_faults(number).contains(&Fault::DropJob(number));
        if dropped {
            let why = "job dropped on request".to_owned();
            m.explain(Rule::Injected, self.file, Some(number), None, why);
            m.count(|c| c.jobs_dropped += 1);
        }
        m.count(|c| c.jobs += 1);
        Ok(m.sched.push(Job {
            number,
            file: self.file,
            tasks: if dropped { Vec::new() } else { job.tasks.to_vec() },
            batched: !dropped
                && patched
                && job.flags & uapi::JOB_BATCHED != 0
                && (2..=MAX_BATCH).contains(&job.tasks.len()),
            space: Arc::clone(self.space),
            buffers,
            fence,
        }))
    }
}
