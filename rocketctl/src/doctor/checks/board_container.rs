use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};

const ID: &str = "board.container";

pub const CHECK: Check = Check {
    id: ID,
    explain: "A container sees a device node and may still not open it: its device cgroup must list the node, \
              and in a user namespace the node's group is mapped to nobody unless it is kept.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let Some(marker) = facts.container else { return Finding::ok(ID, "not in a container") };
    let refused = facts.accel.iter().find(|n| matches!(n.open.as_deref(), Ok("EPERM" | "EACCES")));
    let Some(node) = refused else {
        return Finding::note(ID, "in a container").seen(format!("/{marker}"), "there");
    };
    let owners = node.stat.as_ref().map(|s| format!("{}:{}", s.owner, s.group)).unwrap_or_default();
    Finding::fail(ID, "the container may not open the node")
        .cause(
            "The node was mounted into it, which is not enough: the device must be passed, so that the \
             device cgroup has it, and the caller's groups kept, which the user namespace hides.",
        )
        .seen(node.path.clone(), format!("{}, {owners}", node.open.clone().unwrap_or_default()))
        .seen(format!("/{marker}"), "there")
        .fix(
            format!("podman run --device {} --group-add keep-groups IMAGE", word(&node.path)),
            "rocketctl doctor --only board.container",
            "podman run IMAGE",
        )
}
