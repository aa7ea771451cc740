use super::super::finding::Finding;
use super::super::{About, Case, Check};
use rocket_runtime::board::DtNode;

const ID: &str = "kernel.dtb-stale";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The boot loader hands the kernel a device tree, and may hand it an old one: a kernel update does not \
              always reach the boot partition. Held against each other are the NPU nodes of the tree in use and of \
              this board's file in the running kernel's package. More nodes in use than in the file are an \
              overlay's, and nothing to mend.",
    after: &["board.soc"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let packaged = match &facts.packaged {
        Ok(packaged) => packaged,
        Err(absent) => {
            return Finding::unread(ID, "whether the device tree is this kernel's", absent);
        }
    };
    let in_use = |node: &DtNode| facts.nodes.iter().find(|n| n.name == node.name);
    let lacks = |node: &&DtNode| node.enabled && in_use(node).is_none_or(|n| !n.enabled);
    let lost: Vec<&DtNode> = packaged.nodes.iter().filter(lacks).collect();
    if lost.is_empty() {
        return Finding::ok(ID, "the NPU is in it as the kernel's package has it");
    }
    let listed = facts.next.as_ref().is_ok_and(|next| next.source.ends_with("extlinux.conf"));
    let refresh = if listed { "sudo u-boot-update" } else { "sudo flash-kernel" };
    lost.iter()
        .fold(Finding::fail(ID, "the device tree in use is not this kernel's"), |finding, node| {
            let state = if in_use(node).is_some() { "disabled" } else { "not there" };
            finding.seen(format!("/proc/device-tree/{}", node.name), state)
        })
        .cause(
            "The kernel's package turns the NPU on for this board, and the tree that the boot loader gave does \
             not: it has an older file.",
        )
        .seen(packaged.path.clone(), format!("{} cores", packaged.nodes.len()))
        .fix(
            format!("{refresh} && sudo reboot"),
            "rocketctl doctor --only kernel.dtb-stale",
            "choose the former kernel in the boot menu",
        )
}
