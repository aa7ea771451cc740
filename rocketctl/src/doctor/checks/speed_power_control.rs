use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};

const ID: &str = "speed.power-control";

pub const CHECK: Check = Check {
    id: ID,
    explain: "power/control of a core must be auto. With on it never rests: it stays warm, and the clock is never \
              parked.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let pinned = facts.power.iter().find(|c| c.control.as_deref() == Ok("on"));
    match (pinned, facts.power.first()) {
        (Some(core), _) => Finding::warn(ID, "a core is kept on for good")
            .cause("It never rests, and the clock is never parked.")
            .seen(format!("{}/control", core.path), "on")
            .fix(
                format!("echo auto | sudo tee {}", word(&format!("{}/control", core.path))),
                "rocketctl doctor --only speed.power-control",
                "none: on is never right",
            ),
        (None, Some(_)) => Finding::ok(ID, "cores rest when they have nothing to do"),
        (None, None) => Finding::unknown(ID, "whether cores rest", "the driver has no core"),
    }
}
