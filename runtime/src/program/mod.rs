//! Register-command programs: the 64-bit words the NPU's program controller fetches.
//!
//! [`word`] is one command, [`regs`] the register offsets by block, [`matmul`] the encoder of
//! the RK3588's matmul, [`chain`] the links of a batched kick.

pub mod chain;
pub mod matmul;
pub mod regs;
pub mod word;

pub use matmul::{Ew, MATMUL_WORDS, MatmulTask, Operand, Reject, Reuse};
pub use word::Word;

/// Bytes from one unchained program to the next: 128 words, of which the last two are unused
/// (npu-rk3588 1.4).
pub const SLOT_BYTES: usize = 1024;
