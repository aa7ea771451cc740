use super::{Profile, Timing};

/// RK3588 and RK3588S: three cores (npu-rk3588 1.1, 4.1, 8.1; kernel-and-uapi D.1).
pub const RK3588: Profile = Profile {
    name: "RK3588",
    compatible: &["rockchip,rk3588", "rockchip,rk3588s"],
    cores: 3,
    cbuf_banks: 12,
    bank_bytes: 32768,
    timing: TIMING,
    slowest_hz: 200_000_000,
    nominal_hz: 600_000_000,
};

/// What the cost model charges; `rocket_sim::timing` sets it against every published figure.
///
/// | constant | source |
/// |---|---|
/// | MAC rates | npu-rk3588 8.1; int16 has none published and takes fp16's |
/// | kick | 8.3: 320 single kicks against 5 batched ones, 62 to 48 ms |
/// | job | 8.3: the submit floor, 51 to 54 us, less the one kick in it |
/// | link | assumed: nothing published names it; without a price the planner would cut tiles of one kernel group |
/// | host | assumed: half of what the cache sync alone moves (kernel-and-uapi A.4: 0.097 us a KiB) |
/// | bandwidth | no figure names it: least squares of the logarithms of all ratios of the table but int4's and 900 MHz's, rounded |
const TIMING: Timing = Timing {
    macs_per_cycle: [(4, 2048), (8, 1024), (16, 512), (32, 256)],
    bytes_per_us: 4500,
    kick_ns: 44_000,
    job_ns: 8_000,
    link_ns: 4_000,
    host_bytes_per_us: 5_000,
};
