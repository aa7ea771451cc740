//! The cost model: how long silicon would take, from multiply-accumulates and bytes moved.
//! Everything derived from it is *modelled*. The planner bounds its jobs by it, the simulator
//! charges executed programs with it.
//!
//! The form is that of npu-rk3588 8.6. One bandwidth and one overhead cannot meet every published
//! figure; these meet the two wait times below and stay within 30 % of the job rate (39.5 jobs/s
//! of 64 tasks).

use super::{Shape, TilePlan};
use crate::dtype::DType;
use crate::soc::Profile;

/// Effective DMA bandwidth of one core in bytes per microsecond, whatever the NPU's clock: the
/// bus has a clock of its own, and tripling the NPU's gained 1.33x to 1.43x only (8.1). Source:
/// npu-rk3588 8.4 and 8.5:
/// 320 tasks of 256x384x256 wait 84 ms with DATA_REUSE and 21 % less than without; the 184 kB
/// that differ per task and the 70 us between them give 2.65 GB/s.
pub const BYTES_PER_US: u64 = 2650;

/// Time of one task beside its DMA and MACs. Source: the same pair gives 90 us for a task that is
/// a kick of its own; less [`KICK_NS`].
pub const TASK_OVERHEAD_NS: u64 = 46_000;

/// Extra time of one kick: restart by interrupt. Source: npu-rk3588 8.3: 320 single kicks against
/// 5 batched ones, 62 to 48 ms.
pub const KICK_NS: u64 = 44_000;

/// Submit floor of one job. Source: npu-rk3588 8.3, 51..54 us.
pub const JOB_NS: u64 = 52_000;

/// Modelled time of one fp16 task that does `macs` multiply-accumulates and moves `bytes`
/// between the core and memory, in nanoseconds.
pub fn task_ns(profile: &Profile, macs: u64, bytes: u64, clock_hz: u64) -> u64 {
    let mac_ns = u128::from(macs) * 1_000_000_000
        / (u128::from(profile.fp16_macs_per_cycle) * u128::from(clock_hz.max(1)));
    let dma_ns = u128::from(bytes) * 1000 / u128::from(BYTES_PER_US);
    u64::try_from(mac_ns.max(dma_ns)).unwrap_or(u64::MAX).saturating_add(TASK_OVERHEAD_NS)
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
    ((budget_ns.saturating_sub(JOB_NS) / (one + KICK_NS)) as usize).clamp(1, 64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::soc::RK3588;

    #[test]
    fn calibration_figures() {
        let (m, k, n) = (256, 384, 256);
        // DATA_REUSE over sixteen column tiles, results and operands of ten K steps.
        let bytes = 2 * (k * n + m * n + m * n * 9 / 10 + m * k / 16);
        let wait_ms = 320 * (task_ns(&RK3588, m * k * n, bytes, 600_000_000) + KICK_NS) / 1_000_000;
        assert!((80..=88).contains(&wait_ms), "{wait_ms} ms, published: 84");
        let plain = 2 * (k * n + m * n + m * k);
        let job_us =
            (64 * (task_ns(&RK3588, m * k * n, plain, 600_000_000) + KICK_NS) + JOB_NS) / 1000;
        assert!((17_700..=25_300).contains(&job_us), "{job_us} us, published: 25300");
    }

    #[test]
    fn macs_bind_when_the_clock_is_low() {
        assert_eq!(task_ns(&RK3588, 512_000, 0, 1_000_000), 1_000_000 + TASK_OVERHEAD_NS);
        assert_eq!(task_ns(&RK3588, 0, 2650, 600_000_000), 1000 + TASK_OVERHEAD_NS);
    }
    /// At clocks so low that the budget and not the limit of 64 binds.
    #[test]
    fn a_job_is_as_long_as_its_budget_and_no_longer() {
        let plan = TilePlan { mt: 256, kt: 384, nt: 256, n_mt: 4, n_kt: 10, n_nt: 16 };
        let tile = Shape { m: 256, k: 384, n: 256 };
        let bytes = task_bytes(DType::Fp16, tile, true);
        for hz in [100_000, 1_000_000, 10_000_000, 60_000_000, 200_000_000] {
            let one = KICK_NS + task_ns(&RK3588, tile.macs(), bytes, hz);
            for budget in [1_000_000, 100_000_000] {
                let tasks = tasks_per_job(&RK3588, DType::Fp16, &plan, hz, budget) as u64;
                assert!(tasks == 1 || JOB_NS + tasks * one <= budget, "{tasks} at {hz} Hz");
                assert!(tasks == 64 || JOB_NS + (tasks + 1) * one > budget, "{tasks} at {hz} Hz");
            }
        }
    }
}
