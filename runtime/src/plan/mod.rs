//! The planner: shape and dtype in, tiles, K steps, jobs and their modelled time out. Pure: no
//! device, no memory.
//!
//! [`search()`] chooses the tiles, [`Sequence`] lays out every task of a GEMM. [`plan()`] is the
//! reference's fixed rule (npu-rk3588 7.2), kept because recorded plans prove it and because the
//! search is bounded by what it would move.

pub mod cost;
pub mod search;
mod sequence;
mod sweep;
mod tiles;

pub use search::{Request, search};
pub use sequence::{Group, Job, Place, ResultTile, Sequence, Tile};
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
