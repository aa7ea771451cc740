//! What a simulated board's server and the processes that use it say to each other.
//!
//! An open file is one connection to the board's socket, which is a sequence of packets: so `dup`,
//! `fork` and passing descriptors work by themselves, and the file is closed when its last
//! descriptor is. The connection starts with a [`Hello`], answered by an errno.
//!
//! A driver call is a [`Call`] on that connection, with one end of a socket pair attached and the
//! argument behind it. On that pair the server asks for the caller's memory as it needs it and at
//! last says what the call returns ([`Reply`]); so threads and children that share a file do not
//! meet. Nothing here knows what a call means: that is the simulator's.
#![forbid(unsafe_code)]
#![deny(missing_docs)]

use bytemuck::{Pod, Zeroable};

/// First word of a [`Hello`].
pub const MAGIC: u32 = 0x5253_494d;

/// Version of these messages.
pub const VERSION: u32 = 1;

/// Most bytes of the caller's memory in one packet.
pub const CHUNK: usize = 64 << 10;

/// Names the board to use: one that a server of this name offers.
pub const BOARD_VARIABLE: &str = "ROCKET_SIM_BOARD";

/// Names the folder below which the board's files lie: its node, device tree and module.
pub const ROOT_VARIABLE: &str = "ROCKET_SIM_ROOT";

/// Where the node lies, on a board and below a root.
pub const NODE: &str = "/dev/accel/accel0";

/// What a program under test reads to learn what the board did: [`NODE`]'s socket once more, by a
/// name in debugfs. Opened through the library it is a file of JSON, made at that moment.
pub const COUNTERS: &str = "/sys/kernel/debug/accel/rknn/sim-counters";

/// Major number of accel nodes (kernel-and-uapi A.1).
pub const MAJOR: u32 = 261;

/// Paths that belong to the board: what is not below the root does not exist on it
/// (kernel-and-uapi D.1, D.2).
pub const OWNED: &[&str] = &[
    "/dev/accel",
    "/proc/device-tree",
    "/sys/firmware/devicetree/base",
    "/sys/module/rocket",
    "/sys/class/accel",
    "/sys/dev/char/261:0",
    "/sys/bus/platform/drivers/rocket",
    "/sys/bus/platform/devices/fdab0000.npu",
    "/sys/bus/platform/devices/fdac0000.npu",
    "/sys/bus/platform/devices/fdad0000.npu",
    "/sys/devices/platform/rknn",
    "/sys/kernel/debug/accel",
];

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Purpose {
    /// An open file of the node.
    File = 1,
    /// Questions about the board, as lines of JSON.
    Control = 2,
    /// A process says that it has loaded the library.
    Attach = 3,
    /// One [`Reply`] of [`REPLY_DONE`] with a file of the counters attached.
    Counters = 4,
}

impl Purpose {
    /// The purpose of that number.
    pub fn from_number(n: u32) -> Option<Purpose> {
        let all = [Purpose::File, Purpose::Control, Purpose::Attach, Purpose::Counters];
        all.into_iter().find(|p| *p as u32 == n)
    }
}

/// First packet of a connection.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u32,
    /// [`VERSION`].
    pub version: u32,
    /// A [`Purpose`].
    pub purpose: u32,
    /// The process.
    pub pid: u32,
}

impl Hello {
    /// A greeting of this version.
    pub fn new(purpose: Purpose, pid: u32) -> Hello {
        Hello { magic: MAGIC, version: VERSION, purpose: purpose as u32, pid }
    }
}

/// [`Call::kind`]: an ioctl, its argument's bytes attached as far as its number says they are
/// copied in.
pub const CALL_IOCTL: u32 = 1;
/// [`Call::kind`]: an mmap; `number` is unused, `arg` the offset, `len` the length.
pub const CALL_MMAP: u32 = 2;

/// A driver call.
#[repr(C)]
#[derive(Debug, Clone, Copy, Pod, Zeroable)]
pub struct Call {
    /// [`CALL_IOCTL`] or [`CALL_MMAP`].
    pub kind: u32,
    /// The ioctl's number.
    pub number: u32,
    /// Its argument: a pointer in the caller's memory.
    pub arg: u64,
    /// Length of a mapping.
    pub len: u64,
    /// Whether a descriptor is attached behind the pair: the one that the argument names.
    pub passes_file: u32,
    /// Zero.
    pub reserved: u32,
}

/// [`Reply::kind`]: send `len` bytes from `at`, in one packet headed by an [`Answer`].
pub const REPLY_READ: u32 = 1;
/// [`Reply::kind`]: store the `len` bytes behind this to `at`, and send an [`Answer`].
pub const REPLY_WRITE: u32 = 2;
/// [`Reply::kind`]: the call waits from here on; a signal may end it.
pub const REPLY_WAITS: u32 = 3;
/// [`Reply::kind`]: the call is over; `value` is what it returns, `errno` is set when it failed.
/// A descriptor may be attached.
pub const REPLY_DONE: u32 = 4;

/// From the server to the caller.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct Reply {
    /// One of the kinds.
    pub kind: u32,
    /// An errno, zero for success.
    pub errno: i32,
    /// Return value.
    pub value: i32,
    /// Zero.
    pub reserved: u32,
    /// A pointer in the caller's memory.
    pub at: u64,
    /// Bytes.
    pub len: u64,
}

/// [`Answer::kind`]: the reply was carried out, or `errno` says why not.
pub const ANSWER_DONE: u32 = 1;
/// [`Answer::kind`]: a signal came while the call waited.
pub const ANSWER_INTERRUPTED: u32 = 2;

/// From the caller to the server.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, Pod, Zeroable)]
pub struct Answer {
    /// One of the kinds.
    pub kind: u32,
    /// An errno, zero for success.
    pub errno: i32,
}

/// Whether `path` belongs to the board.
pub fn owned(path: &[u8]) -> bool {
    OWNED.iter().any(|p| {
        let rest = path.strip_prefix(p.as_bytes());
        rest.is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owned_paths_end_at_a_name() {
        for path in ["/dev/accel", "/dev/accel/accel0", "/proc/device-tree/model"] {
            assert!(owned(path.as_bytes()), "{path}");
        }
        for path in ["/dev/accelerator", "/dev", "dev/accel", "/proc/device-treex", ""] {
            assert!(!owned(path.as_bytes()), "{path}");
        }
    }
}
