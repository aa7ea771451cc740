use crate::{Config, SimBoard};
use nix::errno::Errno;

/// A call of the driver, as faults count them: each kind over the whole board, from zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Call {
    /// open of the node.
    Open,
    /// DRM_IOCTL_VERSION.
    Version,
    /// CREATE_BO.
    CreateBo,
    /// mmap of a buffer object.
    Map,
    /// SUBMIT.
    Submit,
    /// PREP_BO, ranged or not.
    PrepBo,
    /// FINI_BO, ranged or not.
    FiniBo,
    /// GEM_CLOSE.
    CloseBo,
}

impl Call {
    /// Every kind.
    pub const ALL: [Call; 8] = [
        Call::Open,
        Call::Version,
        Call::CreateBo,
        Call::Map,
        Call::Submit,
        Call::PrepBo,
        Call::FiniBo,
        Call::CloseBo,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Call::Open => "open",
            Call::Version => "version",
            Call::CreateBo => "create-bo",
            Call::Map => "mmap",
            Call::Submit => "submit",
            Call::PrepBo => "prep-bo",
            Call::FiniBo => "fini-bo",
            Call::CloseBo => "close-bo",
        }
    }

    /// The errnos that a driver may well answer with; what a seeded fault picks from.
    const fn errnos(self) -> &'static [Errno] {
        match self {
            Call::Open => &[Errno::EACCES, Errno::EMFILE, Errno::ENODEV],
            Call::Version => &[Errno::ENODEV],
            Call::CreateBo => &[Errno::ENOMEM, Errno::ENOSPC],
            Call::Map => &[Errno::ENOMEM, Errno::EACCES],
            Call::Submit => &[Errno::ENOMEM, Errno::EINVAL],
            Call::PrepBo => &[Errno::EINTR, Errno::EBUSY],
            Call::FiniBo => &[Errno::EINTR],
            Call::CloseBo => &[Errno::ENODEV],
        }
    }
}

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
    /// The first transfer of the job meets an address that is not mapped (trap 30).
    IommuFault(u64),
    /// Every task of the job takes this many times its modelled time.
    SlowJob {
        /// The job.
        job: u64,
        /// How many times.
        times: u32,
    },
    /// From the middle of the job on, the board's clock is at its boot rate of 200 MHz: the park of
    /// an idle neighbour hit a running core (kernel-and-uapi C.2, patch 081).
    ParkClock(u64),
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
    /// The n-th call of its kind fails and does nothing.
    Fail {
        /// The kind.
        call: Call,
        /// Which one.
        n: u64,
        /// How.
        errno: Errno,
    },
    /// Every call of this kind fails and does nothing.
    Refuse {
        /// The kind.
        call: Call,
        /// How.
        errno: Errno,
    },
    /// The node is gone from the n-th call of the board on, whatever its kind: ENODEV, and ENOENT
    /// for an open. Jobs in flight end.
    Vanish(u64),
    /// The driver was built with a longer job struct but cannot take shorter ones: a job of the
    /// original 40 bytes is refused with EINVAL (kernel-and-uapi A.5).
    StructSkew,
    /// One call or job in `one_in`, picked by a generator with this seed, goes wrong: calls with
    /// an errno that is usual for them, jobs by hanging or losing their interrupt.
    Seeded {
        /// The seed; the same one picks the same calls.
        seed: u64,
        /// How rare.
        one_in: u32,
    },
}

impl Fault {
    /// What this fault does to the n-th call of a kind.
    pub(crate) fn at_call(self, call: Call, n: u64) -> Option<Errno> {
        match self {
            Fault::Fail { call: c, n: at, errno } if (c, at) == (call, n) => Some(errno),
            Fault::Refuse { call: c, errno } if c == call => Some(errno),
            Fault::Seeded { seed, one_in } => {
                let picked = pick(seed ^ (call as u64 + 1) << 56, n, one_in)?;
                let errnos = call.errnos();
                Some(errnos[picked as usize % errnos.len()])
            }
            _ => None,
        }
    }

    /// What this fault means for a job, if it is about it.
    pub(crate) fn at_job(self, number: u64) -> Option<Fault> {
        match self {
            Fault::DropJob(n)
            | Fault::RejectJob(n)
            | Fault::HangJob(n)
            | Fault::LoseInterrupt(n)
            | Fault::IommuFault(n)
            | Fault::ParkClock(n) => (n == number).then_some(self),
            Fault::HangTask { job, .. }
            | Fault::SlowJob { job, .. }
            | Fault::PartialTask { job, .. }
            | Fault::ShortTask { job, .. } => (job == number).then_some(self),
            Fault::Seeded { seed, one_in } => pick(seed, number, one_in).map(|picked| {
                let kinds = [Fault::HangJob, Fault::LoseInterrupt, Fault::IommuFault];
                kinds[picked as usize % kinds.len()](number)
            }),
            Fault::Fail { .. } | Fault::Refuse { .. } | Fault::Vanish(_) | Fault::StructSkew => {
                None
            }
        }
    }
}

/// A number that depends on the seed and `n` alone, for one `n` in `one_in`.
fn pick(seed: u64, n: u64, one_in: u32) -> Option<u64> {
    // The finaliser of splitmix64.
    let mut z = seed.wrapping_add((n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^= z >> 31;
    z.is_multiple_of(u64::from(one_in.max(1))).then_some(z >> 32)
}

/// Runs `workload` again and again, each time on a fresh board with the fault that `fault` makes
/// of 0, 1, 2 ..., until a run no longer meets its fault; says how many did. A workload that is
/// right under every one of them handles a failure wherever it strikes.
///
/// ```
/// use nix::errno::Errno;
/// use rocket_runtime::device::Board;
/// use rocket_sim::{Call, Config, Fault, fail_each};
///
/// let met = fail_each(
///     &Config::default(),
///     |n| Fault::Fail { call: Call::CreateBo, n, errno: Errno::ENOMEM },
///     |board| {
///         let Ok(file) = board.open() else { return };
///         let made = (0..3).filter(|_| file.create_bo(4096).is_ok()).count();
///         assert!(made >= 2);
///     },
/// );
/// assert_eq!(met, 3);
/// ```
pub fn fail_each(
    config: &Config,
    fault: impl Fn(u64) -> Fault,
    mut workload: impl FnMut(&SimBoard),
) -> u64 {
    for n in 0.. {
        let board = SimBoard::new(config.clone());
        board.inject(fault(n));
        workload(&board);
        if board.counters().faults == 0 {
            return n;
        }
    }
    u64::MAX
}
