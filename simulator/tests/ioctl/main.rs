//! The driver's ioctls as bytes, by tables over every driver profile (kernel-and-uapi A, B.6).

#![allow(clippy::unwrap_used)]

#[path = "../common/mod.rs"]
mod common;
#[path = "../user/mod.rs"]
mod user;

mod buffers;
mod faults;
mod faulty_jobs;
mod identity;
mod leaks;
mod ranges;
mod rig;
mod sharing;
mod submit;
mod submit_order;
mod waits;
