use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::kernel_module::pending;
use super::{INSTALL_PATCHES, REMOVE_PATCHES};

const ID: &str = "kernel.patches";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Mainline's driver works and is slow: 200 MHz, an IOMMU handshake a job, no way to tell a job that \
              failed. The series in kernel-patches/ mends that. A driver that has it reports interface 1.7 and \
              names its parts in rocket_features; 0.0 is mainline's own.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    if let Some(waits) = pending(facts, ID) {
        return waits;
    }
    match (&facts.features, facts.interface()) {
        (Ok(features), _) => {
            Finding::ok(ID, format!("the running driver has {} patches", features.len()))
        }
        (Err(_), Some((0, 0))) => Finding::warn(ID, "the running driver is mainline's own")
            .cause(
                "It stays at 200 MHz, attaches the IOMMU for every job, and tells nobody which job failed.",
            )
            .seen("kernel log", "Initialized rocket 0.0")
            .fix(INSTALL_PATCHES, "rocketctl doctor --only kernel.patches", REMOVE_PATCHES),
        (Err(_), Some((major, minor))) => {
            Finding::note(ID, format!("the running driver has interface {major}.{minor}"))
                .cause("It has patches, and does not name them.")
        }
        (Err(absent), None) => Finding::unread(ID, "which patches the running driver has", absent),
    }
}
