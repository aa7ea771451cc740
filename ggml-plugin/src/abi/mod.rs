//! Which ggml loaded us (ggml-abi 5): nothing is linked, everything is measured.
//!
//! The version number of the host does not select a layout, so the exported accessors are called
//! on fake objects and the answers compared with the generations known here.

mod adapt;
pub mod constants;
pub mod generation;
pub mod host;
pub mod ops;
pub mod probe;
pub mod props;
pub mod selfcheck;
pub mod symbols;
pub mod tensor;
pub mod trampoline;
pub mod verdict;

pub use constants::status;
pub use generation::{BackendTable, Generation, SUPPORTED, slot};
