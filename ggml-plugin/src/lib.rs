//! `libggml-rocket.so`: a ggml backend that stock llama.cpp and whisper.cpp builds load through
//! `GGML_BACKEND_PATH`, and that runs their large matrix products on a Rockchip NPU.
//!
//! [`abi`] finds out at load time which ggml it was loaded by, `glue` is the thin C border,
//! [`route`] decides which ops run where, [`exec`] runs them, [`knobs`] is every setting.
//!
//! "spec" in these docs means the notes this project is built from; "ggml-abi 5.2" names the
//! file and section.
#![deny(missing_docs)]

pub mod abi;
pub mod board;
pub mod exec;
mod glue;
pub mod knobs;
pub mod live;
mod log;
pub mod route;
pub mod stats;
mod watch;
