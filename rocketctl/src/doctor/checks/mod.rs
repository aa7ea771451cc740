//! The checks, in the order in which they depend on each other.

mod access_group;
mod access_node;
mod access_stale_login;
mod board_acpi_boot;
mod board_container;
mod board_family;
mod board_memory;
mod board_soc;
mod board_thermal;
mod kernel_dt_nodes;
mod kernel_late_probe;
mod kernel_log;
mod kernel_module;
mod kernel_patches;
mod kernel_probe;
mod kernel_security;
mod speed_autosuspend;
mod speed_clock;
mod speed_power_control;

use super::Check;
pub use kernel_late_probe::is_late;

/// Every check. One depends on those before it only.
pub const ALL: &[Check] = &[
    board_acpi_boot::CHECK,
    board_family::CHECK,
    board_soc::CHECK,
    kernel_dt_nodes::CHECK,
    kernel_late_probe::CHECK,
    kernel_module::CHECK,
    kernel_probe::CHECK,
    kernel_patches::CHECK,
    kernel_security::CHECK,
    kernel_log::CHECK,
    board_container::CHECK,
    access_node::CHECK,
    access_group::CHECK,
    access_stale_login::CHECK,
    speed_clock::CHECK,
    speed_power_control::CHECK,
    speed_autosuspend::CHECK,
    board_thermal::CHECK,
    board_memory::CHECK,
];

/// How the package of the patched driver is installed and removed (kernel-patches/README.md).
const INSTALL_PATCHES: &str = "sudo apt install ./rocket-npu-dkms_*_all.deb";
const REMOVE_PATCHES: &str = "sudo apt remove rocket-npu-dkms";

/// How the udev rules are installed and removed.
const INSTALL_RULES: &str = "sudo rocketctl udev install";
const REMOVE_RULES: &str = "sudo rocketctl udev remove";
