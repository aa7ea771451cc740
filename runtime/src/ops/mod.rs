//! Whole operations of models: products on the NPU with the host's part between them.

pub mod attention;
