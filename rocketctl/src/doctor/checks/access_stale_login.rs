use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};
use super::access_group::{asked, listed};

const ID: &str = "access.stale-login";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Groups are given to a session when it begins. Who was added to one since then has to log in again, \
              or start a shell with newgrp.",
    after: &["access.group"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let Some((stat, who)) = asked(facts) else {
        return Finding::unknown(ID, "the session's groups", "the node or the user cannot be seen");
    };
    let name = who.name.clone().unwrap_or_default();
    let late = who.uid != 0
        && stat.mode & 0o006 != 0o006
        && !who.groups.contains(&stat.group)
        && listed(facts, &stat.group, &name) == Some(true);
    if !late {
        return Finding::ok(ID, "the session has the groups that it should");
    }
    let group = &stat.group;
    Finding::fail(ID, format!("this session began before {name} was in {group}"))
        .cause("Log out and in, or start a shell that has the group.")
        .seen("/etc/group", format!("{group} with {name}"))
        .seen("groups of this session", who.groups.join(" "))
        .fix(
            format!("newgrp {}", word(group)),
            "rocketctl doctor --only access.stale-login",
            "exit",
        )
}
