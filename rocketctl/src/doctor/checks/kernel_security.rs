use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::{INSTALL_PATCHES, REMOVE_PATCHES};

const ID: &str = "kernel.security";

pub const CHECK: Check = Check {
    id: ID,
    explain: "In mainline's driver whoever may open the node can make the kernel use freed memory by closing it \
              with a job in flight (to 7.3.4 at least), and free twice what a refused job brought (before \
              7.2.6). The patches domain-allocator and, on older kernels, task-array mend these.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    match (facts.has_patch("domain-allocator"), facts.interface()) {
        (Some(true), _) => Finding::ok(ID, "no memory-safety bug known to be open"),
        (Some(false), _) | (None, Some((0, 0))) => {
            Finding::warn(ID, "a known use after free is open to users of the node")
                .cause("Closing the node with a job in flight makes the kernel use freed memory.")
                .seen("/sys/module/rocket/parameters/rocket_features", "no domain-allocator")
                .fix(INSTALL_PATCHES, "rocketctl doctor --only kernel.security", REMOVE_PATCHES)
        }
        (None, _) => {
            let why = "the driver does not name its patches";
            Finding::unknown(ID, "whether known memory-safety bugs are open", why)
        }
    }
}
