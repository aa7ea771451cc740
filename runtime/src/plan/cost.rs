//! The cost model: how long silicon would take, from multiply-accumulates, bytes moved, kicks and
//! jobs, with the constants of [`Timing`](crate::soc::Timing). Everything derived from it is
//! *modelled*. The planner bounds its jobs by it, the simulator charges executed programs with it.
//!
//! npu-rk3588 8.6 suggests the longer of MAC time and DMA time. Their sum meets the clock
//! figures of 8.1 better (tripling the clock gained 1.33x and 1.43x; the longer of the two says
//! 1.1x), and it has a reason: the operands of a large tile fill the CBUF, so that the next
//! ones cannot be fetched meanwhile. Over all figures the two forms fit alike. A task has no cost
//! of its own beside them: with one the fit is no better.

use super::Shape;
use crate::dtype::DType;
use crate::soc::Profile;

/// Modelled time of one task that does `macs` multiply-accumulates on operands of `bits` and
/// moves `bytes` between the core and memory, in nanoseconds.
pub fn task_ns(profile: &Profile, bits: usize, macs: u64, bytes: u64, clock_hz: u64) -> u64 {
    let t = &profile.timing;
    let per_second = u128::from(t.macs_per_cycle(bits).max(1)) * u128::from(clock_hz.max(1));
    let mac_ns = u128::from(macs) * 1_000_000_000 / per_second;
    let dma_ns = u128::from(bytes) * 1000 / u128::from(t.bytes_per_us.max(1));
    u64::try_from(mac_ns + dma_ns).unwrap_or(u64::MAX)
}

/// Bytes a task of that shape moves when nothing is reused: features,
/// weights, output, and the operand of an accumulating step.
pub fn task_bytes(dtype: DType, shape: Shape, accumulate: bool) -> u64 {
    let t = dtype.info();
    let read = t.row_bytes(shape.k) * (shape.m + shape.n);
    let write = shape.m * shape.n * t.out_bytes;
    (read + write * if accumulate { 2 } else { 1 }) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soc::RK3588;

    /// Each dtype at its own rate, the DMA at its own, and one after the other.
    #[test]
    fn macs_and_bytes_add_up() {
        for (bits, us) in [(4, 1), (8, 2), (16, 4), (32, 8)] {
            assert_eq!(task_ns(&RK3588, bits, 2_048_000, 0, 1_000_000_000), us * 1000);
        }
        assert_eq!(task_ns(&RK3588, 16, 512_000, 4500, 1_000_000), 1_001_000);
        assert_eq!(task_ns(&RK3588, 16, u64::MAX, u64::MAX, 0), u64::MAX);
    }
}
