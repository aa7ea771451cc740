use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.interface";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The driver says which interface it has when it is asked for its version. 0.0 is mainline's own: only \
              the first layout of its structs, and nobody is told of a job that was refused. 1.0 takes structs that \
              have grown and reports refused jobs; 1.1 runs several programs a job; 1.2 to 1.6 came with the RK3576; \
              1.7 names its features (kernel-and-uapi A.1).",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// The newest that this suite knows.
const KNOWN: (u32, u32) = (1, 7);

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let Some((major, minor)) = facts.interface() else {
        let asked = facts.rocket_nodes().find_map(|n| n.version.as_ref().err());
        let why = asked
            .map_or("no accel node of the driver rocket is in sysfs".into(), ToString::to_string);
        return Finding::unknown(ID, "which interface the driver has", why);
    };
    let what = match (major, minor) {
        (0, _) => "structs of 40 and 8 bytes alone, refused jobs untold",
        (1, 0) => "structs may grow, refused jobs are told",
        (1, 1..=4) => "and several programs a job",
        (1, 5..=6) => "and synchronisation by range",
        _ => "and features by name",
    };
    let title = format!("{major}.{minor}: {what}");
    match (major, minor) > KNOWN {
        true => Finding::note(ID, format!("{major}.{minor} is newer than this suite"))
            .cause("What it adds is not used."),
        false => Finding::ok(ID, title),
    }
}
