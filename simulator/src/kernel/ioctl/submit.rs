//! SUBMIT: reads jobs, tasks and handles from the caller's memory by the sizes it declares
//! (kernel-and-uapi A.2, A.5).

use super::{Caller, Outcome, head, ok};
use crate::fault::Call;
use crate::kernel::submit::{Refusal, Request};
use crate::{Fault, SimFile};
use nix::errno::Errno;
use rocket_runtime::uapi::{Job, Submit, Task};

/// Sizes of the original descriptors: what a caller must declare at least.
const JOB_V1: u64 = 40;
const TASK_V1: u64 = 8;

/// Bytes of one array from which on the driver's allocation fails. The kernel warns and fails
/// from 2 GiB on (B.6 U9); here less is enough, as the copy is this process's memory.
const MOST_BYTES: u64 = 1 << 28;

pub fn run(file: &SimFile, arg: &mut [u8], caller: &mut dyn Caller) -> Result<Outcome, Errno> {
    let a: Submit = head(arg);
    let m = file.machine();
    m.count(|c| c.submits += 1);
    m.enter(Call::Submit)?;
    if a.job_count == 0 {
        return Ok(Outcome::default());
    }
    let stride = u64::from(a.job_struct_size);
    let skewed = stride < 48 && m.fault(|f| matches!(f, Fault::StructSkew).then_some(())).is_some();
    if stride < JOB_V1 || skewed || a.reserved != 0 {
        return Err(Errno::EINVAL);
    }
    // Descriptors are copied before the first job is looked at, but their tails are judged job by
    // job.
    let jobs = array(a.jobs, a.job_count, stride, caller)?;
    let submission = file.submission();
    for bytes in jobs.chunks_exact(stride as usize) {
        submission.job(request(file, bytes, caller))?;
    }
    ok(Ok(()))
}

fn request(file: &SimFile, bytes: &[u8], caller: &mut dyn Caller) -> Result<Request, Refusal> {
    let profile = file.profile();
    let known = profile.job_bytes() as usize;
    let tail = &bytes[known.min(bytes.len())..];
    if profile.reports_job_errors() && tail.iter().any(|b| *b != 0) {
        return Err(Refusal::new(
            Errno::E2BIG,
            format!("the job's bytes from {known} on are not zero, and this driver ends there"),
        ));
    }
    let mut known_bytes = [0; size_of::<Job>()];
    let n = known.min(bytes.len());
    known_bytes[..n].copy_from_slice(&bytes[..n]);
    let job: Job = head(&known_bytes);
    if job.reserved != 0 {
        return Err(Refusal::new(Errno::EINVAL, "the job's reserved word is not zero"));
    }
    if job.flags & !profile.known_flags() != 0 {
        return Err(Refusal::new(Errno::EINVAL, format!("unknown flags 0x{:x}", job.flags)));
    }
    Ok(Request {
        tasks: tasks(file, &job, caller)?,
        reads: handles(job.in_bo_handles, job.in_bo_handle_count, "in", caller)?,
        writes: handles(job.out_bo_handles, job.out_bo_handle_count, "out", caller)?,
        flags: job.flags,
    })
}

fn tasks(file: &SimFile, job: &Job, caller: &mut dyn Caller) -> Result<Vec<Task>, Refusal> {
    if job.task_count == 0 {
        return Err(Refusal::new(Errno::EINVAL, "task_count is 0"));
    }
    let stride = u64::from(job.task_struct_size);
    if stride < TASK_V1 {
        let why = format!("task_struct_size {stride} is below {TASK_V1}");
        return Err(Refusal::new(Errno::EINVAL, why));
    }
    let bytes = array(job.tasks, job.task_count, stride, caller)
        .map_err(|e| Refusal::new(e, format!("{} tasks at 0x{:x}", job.task_count, job.tasks)))?;
    let mut tasks = Vec::with_capacity(job.task_count as usize);
    for (i, one) in bytes.chunks_exact(stride as usize).enumerate() {
        if file.profile().reports_job_errors() && one[TASK_V1 as usize..].iter().any(|b| *b != 0) {
            let why = format!("task {i}: bytes from {TASK_V1} on are not zero");
            return Err(Refusal::new(Errno::E2BIG, why));
        }
        let task: Task = head(one);
        if task.regcmd_count == 0 {
            return Err(Refusal::new(Errno::EINVAL, format!("regcmd_count of task {i} is 0")));
        }
        tasks.push(task);
    }
    Ok(tasks)
}

fn handles(at: u64, count: u32, list: &str, caller: &mut dyn Caller) -> Result<Vec<u32>, Refusal> {
    let bytes = array(at, count, 4, caller)
        .map_err(|e| Refusal::new(e, format!("{count} {list} handles at 0x{at:x}")))?;
    Ok(bytes.chunks_exact(4).map(head).collect())
}

/// `count` structs of `stride` bytes.
fn array(at: u64, count: u32, stride: u64, caller: &mut dyn Caller) -> Result<Vec<u8>, Errno> {
    let bytes = u64::from(count) * stride;
    if bytes > MOST_BYTES {
        return Err(Errno::ENOMEM);
    }
    let mut copy = vec![0; bytes as usize];
    if bytes > 0 {
        caller.read(at, &mut copy)?;
    }
    Ok(copy)
}
