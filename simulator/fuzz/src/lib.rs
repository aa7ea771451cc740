//! The bodies of the fuzz targets are the simulator's test code.

#[path = "../../tests/fuzz_bodies/mod.rs"]
mod fuzz_bodies;

pub use fuzz_bodies::{bases_run, commands, ioctls};
