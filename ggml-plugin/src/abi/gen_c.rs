//! Generation C: ggml 0.26.0 and later (and llama.cpp from b11351), API 3. For a plugin that owns
//! no buffers these are the tables of B2 under another number.

use super::Generation;

/// ggml-abi 5.3, row C.
pub(super) const C: Generation =
    Generation { name: "C", api: 3, buft_slots: 8, has_buffer_n: true, ..super::gen_b2::B2 };
