//! The cost model: how long silicon would take. Everything derived from it is *modelled*.
//!
//! The form is that of npu-rk3588 8.6. One bandwidth and one overhead cannot meet every published
//! figure; these meet the two wait times below and stay within 30 % of the job rate (39.5 jobs/s
//! of 64 tasks).

/// fp16 multiply-accumulates per core and cycle (npu-rk3588 8.1).
pub const FP16_MACS_PER_CYCLE: u64 = 512;

/// Effective DMA bandwidth of one core in bytes per microsecond. Source: npu-rk3588 8.4 and 8.5:
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
pub fn task_ns(macs: u64, bytes: u64, clock_hz: u64) -> u64 {
    let mac_ns = u128::from(macs) * 1_000_000_000
        / (u128::from(FP16_MACS_PER_CYCLE) * u128::from(clock_hz.max(1)));
    let dma_ns = u128::from(bytes) * 1000 / u128::from(BYTES_PER_US);
    u64::try_from(mac_ns.max(dma_ns)).unwrap_or(u64::MAX).saturating_add(TASK_OVERHEAD_NS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calibration_figures() {
        let (m, k, n) = (256, 384, 256);
        // DATA_REUSE over sixteen column tiles, results and operands of ten K steps.
        let bytes = 2 * (k * n + m * n + m * n * 9 / 10 + m * k / 16);
        let wait_ms = 320 * (task_ns(m * k * n, bytes, 600_000_000) + KICK_NS) / 1_000_000;
        assert!((80..=88).contains(&wait_ms), "{wait_ms} ms, published: 84");
        let plain = 2 * (k * n + m * n + m * k);
        let job_us = (64 * (task_ns(m * k * n, plain, 600_000_000) + KICK_NS) + JOB_NS) / 1000;
        assert!((17_700..=25_300).contains(&job_us), "{job_us} us, published: 25300");
    }

    #[test]
    fn macs_bind_when_the_clock_is_low() {
        assert_eq!(task_ns(512_000, 0, 1_000_000), 1_000_000 + TASK_OVERHEAD_NS);
        assert_eq!(task_ns(0, 2650, 600_000_000), 1000 + TASK_OVERHEAD_NS);
    }
}
