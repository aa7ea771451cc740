use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.dt-nodes";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Each NPU core is a node of the device tree whose status must be okay, as must that of its IOMMU. \
              Mainline leaves them disabled on many boards (rock-5a, rock-5c, edge2 and others), where nobody \
              has described the rail yet. An overlay enables cores and IOMMUs and names the rail for them and \
              for their power domain; without the last the rail may simply be off (kernel-and-uapi D.1).\n\n\
              rocketctl overlay show prints the overlay for this board by its own device tree, as text that \
              dtc -I dts -O dtb compiles. rocketctl overlay install has the boot loader apply it from the next \
              start on: by user_overlays of Armbian's armbianEnv.txt, by fdtoverlays of extlinux.conf, or by \
              Debian's u-boot-update. It shows the change and asks first, changes no tree on the disk, and \
              rocketctl overlay remove takes it away, from a rescue system as well (docs/overlay.md).",
    after: &["board.soc", "kernel.dtb-stale"],
    about: About::Machine,
    required: true,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let cores = facts.nodes.len();
    let off: Vec<_> = facts.nodes.iter().filter(|n| !n.enabled).collect();
    if cores == 0 {
        return Finding::fail(ID, "the device tree has no NPU node").cause(
            "The kernel's device tree is older than the driver (6.18), or another's. Boot the one that \
             came with the kernel.",
        )
        .seen("/proc/device-tree", "no node npu@...")
        .fix(
            "rocketctl explain kernel.dt-nodes",
            "rocketctl doctor --only kernel.dt-nodes",
            "none needed",
        );
    }
    if off.is_empty() {
        return Finding::ok(ID, format!("{cores} cores in the device tree"));
    }
    let mut finding = Finding::fail(ID, format!("{} of {cores} cores are disabled", off.len())).cause(
        "The board's device tree leaves the NPU off. An overlay turns it on, which the boot loader applies \
         from the next start on; rocketctl overlay show prints it.",
    );
    for node in off {
        finding = finding.seen(format!("{}/status", node.path), "disabled");
    }
    finding.fix(
        "sudo rocketctl overlay install",
        "rocketctl doctor --only kernel.dt-nodes",
        "sudo rocketctl overlay remove",
    )
}
