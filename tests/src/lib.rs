//! Whole-system tests of the Rockchip NPU suite; the tests are in `tests/tests/`.
