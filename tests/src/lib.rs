//! Whole-system tests of the Rockchip NPU suite; the tests are in `tests/tests/`.

mod board;
pub mod compare;
pub mod generate;
pub mod meter;
pub mod reference;
pub mod timeline;

pub use board::{NODE_VARIABLE, TestBoard, through_the_kernel};
