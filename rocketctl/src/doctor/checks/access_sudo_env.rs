use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "access.sudo-env";

pub const CHECK: Check = Check {
    id: ID,
    explain: "sudo starts a program with an environment of its own: GGML_BACKEND_PATH and ROCKET_* of the caller are \
              gone, and a host that is started so runs on the CPU without a word. The NPU needs no root: a member of \
              the node's group can use it.",
    after: &["access.node"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let environment = match &case.environment {
        Ok(environment) => environment,
        Err(absent) => return Finding::unread(ID, "the environment", absent),
    };
    let Some(user) = environment.get("SUDO_USER").filter(|u| !u.is_empty()) else {
        return Finding::ok(ID, "not under sudo");
    };
    if environment.contains_key("GGML_BACKEND_PATH") {
        return Finding::ok(ID, "under sudo, with GGML_BACKEND_PATH");
    }
    Finding::note(ID, format!("under sudo: what {user} has set is not seen here"))
        .cause(
            "sudo drops GGML_BACKEND_PATH and ROCKET_*: a host that is started with it runs on the CPU alone. \
             Start it without; the NPU needs no root.",
        )
        .seen("SUDO_USER", user.clone())
        .seen("GGML_BACKEND_PATH", "not set")
        .fix(
            "sudo --preserve-env=GGML_BACKEND_PATH rocketctl doctor",
            "sudo --preserve-env=GGML_BACKEND_PATH rocketctl doctor --only access.sudo-env",
            "none needed",
        )
}
