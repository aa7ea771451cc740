use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "board.acpi-boot";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The NPU is described in the device tree alone. Firmware that boots with ACPI tables (edk2 \
              builds for RK3588 boards can do either) leaves the kernel without it, whatever the kernel's \
              configuration says.",
    after: &[],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let a_board = facts.dmi.as_ref().is_ok_and(|name| !name.is_empty()) && facts.machine_is_arm();
    match (&facts.compatible, &facts.acpi) {
        (Ok(_), _) => Finding::ok(ID, "booted with a device tree"),
        (Err(_), Ok(true)) if a_board => Finding::fail(ID, "booted in ACPI mode")
            .cause(
                "The firmware gave the kernel ACPI tables and no device tree, and only the device tree \
                 has the NPU. Choose the device tree in the firmware's setup (Device Manager, then the \
                 platform's configuration, then ACPI / Device Tree).",
            )
            .seen("/sys/class/dmi/id/board_name", facts.dmi.clone().unwrap_or_default())
            .seen("/sys/firmware/acpi/tables", "there")
            .seen("/proc/device-tree", "not there")
            .fix(
                "sudo systemctl reboot --firmware-setup",
                "rocketctl doctor --only board.acpi-boot",
                "sudo systemctl reboot --firmware-setup",
            ),
        (Err(_), Ok(_)) => Finding::ok(ID, "not a matter of this machine"),
        (Err(absent), Err(_)) => Finding::unread(ID, "how it booted is not known", absent),
    }
}
