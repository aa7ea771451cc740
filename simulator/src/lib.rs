//! A Rockchip NPU board in software: the `rocket` driver's calls and the NPU's registers.
//!
//! [`SimBoard`] stands where a real board stands: it implements
//! [`rocket_runtime::device::Board`], and its files implement [`rocket_runtime::device::Node`].
//! Programs run as on silicon: command words are fetched and decoded, and every address and
//! stride is taken from the registers, never from the library that wrote them, so an error in a
//! layout cannot cancel itself out. A program that breaks a known rule hangs, stores nothing or
//! computes garbage, as the rule says silicon does, and [`SimBoard::explanations`] says which
//! [`Rule`] it was.
//!
//! "spec" in these docs means the hardware and kernel notes this project is built from; a
//! reference such as "npu-rk3588 3.2" names the file and section. All number formats
//! of the matrix product run, direct and depthwise convolutions, look-up tables behind a
//! convolution or alone, and pooling; anything else hangs with the explanation
//! [`Rule::NotModelled`]. Where the spec leaves a choice, [`Assumptions`] names it; [`listing`]
//! shows a program word by word, with the rules it breaks.
//!
//! ```
//! use rocket_runtime::device::{Board, Deadline};
//! use rocket_sim::SimBoard;
//!
//! let board = SimBoard::default();
//! let file = board.open()?;
//! let bo = file.create_bo(1000)?;
//! assert_eq!(bo.iova, 0);
//! file.prep_bo(bo.handle, Deadline::POLL)?;
//! assert_eq!(board.counters().cpu_sync, 4096);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![deny(missing_docs)]

mod activity;
pub mod assumptions;
pub mod listing;
pub mod serve;
pub mod silicon;
pub mod timing;

mod check;
mod cna;
mod config;
mod convert;
mod core;
mod counters;
mod dpu;
mod explain;
mod fault;
mod fault_text;
mod file;
mod format;
mod kernel;
mod lut;
mod machine;
mod node;
mod npu;
mod pc;
mod poison;
mod ppu;
mod profile;
mod rdma;
mod regs;
mod stage;
mod window;

pub use activity::CoreActivity;
pub use assumptions::Assumptions;
pub use check::{Class, Rule};
pub use config::{Arithmetic, Config};
pub use counters::{CORES, Counters};
pub use explain::Explanation;
pub use fault::{Call, Fault, fail_each};
pub use file::SimFile;
pub use kernel::fence::Fence;
pub use kernel::ioctl::{Caller, Outcome};
/// The errno type of [`Fault`] and of this crate's errors.
pub use nix::errno::Errno;
pub use node::{Alive, SimBoard};
pub use profile::DriverProfile;
pub use regs::register_name;

// Memory images are reinterpreted in place, and the NPU is little-endian (npu-rk3588 0.2).
const _: () = assert!(cfg!(target_endian = "little"), "the simulator needs a little-endian host");
