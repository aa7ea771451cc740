//! The Rockchip NPU as a Rust library, on the mainline `rocket` DRM-accel driver.
//!
//! From the bottom up: [`uapi`] (the kernel's structs), [`device`] (files, buffers, jobs),
//! [`soc`] (which chip this is), [`program`] (register-command programs), [`layout`] (the tiled
//! cubes), [`kernels`] (what the host does to operands and results), [`plan`] (tiles, K steps, jobs),
//! [`store`] (packed weights on disk), [`telemetry`] (live counters for tools), [`matmul`] (the GEMM
//! that uses them all) and [`ops`] (whole operations of models on top of it). A program that
//! multiplies needs `matmul` and a [`Board`](device::Board); `docs/library.md` is its guide.
//!
//! "spec" in these docs means the hardware and kernel notes this project is built from;
//! a reference such as "npu-rk3588 3.2" names the file and section.
#![deny(missing_docs)]

pub mod board;
pub mod device;
pub mod dtype;
pub mod error;
pub mod kernels;
pub mod layout;
pub mod matmul;
pub mod ops;
pub mod plan;
pub mod program;
pub mod soc;
pub mod store;
pub mod telemetry;
#[cfg(test)]
mod test_process;
pub mod uapi;

pub use error::{Error, Result};
