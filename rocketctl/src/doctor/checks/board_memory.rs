use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "board.memory";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Weights that are packed for the NPU stay in memory beside the model; how many do is decided by what is \
              available (ROCKET_CACHE_MB limits it).",
    after: &["board.family"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let mib = |bytes: u64| bytes >> 20;
    match facts.memory {
        Some(m) => {
            Finding::ok(ID, format!("{} of {} MiB are available", mib(m.available), mib(m.total)))
        }
        None => Finding::unknown(ID, "the memory", "no usable /proc/meminfo"),
    }
}
