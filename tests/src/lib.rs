//! Whole-system tests of the Rockchip NPU suite; the tests are in `tests/tests/`.

mod board;

pub use board::{NODE_VARIABLE, TestBoard, through_the_kernel};
