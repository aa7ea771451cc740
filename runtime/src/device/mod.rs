//! The driver as a trait, and what is built on it: nodes, files, buffers, jobs.
//!
//! [`Node`] is the driver's calls as they are; [`KernelBoard`] finds the real one. [`File`] and
//! [`Bo`] are the careful layer: they never submit what the driver would drop, never close with
//! jobs in flight, and bracket every CPU access with the cache syncs.

mod bo;
mod file;
mod in_flight;
mod kernel;
mod node;
#[cfg(test)]
pub(crate) mod tests;

pub use bo::Bo;
pub(crate) use file::MAX_JOBS;
pub use file::{File, JOB_TIMEOUT_MS, Job, Pending, TAIL_BYTES};
pub use in_flight::drain_on_signals;
pub use in_flight::leave_signals_to_others;
pub(crate) use kernel::identity;
pub use kernel::{KernelBoard, KernelNode};
pub use node::{
    Abilities, BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node, SharedWords,
};
