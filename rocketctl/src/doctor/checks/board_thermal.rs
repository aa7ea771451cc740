use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "board.thermal";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The NPU's own thermal zone. Its only trip is the critical one at 115 C; from 85 C on a heat sink or \
              a fan is worth it.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    match &facts.temperature {
        Ok(t) if *t >= 85_000 => Finding::warn(ID, format!("{} C", t / 1000))
            .cause("Close to where the board protects itself, at 115 C.")
            .seen("thermal zone npu-thermal", t.to_string())
            .fix(
                "rocketctl explain board.thermal",
                "rocketctl doctor --only board.thermal",
                "none needed",
            ),
        Ok(t) => Finding::ok(ID, format!("{} C", t / 1000)),
        Err(absent) => Finding::unread(ID, "the temperature", absent),
    }
}
