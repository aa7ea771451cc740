//! The checks, in the order in which they depend on each other.

mod access_group;
mod access_node;
mod access_service;
mod access_stale_login;
mod access_sudo_env;
mod board_acpi_boot;
mod board_container;
mod board_family;
mod board_memory;
mod board_soc;
mod board_thermal;
mod host_abi;
mod host_dynamic;
mod host_loads_backends;
mod host_mmproj_device;
pub mod host_repack;
mod host_rival;
mod kernel_config;
mod kernel_dt_nodes;
mod kernel_dtb_stale;
mod kernel_interface;
mod kernel_late_probe;
mod kernel_log;
mod kernel_module;
mod kernel_patches;
mod kernel_probe;
mod kernel_security;
mod model_fit;
mod model_format;
mod model_rk3576;
mod model_shapes;
mod model_types;
mod model_ubatch;
mod plugin_cpu;
mod plugin_elf;
mod plugin_glibc;
mod plugin_knobs;
mod plugin_path;
mod plugin_symbols;
mod speed_autosuspend;
mod speed_clock;
mod speed_dmc;
mod speed_governor;
mod speed_irq;
mod speed_power_control;

use super::Check;
pub use kernel_late_probe::is_late;

/// Every check. One depends on those before it only.
pub const ALL: &[Check] = &[
    board_acpi_boot::CHECK,
    board_family::CHECK,
    board_soc::CHECK,
    kernel_dtb_stale::CHECK,
    kernel_dt_nodes::CHECK,
    kernel_late_probe::CHECK,
    kernel_config::CHECK,
    kernel_module::CHECK,
    kernel_probe::CHECK,
    kernel_interface::CHECK,
    kernel_patches::CHECK,
    kernel_security::CHECK,
    kernel_log::CHECK,
    board_container::CHECK,
    access_node::CHECK,
    access_group::CHECK,
    access_stale_login::CHECK,
    access_sudo_env::CHECK,
    access_service::CHECK,
    speed_clock::CHECK,
    speed_power_control::CHECK,
    speed_autosuspend::CHECK,
    speed_governor::CHECK,
    speed_irq::CHECK,
    speed_dmc::CHECK,
    board_thermal::CHECK,
    board_memory::CHECK,
    plugin_path::CHECK,
    plugin_elf::CHECK,
    plugin_glibc::CHECK,
    plugin_symbols::CHECK,
    plugin_cpu::CHECK,
    plugin_knobs::CHECK,
    host_dynamic::CHECK,
    host_loads_backends::CHECK,
    host_abi::CHECK,
    host_repack::CHECK,
    host_rival::CHECK,
    host_mmproj_device::CHECK,
    model_format::CHECK,
    model_types::CHECK,
    model_shapes::CHECK,
    model_fit::CHECK,
    model_ubatch::CHECK,
    model_rk3576::CHECK,
];

pub use plugin_cpu::features as cpu_features;

/// How the package of the patched driver is installed and removed (kernel-patches/README.md).
const INSTALL_PATCHES: &str = "sudo apt install ./rocket-npu-dkms_*_all.deb";
const REMOVE_PATCHES: &str = "sudo apt remove rocket-npu-dkms";

/// How the udev rules are installed and removed.
const INSTALL_RULES: &str = "sudo rocketctl udev install";
const REMOVE_RULES: &str = "sudo rocketctl udev remove";
