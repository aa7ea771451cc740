//! Which generation of the backend interface a host has, by what its libraries export (ggml-abi 3).

use crate::elf::Elf;
use ggml_rocket::abi::{Generation, SUPPORTED};

/// What the exported symbols say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Static {
    /// It is one of these: more than one where no symbol tells them apart.
    OneOf(Vec<&'static Generation>),
    /// There is no device interface yet.
    TooOld,
    /// Symbols that no release has together.
    Odd(&'static str),
}

/// Exports of the base library that came with a generation or later, and so exclude those before.
const SINCE_B1: [&str; 4] = [
    "ggml_op_can_inplace",
    "ggml_can_fuse_subgraph_ext",
    "ggml_backend_sched_reserve_size",
    "ggml_build_forward_select",
];
/// Within the last weeks of A2, which A3 and B1 have too.
const SINCE_LATE_A2: &str = "ggml_backend_sched_split_graph";

/// By the exports of `libggml-base`.
pub fn generation(base: &Elf) -> Static {
    let has = |s: &str| base.exports(s);
    let two_d = has("ggml_backend_tensor_set_2d_async");
    let buffer_n = has("ggml_backend_buft_alloc_buffer_n");
    if !has("ggml_backend_dev_get_props") {
        return Static::TooOld;
    }
    let versioned = base.soname.as_deref().is_some_and(|s| s.ends_with(".so.0"));
    let since_b1 = versioned || SINCE_B1.iter().any(|s| has(s));
    let names: &[&str] = match (two_d, buffer_n) {
        (true, true) => &["C"],
        (true, false) => &["B2"],
        (false, true) => {
            return Static::Odd("buffers of generation C and backends of an older one");
        }
        (false, false) if since_b1 => &["B1"],
        // No symbol separates these three; the load test does.
        (false, false) if has(SINCE_LATE_A2) => &["A1/A2", "A3", "B1"],
        (false, false) => &["A1/A2"],
    };
    Static::OneOf(SUPPORTED.iter().copied().filter(|g| names.contains(&g.name)).collect())
}
