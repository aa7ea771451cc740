//! Which ggml loaded us (ggml-abi 5): nothing is linked, everything is measured.
//!
//! The version number of the host does not select a layout, so the exported accessors are called
//! on fake objects and the answers compared with the generations known here.

mod gen_b2;
mod gen_c;
pub mod host;
pub mod ops;
pub mod probe;
pub mod selfcheck;
pub mod symbols;
pub mod tensor;
pub mod trampoline;
pub mod verdict;

/// A table layout this plugin can supply (ggml-abi 1 and 5.3).
#[derive(Debug, PartialEq, Eq)]
pub struct Generation {
    /// The spec's letter.
    pub name: &'static str,
    /// `api_version` to announce.
    pub api: i32,
    /// Function slots of `ggml_backend_i` (P1).
    pub backend_slots: usize,
    /// Function slots of `ggml_backend_device_i` (P2).
    pub device_slots: usize,
    /// Function slots of the buffer-type table (P8). Only told apart, never filled.
    pub buft_slots: usize,
    /// Bytes of the device properties (P6).
    pub props_bytes: usize,
    /// Whether the host exports `ggml_backend_tensor_set_2d_async`.
    pub has_2d: bool,
    /// Whether the host exports `ggml_backend_buft_alloc_buffer_n`.
    pub has_buffer_n: bool,
    /// Value of the ACCEL device type.
    pub accel: i32,
}

impl Generation {
    /// Words of `struct ggml_backend`: guid, slots, device, context.
    pub const fn backend_words(&self) -> usize {
        self.backend_slots + 3
    }
}

/// Every generation this version supports.
pub const SUPPORTED: &[&Generation] = &[&gen_b2::B2, &gen_c::C];

/// Slot numbers of `ggml_backend_i`, `ggml_backend_device_i` and `ggml_backend_reg_i`. They are
/// the same words in B2 and C (ggml-abi 5.3).
pub mod slot {
    /// Backend table.
    pub mod backend {
        #![allow(missing_docs)]
        pub const GET_NAME: usize = 0;
        pub const FREE: usize = 1;
        pub const SYNCHRONIZE: usize = 7;
        pub const GRAPH_COMPUTE: usize = 12;
    }
    /// Device table.
    pub mod device {
        #![allow(missing_docs)]
        pub const GET_NAME: usize = 0;
        pub const GET_DESCRIPTION: usize = 1;
        pub const GET_MEMORY: usize = 2;
        pub const GET_TYPE: usize = 3;
        pub const GET_PROPS: usize = 4;
        pub const INIT_BACKEND: usize = 5;
        pub const GET_BUFFER_TYPE: usize = 6;
        pub const GET_HOST_BUFFER_TYPE: usize = 7;
        pub const BUFFER_FROM_HOST_PTR: usize = 8;
        pub const SUPPORTS_OP: usize = 9;
        pub const SUPPORTS_BUFT: usize = 10;
        pub const OFFLOAD_OP: usize = 11;
    }
    /// Registration table.
    pub mod reg {
        #![allow(missing_docs)]
        pub const GET_NAME: usize = 0;
        pub const GET_DEVICE_COUNT: usize = 1;
        pub const GET_DEVICE: usize = 2;
        pub const GET_PROC_ADDRESS: usize = 3;
    }
}

/// Status codes of ggml (ggml-abi 2.11).
pub mod status {
    #![allow(missing_docs)]
    pub const FAILED: i32 = -1;
    pub const SUCCESS: i32 = 0;
}
