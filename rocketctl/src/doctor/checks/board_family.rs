use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "board.family";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Two drivers exist for these NPUs: mainline's rocket, which this suite is for, and the \
              vendor's rknpu in the vendor's kernels, which takes other programs. Which one a machine has \
              shows in its device tree.",
    after: &["board.acpi-boot"],
    about: About::Machine,
    required: true,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let with = |part: &str| {
        facts.nodes.iter().find(|n| n.compatible.iter().any(|c| c.contains(part))).map(|n| &n.path)
    };
    if facts.compatible.is_err() && !facts.machine_is_arm() {
        return simulator(
            Finding::fail(ID, "no board with a Rockchip NPU")
                .seen("the processor", facts.machine.clone().unwrap_or_default())
                .seen("/proc/device-tree", "not there"),
        );
    }
    let Ok(compatible) = &facts.compatible else {
        let what = "which board this is cannot be seen";
        return Finding::unknown(ID, what, "no /proc/device-tree/compatible");
    };
    // A driver that is there with no node of its own drives nothing.
    let driver = facts.vendor.map(|path| format!("/{path}"));
    match (with("-rknn-core"), with("-rknpu").or(driver.as_ref().filter(|_| facts.nodes.is_empty()))) {
        (Some(_), None) => Finding::ok(ID, "mainline's device tree"),
        (mainline, Some(vendor)) => Finding::fail(ID, "a vendor kernel")
            .cause(
                "Its NPU driver is rknpu, whose interface is another. The suite needs mainline's rocket: \
                 a kernel of 6.18 or later that does not come from the vendor, with its device tree.",
            )
            .seen(vendor.clone(), if mainline.is_some() { "both trees' nodes" } else { "rknpu" })
            .fix(
                "sudo apt install -t trixie-backports linux-image-arm64",
                "rocketctl doctor --only board.family",
                "choose the former kernel in the boot menu",
            ),
        (None, None) if compatible.iter().any(|c| c.starts_with("rockchip,rk35")) => {
            Finding::ok(ID, "no NPU in the device tree")
        }
        (None, None) => simulator(
            Finding::fail(ID, "no board with a Rockchip NPU")
                .seen("/proc/device-tree/compatible", compatible.join(", ")),
        ),
    }
}

fn simulator(finding: Finding) -> Finding {
    finding
        .cause(
            "Everything here runs on a simulated board as well, this machine's programs among it.",
        )
        .fix(
            "rocketctl sim run -- COMMAND",
            "rocketctl sim board",
            "none needed: it ends with its program",
        )
}
