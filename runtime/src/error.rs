//! One error type. Every variant says what was asked, what was found, and what to do.

use nix::errno::Errno;
use std::path::PathBuf;

/// Result of a runtime call.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong between a caller and the NPU.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No accel node belongs to the `rocket` driver.
    #[error(
        "no NPU: {looked}; load the driver with `modprobe rocket` (mainline Linux 6.18 or newer, \
         NPU nodes enabled in the device tree)"
    )]
    NoNode {
        /// What was looked at, in words.
        looked: String,
    },
    /// The node is there but this user may not open it.
    #[error(
        "no permission to open {path} (mode {mode:04o}, group {group}); add yourself to that group \
         with `sudo usermod -aG {advice} $USER`, give the node group {advice} and mode 0660 with a \
         udev rule, and log in again"
    )]
    Permission {
        /// The node.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// The group that owns it.
        group: String,
        /// The group the fix should name.
        advice: String,
    },
    /// A named node exists but is driven by something else.
    #[error("{path} belongs to the driver {found:?}, not to rocket; name another node or none")]
    NotRocket {
        /// The node.
        path: PathBuf,
        /// The driver's name as DRM_IOCTL_VERSION reports it.
        found: String,
    },
    /// The part is not one this library has a profile for.
    #[error(
        "this board's SoC is not profiled: device tree says {found:?}; this version drives {known}"
    )]
    UnknownSoc {
        /// The `compatible` entries found.
        found: Vec<String>,
        /// The entries that would have matched.
        known: String,
    },
    /// A driver call failed.
    #[error("{call} failed: {errno} ({doing})")]
    Driver {
        /// The ioctl or system call.
        call: &'static str,
        /// The error number.
        errno: Errno,
        /// What it was for, in words.
        doing: String,
    },
    /// A job was accepted but its outputs were never written: dropped, rejected, hung or timed
    /// out. The stock driver reports none of these (kernel-and-uapi A.4, A.5).
    #[error(
        "the NPU did not complete job {job} of {jobs} ({doing}): dropped, rejected or timed out \
         after 500 ms; `dmesg | grep -i npu` tells which"
    )]
    JobLost {
        /// Index of the first job whose outputs are missing, among those queued together.
        job: usize,
        /// Jobs queued together.
        jobs: usize,
        /// What it was for, in words.
        doing: String,
    },
    /// A fence did not signal in time.
    #[error("the NPU did not finish within {waited_ms} ms ({doing})")]
    Timeout {
        /// How long was waited.
        waited_ms: u64,
        /// What it was for, in words.
        doing: String,
    },
    /// A shape that no program can express.
    #[error("cannot run {what}: {why}")]
    Shape {
        /// The request.
        what: String,
        /// The rule it breaks, with its number.
        why: String,
    },
    /// A memory budget or window is exhausted.
    #[error("no room for {asked} bytes of {what}: {why}")]
    Memory {
        /// Bytes asked for.
        asked: u64,
        /// What they were for.
        what: &'static str,
        /// The bound that was met.
        why: String,
    },
    /// The directory of packed weights, or something in it, is not as it must be.
    #[error("packed weights cannot be kept in {path}: {found}; {fix}")]
    Store {
        /// The directory, or the entry that is in the way.
        path: PathBuf,
        /// What was found.
        found: String,
        /// What to do.
        fix: String,
    },
    /// A signal asked the process to end: no more jobs are taken.
    #[error("no NPU job is started: a signal asked the process to end")]
    Ending,
    /// The process was forked after the device was opened, or is being torn down.
    #[error("the NPU cannot be used here: {why}")]
    Unusable {
        /// The reason.
        why: String,
    },
}
