use super::Profile;

/// RK3588 and RK3588S: three cores (npu-rk3588 1.1, 4.1, 8.1; kernel-and-uapi D.1).
pub const RK3588: Profile = Profile {
    name: "RK3588",
    compatible: &["rockchip,rk3588", "rockchip,rk3588s"],
    cores: 3,
    cbuf_banks: 12,
    bank_bytes: 32768,
    fp16_macs_per_cycle: 512,
    slowest_hz: 200_000_000,
    nominal_hz: 600_000_000,
};
