//! The driver as a trait, and what is built on it: nodes, buffers, jobs.

mod node;

pub use node::{BoInfo, Board, Deadline, DriverVersion, JobRef, Mapping, Node};
