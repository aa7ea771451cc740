//! `rocketctl overlay`: a device-tree overlay for boards whose NPU nodes are disabled.

mod blob;
mod board;
mod dtbo;
mod dts;
mod loader;
#[cfg(test)]
mod tests;
mod tree;
