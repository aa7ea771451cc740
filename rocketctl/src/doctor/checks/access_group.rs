use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};
use rocket_runtime::board::{Facts, Identity, Stat};

const ID: &str = "access.group";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Who wants to use the NPU must be in the node's group. /etc/group has who is; what a session may do \
              was decided when it began, which access.stale-login is about.",
    after: &["access.node"],
    about: About::Machine,
    required: false,
    run,
};

/// The node's permissions and who is asking, where both are known.
pub fn asked(facts: &Facts) -> Option<(&Stat, &Identity)> {
    let stat = facts.rocket_nodes().next()?.stat.as_ref().ok()?;
    Some((stat, facts.identity.as_ref().ok()?))
}

/// Whether `etc/group` has the user in the group.
pub fn listed(facts: &Facts, group: &str, user: &str) -> Option<bool> {
    let groups = facts.groups.as_ref().ok()?;
    let line = groups.lines().find(|l| l.split(':').next() == Some(group))?;
    Some(line.rsplit(':').next()?.split(',').any(|u| u == user))
}

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let Some((stat, who)) = asked(facts) else {
        return Finding::unknown(ID, "who may use the NPU", "the node or the user cannot be seen");
    };
    let name = who.name.clone().unwrap_or_else(|| who.uid.to_string());
    if who.uid == 0 || stat.mode & 0o006 == 0o006 || stat.owner == name {
        return Finding::ok(ID, format!("{name} may use the node"));
    }
    let group = &stat.group;
    if who.groups.contains(group) || listed(facts, group, &name) == Some(true) {
        return Finding::ok(ID, format!("{name} is in the group {group}"));
    }
    Finding::fail(ID, format!("{name} is not in the group {group}"))
        .cause(format!("The node is for the group {group} alone."))
        .seen("/etc/group", format!("{group} without {name}"))
        .fix(
            format!("sudo usermod -aG {} {}", word(group), word(&name)),
            "rocketctl doctor --only access.group",
            format!("sudo gpasswd -d {} {}", word(&name), word(group)),
        )
}
