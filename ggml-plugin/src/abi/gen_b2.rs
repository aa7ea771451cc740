//! Generation B2: ggml 0.10.0 to 0.25.3 (2026-04 to 2026-10), API 2.

use super::Generation;

/// ggml-abi 5.3, row B2.
pub(super) const B2: Generation = Generation {
    name: "B2",
    api: 2,
    backend_slots: 16,
    device_slots: 15,
    buft_slots: 6,
    props_bytes: 56,
    has_2d: true,
    has_buffer_n: false,
    accel: 3,
};
