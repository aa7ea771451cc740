use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::{INSTALL_PATCHES, REMOVE_PATCHES};

const ID: &str = "kernel.log";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Jobs that did not end are in the kernel's log as 'NPU job timed out'. On mainline's driver a reset \
              then detaches the IOMMU while the NPU still writes, and the IOMMU complains ('Enable stall request \
              timed out', twice a timeout): these lines come from the timeouts and need no care of their own.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// Bits of the IOMMU's status register.
const STATUS: &[(u32, &str)] = &[
    (1 << 0, "paging"),
    (1 << 1, "page fault"),
    (1 << 2, "stalled"),
    (1 << 3, "idle"),
    (1 << 4, "replay buffer empty"),
    (1 << 5, "fault by a write"),
];

fn decoded(line: &str) -> String {
    let hex = line.split("status: 0x").nth(1).and_then(|h| h.split_whitespace().next());
    let Some(status) = hex.and_then(|h| u32::from_str_radix(h, 16).ok()) else {
        return line.to_owned();
    };
    let names: Vec<&str> =
        STATUS.iter().filter(|(b, _)| status & b != 0).map(|(_, n)| *n).collect();
    format!("{line} ({})", names.join(", "))
}

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    if let Err(absent) = &facts.log {
        return Finding::unread(ID, "what the kernel said of the NPU", absent);
    }
    let timeouts = facts.log_with("NPU job timed out").count();
    let mut stalls = facts.log_with("Enable stall request timed out");
    let (stall, more) = (stalls.next(), stalls.count());
    if timeouts == 0 && stall.is_none() {
        return Finding::ok(ID, "the kernel has no complaint");
    }
    let mut finding = match timeouts {
        0 => Finding::warn(ID, "the NPU's IOMMU did not stall when it was asked to"),
        n => Finding::warn(ID, format!("{n} jobs did not end and were reset"))
            .cause("A job may take 500 ms: at 200 MHz a long one does not fit, and a wrong one never ends.")
            .seen("kernel log", format!("{n} x 'NPU job timed out'")),
    };
    if let Some(line) = stall {
        let n = more + 1;
        finding = finding.seen("kernel log", format!("{n} x {}", decoded(&line.text))).fix(
            INSTALL_PATCHES,
            "rocketctl doctor --only kernel.log",
            REMOVE_PATCHES,
        );
        finding.cause += " The IOMMU's lines follow from mainline's order of reset and detach, which \
                          reset-before-detach (088) changes.";
    } else {
        finding = finding.fix(
            "echo 600000000 | sudo tee /sys/module/rocket/parameters/rocket_npu_clk_hz",
            "sudo dmesg --clear && rocketctl doctor --only kernel.log",
            "echo 0 | sudo tee /sys/module/rocket/parameters/rocket_npu_clk_hz",
        );
    }
    finding
}
