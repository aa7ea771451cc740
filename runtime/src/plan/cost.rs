//! The cost model: how long a task takes, from its multiply-accumulates and the bytes it moves.
//! Everything printed from it says 'modelled'.
//!
//! The form is npu-rk3588 8.6; the two free numbers are fitted here, once, to published
//! measurements at 600 MHz.

use super::{Shape, TilePlan};
use crate::dtype::DType;
use crate::soc::Profile;

/// Bytes a core moves a second at the nominal clock while one core is busy.
///
/// Fit: a 256x384x256 fp16 task moves 524 288 bytes and takes 0.40 ms with its overhead (8.6:
/// 39.5 jobs/s of 64 such tasks on one descriptor).
pub const BYTES_PER_SECOND: u64 = 1_500_000_000;
/// What a task costs besides, in nanoseconds: completion interrupt and next kick. 8.3's submit
/// floor is 51 to 54 us; what remains of the 0.40 ms above agrees.
pub const TASK_OVERHEAD_NS: u64 = 50_000;
/// What a submit costs, in nanoseconds (8.3).
pub const SUBMIT_NS: u64 = 52_000;

/// Modelled nanoseconds of one task at `hz`. The memory's clock does not follow the NPU's, but
/// its DMA engines do, so both terms scale; this errs on the slow side.
pub fn task_ns(profile: &Profile, macs: u64, bytes: u64, hz: u64) -> u64 {
    let compute = macs.saturating_mul(1_000_000_000) / (profile.fp16_macs_per_cycle * hz);
    let rate =
        (u128::from(BYTES_PER_SECOND) * u128::from(hz) / u128::from(profile.nominal_hz)).max(1);
    let transfer = (u128::from(bytes) * 1_000_000_000 / rate) as u64;
    compute.max(transfer) + TASK_OVERHEAD_NS
}

/// Bytes an fp16 or fp16_f32out task of that shape moves when nothing is reused: features,
/// weights, output, and the operand of an accumulating step.
pub fn task_bytes(dtype: DType, shape: Shape, accumulate: bool) -> u64 {
    let t = dtype.info();
    let read = t.row_bytes(shape.k) * (shape.m + shape.n);
    let write = shape.m * shape.n * t.out_bytes;
    (read + write * if accumulate { 2 } else { 1 }) as u64
}

/// Most tasks of `plan` that one job may hold so that it stays under `budget_ns` at `hz`, at
/// least one and at most 64 (7.3).
pub fn tasks_per_job(
    profile: &Profile,
    dtype: DType,
    plan: &TilePlan,
    hz: u64,
    budget_ns: u64,
) -> usize {
    let tile = Shape { m: plan.mt, k: plan.kt, n: plan.nt };
    let one = task_ns(profile, tile.macs(), task_bytes(dtype, tile, plan.n_kt > 1), hz);
    ((budget_ns / one) as usize).clamp(1, 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soc::RK3588;

    /// The figure the model is fitted to, within a tenth: 25.3 ms for 64 tasks (8.2, 8.6).
    #[test]
    fn fits_the_published_job_rate() {
        let tile = Shape { m: 256, k: 384, n: 256 };
        let bytes = task_bytes(DType::Fp16, tile, false);
        let ms = 64.0 * task_ns(&RK3588, tile.macs(), bytes, 600_000_000) as f64 / 1e6;
        assert!((ms - 25.3).abs() < 2.53, "64 tasks modelled at {ms} ms");
    }
}
