use nix::errno::Errno;

/// Something that goes wrong on purpose.
///
/// Jobs are numbered over the whole board in the order in which SUBMIT calls bring them,
/// from zero, malformed ones included. Tasks are numbered within their job, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The job looks accepted but never runs; its fence is signalled.
    DropJob(u64),
    /// SUBMIT finds the job malformed (EINVAL): a stock driver says nothing and attaches no fence.
    RejectJob(u64),
    /// The job hangs before its first task until the driver times it out.
    HangJob(u64),
    /// Every task of the job runs, but the completion interrupt is lost: the job times out.
    LoseInterrupt(u64),
    /// One task of a job hangs; those before it have run.
    HangTask {
        /// The job.
        job: u64,
        /// The task.
        task: usize,
    },
    /// One task of a job stores only its first surfaces and then hangs.
    PartialTask {
        /// The job.
        job: u64,
        /// The task.
        task: usize,
        /// Surfaces that are stored.
        surfaces: usize,
    },
    /// One task of a job reports completion but stores only its first surfaces.
    ShortTask {
        /// The job.
        job: u64,
        /// The task.
        task: usize,
        /// Surfaces that are stored.
        surfaces: usize,
    },
    /// The n-th CREATE_BO of the board, from zero, fails with ENOMEM.
    CreateBoEnomem(u64),
    /// The n-th SUBMIT of the board, from zero, fails as a whole.
    SubmitErrno(u64, Errno),
    /// Opening the node is refused.
    OpenEperm,
}

impl Fault {
    /// The job this fault is about, if it is about one.
    pub(crate) fn job(self) -> Option<u64> {
        match self {
            Fault::DropJob(n)
            | Fault::RejectJob(n)
            | Fault::HangJob(n)
            | Fault::LoseInterrupt(n) => Some(n),
            Fault::HangTask { job, .. }
            | Fault::PartialTask { job, .. }
            | Fault::ShortTask { job, .. } => Some(job),
            Fault::CreateBoEnomem(_) | Fault::SubmitErrno(..) | Fault::OpenEperm => None,
        }
    }
}
