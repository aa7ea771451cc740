use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.dt-nodes";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Each NPU core is a node of the device tree whose status must be okay. Mainline leaves them \
              disabled on many boards (rock-5a, rock-5c, edge2 and others), where nobody has described the \
              rail yet. An overlay enables cores and IOMMUs and names the rail; without the domain-supply \
              the rail may simply be off (kernel-and-uapi D.1). For a board whose rail is vdd_npu_s0:\n\n\
              /dts-v1/;\n/plugin/;\n\
              &rknn_core_0 { status = \"okay\"; npu-supply = <&vdd_npu_s0>; \
              sram-supply = <&vdd_npu_s0>; };\n\
              &rknn_core_1 { status = \"okay\"; npu-supply = <&vdd_npu_s0>; \
              sram-supply = <&vdd_npu_s0>; };\n\
              &rknn_core_2 { status = \"okay\"; npu-supply = <&vdd_npu_s0>; \
              sram-supply = <&vdd_npu_s0>; };\n\
              &rknn_mmu_0 { status = \"okay\"; };\n\
              &rknn_mmu_1 { status = \"okay\"; };\n\
              &rknn_mmu_2 { status = \"okay\"; };\n\
              &pd_npu { domain-supply = <&vdd_npu_s0>; };\n\n\
              Compile it with dtc -@ -I dts -O dtb. Armbian takes it by user_overlays in armbianEnv.txt, \
              extlinux by fdtoverlays; Debian's tree is changed with fdtoverlay.",
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
        "The board's device tree leaves the NPU off. An overlay turns it on: look whether vdd_npu_s0 is \
         the rail's label on this board, compile it, and have the boot loader apply it.",
    );
    for node in off {
        finding = finding.seen(format!("{}/status", node.path), "disabled");
    }
    finding.fix(
        "rocketctl explain kernel.dt-nodes",
        "rocketctl doctor --only kernel.dt-nodes",
        "remove the overlay from the boot loader's list",
    )
}
