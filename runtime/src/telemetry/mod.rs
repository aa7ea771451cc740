//! Live counters of a process, for tools that look from outside: one file a process, one versioned
//! [`layout`], a [`Writer`] (the plugin) and a reader ([`read`], [`scan`], [`clean`]; the tools).
//!
//! The writer's truth is its own memory. What lies in the file is a copy, written whole by one
//! `pwrite` with a checksum over it, and read by `pread`: neither side maps the file, so a file that
//! somebody truncates, fills with noise or puts on a full disk costs the figures and never a process
//! (a mapped one would be a SIGBUS in the host). A reader that meets a copy half written sees that by
//! the checksum and reads again; it takes no lock, so it never makes a writer wait.
//!
//! Who can do what: a file is complete, locked and then renamed to its name with mode 0644, so others
//! than its owner can only read it. Its owner and root can spoil it; the next copy mends it, and what
//! a reader prints is free of control characters whatever the file holds.
//!
//! The lock is a POSIX record lock: a forked child does not inherit it, so it ends with the process
//! that counts (a flock or an open-file-description lock would live on in children that only hold the
//! descriptor); and it cannot be feigned by others, who may only take read locks. Its one weakness,
//! that closing any descriptor of the file in the same process drops it, is met by taking it again
//! with each copy.

mod image;
pub mod layout;
mod place;
mod reader;
mod scan;
mod snapshot;
mod writer;

pub use image::{Image, Place, RowKey, Slot, TotalKind};
pub use place::{Directory, NAME_PREFIX, writer_directories};
pub use reader::{Life, Refused, read};
pub use scan::{Cleaned, Found, Keep, clean, directories, scan};
pub use snapshot::{Event, Process, Row, Snapshot, Total, parse};
pub use writer::{NoCounters, Writer};

#[cfg(test)]
mod tests;
