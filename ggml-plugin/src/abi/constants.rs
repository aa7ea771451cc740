//! Numbers of ggml's enums that are the same in every generation (ggml-abi 2).

/// Status codes (ggml-abi 2.11).
pub mod status {
    #![allow(missing_docs)]
    pub const FAILED: i32 = -1;
    pub const SUCCESS: i32 = 0;
}

/// Log levels (ggml-abi 2.11).
pub mod level {
    #![allow(missing_docs)]
    pub const DEBUG: i32 = 1;
    pub const INFO: i32 = 2;
    pub const WARN: i32 = 3;
    pub const ERROR: i32 = 4;
}

/// Usage of a buffer that holds weights (ggml-abi 2.4).
pub const USAGE_WEIGHTS: i32 = 1;
