//! The generations of the backend interface, one row each (ggml-abi 1, 2.3 and 5.3).

/// A table layout this plugin can supply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// The spec's letter, or [`ADAPTED`].
    pub name: &'static str,
    /// When and in which versions of ggml.
    pub era: &'static str,
    /// `api_version` to announce.
    pub api: i32,
    /// The table of an instance (P1, P3).
    pub backend: BackendTable,
    /// Function slots of `ggml_backend_device_i` (P2).
    pub device_slots: usize,
    /// Function slots of the buffer-type table (P8). Only told apart, never filled.
    pub buft_slots: usize,
    /// Bytes of the device properties (P6): those of [`super::props`].
    pub props_bytes: usize,
    /// Whether the host exports `ggml_backend_tensor_set_2d_async`.
    pub has_2d: bool,
    /// Whether the host exports `ggml_backend_buft_alloc_buffer_n`.
    pub has_buffer_n: bool,
    /// Value of the ACCEL device type.
    pub accel: i32,
}

/// `ggml_backend_i`: how long it is and where the functions are that are filled or probed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendTable {
    /// Function slots.
    pub slots: usize,
    /// Slot of get_name.
    pub get_name: usize,
    /// Slot of free.
    pub free: usize,
    /// Slot of synchronize; left null, the plugin is synchronous.
    pub synchronize: usize,
    /// Slot of graph_compute.
    pub graph_compute: usize,
}

impl BackendTable {
    /// Words of `struct ggml_backend`: guid, slots, device, context.
    pub const fn words(&self) -> usize {
        self.slots + 3
    }

    /// Word of the device.
    pub const fn device(&self) -> usize {
        self.slots + 1
    }

    /// Word of the context.
    pub const fn context(&self) -> usize {
        self.slots + 2
    }
}

/// Name of a layout that no row describes (`ROCKET_ABI=adapt`).
pub const ADAPTED: &str = "adapted";

/// ACCEL before integrated GPUs had a value of their own, and since.
pub const ACCEL_A: i32 = 2;
/// See [`ACCEL_A`].
pub const ACCEL_B: i32 = 3;

/// Both differ in a buffer function's return value only, which nobody here calls.
const A2: Generation = Generation {
    name: "A1/A2",
    era: "2024-11 to 2025-09",
    api: 1,
    backend: BackendTable { slots: 13, get_name: 0, free: 1, synchronize: 5, graph_compute: 10 },
    device_slots: 15,
    buft_slots: 6,
    props_bytes: 40,
    has_2d: false,
    has_buffer_n: false,
    accel: ACCEL_A,
};

/// One slot appended, under the old number.
const A3: Generation = Generation {
    name: "A3",
    era: "2025-09",
    backend: BackendTable { slots: 14, ..A2.backend },
    ..A2
};

/// Larger properties and another value of ACCEL.
const B1: Generation = Generation {
    name: "B1",
    era: "2025-09 to 2026-04, ggml 0.9",
    api: 2,
    props_bytes: 56,
    accel: ACCEL_B,
    ..A3
};

/// Two slots inserted, under the same number.
const B2: Generation = Generation {
    name: "B2",
    era: "2026-04 to 2026-10, ggml 0.10 to 0.25",
    backend: BackendTable { slots: 16, get_name: 0, free: 1, synchronize: 7, graph_compute: 12 },
    has_2d: true,
    ..B1
};

/// For a plugin that owns no buffers these are the tables of B2 under another number.
const C: Generation = Generation {
    name: "C",
    era: "since 2026-10, ggml 0.26",
    api: 3,
    buft_slots: 8,
    has_buffer_n: true,
    ..B2
};

/// Every generation this version supports, the oldest first.
pub const SUPPORTED: &[&Generation] = &[&A2, &A3, &B1, &B2, &C];

/// Slot numbers of `ggml_backend_device_i` and `ggml_backend_reg_i`, which never changed.
pub mod slot {
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
