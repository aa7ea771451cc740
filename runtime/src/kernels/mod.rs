//! Host kernels: everything that a CPU core does to operands and results around the NPU.
//!
//! Every layout of the NPU is a layout of bytes (npu-rk3588 3.1): a feature cube is a transposition
//! of 16-byte atoms whatever the dtype, a weight block is 1024 bytes in as many pieces as a group
//! has kernels, an output cube is 16-byte atoms of 2- or 4-byte elements. So one kernel packs
//! all dtypes, and results differ by element only.
//!
//! # Results
//!
//! The kernels of results take
//!
//! * `cubes` (or `cube`): the output cubes of all K steps of one tile, in the order of the steps,
//!   each at least `m` x the columns of the longest row, rounded up to whole atoms (8 elements of 2
//!   bytes, 4 of 4 bytes). None at all counts as zeros.
//! * `m`: the rows that the tile's program has, which is the cube's pitch.
//! * `rows`: this tile's segment of each row of the result. Row i, column j is element
//!   [`output_index`](crate::layout::output_index)`(16 / element bytes, m, i, j)` of each cube
//!   (npu-rk3588 3.4). They may be fewer than `m`, shorter than the cube is wide and of different
//!   lengths; the rest of the cube is padding.
//! * `scale`, where there is one: a factor for each row.
//!
//! All of them panic when a cube is too short for its rows, when there are more rows than `m`, or
//! fewer factors than rows.
//!
//! # The same everywhere
//!
//! No kernel allocates, and every kernel gives the same bits on every machine: sums go in a fixed
//! order, each written operation rounds once and none is fused. A NaN stays a NaN; which one is
//! the processor's choice.

mod bytes;
pub mod convert;
pub mod hadamard;
#[cfg(target_arch = "aarch64")]
mod neon;
mod pack;
pub mod quant;
mod results;
mod select;
#[cfg(target_arch = "x86_64")]
mod x86;

pub use bytes::Bytes;
pub use pack::{feature, weight_group};
pub use results::{scaled_i16, scaled_i32, store_f16, sum_f32, sum_i16, sum_i32};

#[cfg(test)]
mod tests;
