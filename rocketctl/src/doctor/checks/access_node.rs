use super::super::finding::Finding;
use super::super::{About, Case, Check};

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
        Ok(s) => Finding::ok(ID, format!("{} {:o} {}:{}", node.path, s.mode, s.owner, s.group)),
        Err(absent) => Finding::unread(ID, "the node's owner and mode", absent),
    }
}
