//! The planner: shape and dtype in, tiles, K steps, jobs and their modelled time out. Pure: no
//! device, no memory.

pub mod cost;
pub mod jobs;
mod tiles;

pub use jobs::{Job, Sequence, Summation, Tile};
pub use tiles::{Fit, TilePlan, group_plan_int8, plan, plan_with};

/// A GEMM's shape: C is `m` x `n`, the contraction runs over `k`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub struct Shape {
    pub m: usize,
    pub k: usize,
    pub n: usize,
}

impl Shape {
    /// Multiply-accumulates.
    pub fn macs(&self) -> u64 {
        self.m as u64 * self.k as u64 * self.n as u64
    }
}
