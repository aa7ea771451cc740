use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::{INSTALL_RULES, REMOVE_RULES};

const ID: &str = "access.node";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The node is /dev/accel/accelN of the driver rocket, for the group render by this suite's rule. A \
              node for everybody works as well; whoever is on the machine can then use the NPU.",
    after: &["board.container"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let Some(node) = facts.rocket_nodes().next() else {
        return Finding::unknown(ID, "the node", "no accel node of the driver rocket is in sysfs");
    };
    match &node.stat {
        Ok(s) if s.mode & 0o006 != 0 => {
            Finding::note(ID, format!("{} is open to everybody", node.path))
                .seen(node.path.clone(), format!("{:o} {}:{}", s.mode, s.owner, s.group))
        }
        // udev has no rule for the class accel before version 257, and the kernel's own default is root's alone
        // (kernel-and-uapi A.1).
        Ok(s) if s.group == "root" || s.mode & 0o060 != 0o060 => {
            let title = format!("{} is for {} alone", node.path, s.owner);
            let root = facts.identity.as_ref().is_ok_and(|who| who.uid == 0);
            let finding = if root { Finding::warn(ID, title) } else { Finding::fail(ID, title) };
            finding
                .cause("No udev rule gives it to a group, so nobody else can use the NPU.")
                .seen(node.path.clone(), format!("{:o} {}:{}", s.mode, s.owner, s.group))
                .fix(INSTALL_RULES, "rocketctl doctor --only access.node", REMOVE_RULES)
        }
        Ok(s) => Finding::ok(ID, format!("{} {:o} {}:{}", node.path, s.mode, s.owner, s.group)),
        Err(absent) => Finding::unread(ID, "the node's owner and mode", absent),
    }
}
