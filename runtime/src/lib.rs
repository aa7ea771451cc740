//! The Rockchip NPU as a Rust library, on the mainline `rocket` DRM-accel driver.
//!
//! From the bottom up: [`uapi`] (the kernel's structs), [`device`] (files, buffers, jobs),
//! [`soc`] (which chip this is), `program` (register-command programs), `layout` (the tiled
//! cubes), `plan` (tiles, K steps, jobs) and `matmul` (the GEMM that uses them all).
//!
//! "spec" in these docs means the hardware and kernel notes this project is built from;
//! a reference such as "npu-rk3588 3.2" names the file and section.
#![deny(missing_docs)]

pub mod board;
pub mod device;
pub mod dtype;
pub mod error;
pub mod layout;
pub mod matmul;
pub mod plan;
pub mod program;
pub mod soc;
pub mod uapi;

pub use error::{Error, Result};
