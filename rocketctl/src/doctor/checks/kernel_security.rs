use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::kernel_module::pending;
use super::{INSTALL_PATCHES, REMOVE_PATCHES};
use rocket_runtime::board::Facts;

const ID: &str = "kernel.security";

pub const CHECK: Check = Check {
    id: ID,
    explain: "In mainline's driver whoever may open the node can make the kernel use freed memory by closing it \
              with a job in flight (to 7.3.4 at least), and free twice what a refused job brought (before \
              7.2.6). The patches domain-allocator and, on older kernels, task-array mend these. A release between \
              one that was seen with a bug and one that was seen without counts as unknown.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// Major, minor, patch level.
type Release = (u32, u32, u32);

/// A bug that a user of the node can reach (kernel-and-uapi B.6).
struct Bug {
    id: &'static str,
    what: &'static str,
    /// The last release that was seen with it, and the first without.
    seen: Option<(Release, Release)>,
    /// The patch that mends it.
    patch: &'static str,
}

const BUGS: &[Bug] = &[
    Bug {
        id: "U1",
        what: "closing the node with a job in flight makes the kernel use freed memory",
        seen: None,
        patch: "domain-allocator",
    },
    Bug {
        id: "U9",
        what: "a job may be so large that the kernel warns, and stops under panic_on_warn",
        seen: None,
        patch: "submit-limits",
    },
    Bug {
        id: "F1",
        what: "what a refused job brought is freed twice",
        seen: Some(((7, 1, 13), (7, 2, 6))),
        patch: "task-array",
    },
    Bug {
        id: "F2",
        what: "a refused job makes the kernel follow a null pointer",
        seen: Some(((7, 1, 13), (7, 2, 6))),
        patch: "extensible-submit",
    },
    Bug {
        id: "F5",
        what: "a buffer can be used before it is mapped",
        seen: Some(((6, 19, 11), (7, 1, 3))),
        patch: "create-bo-reference",
    },
];

/// Whether a bug is open; `None` where that is not known.
fn open(bug: &Bug, facts: &Facts) -> Option<bool> {
    if facts.has_patch(bug.patch) == Some(true) {
        return Some(false);
    }
    // A driver that has patches and does not name them is nobody's release.
    if facts.features.is_err() && facts.interface() != Some((0, 0)) {
        return None;
    }
    let Some((last_with, first_without)) = bug.seen else { return Some(true) };
    match release(facts.release.as_deref().ok()?)? {
        r if r <= last_with => Some(true),
        r if r >= first_without => Some(false),
        _ => None,
    }
}

/// `7.3.4+deb13-arm64`; a release candidate has no patch level and counts as 0.
fn release(text: &str) -> Option<Release> {
    let mut numbers = text.split(|c: char| !c.is_ascii_digit() && c != '.').next()?.split('.');
    let mut next = || numbers.next().map(|n| n.parse().ok());
    Some((next()??, next()??, next().flatten().unwrap_or(0)))
}

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    if let Some(waits) = pending(facts, ID) {
        return waits;
    }
    let with = |state: Option<bool>| BUGS.iter().filter(move |b| open(b, facts) == state);
    let found: Vec<&Bug> = with(Some(true)).collect();
    if found.is_empty() {
        return match with(None).next() {
            None => Finding::ok(ID, "no memory-safety bug known to be open"),
            Some(bug) => {
                let why = match facts.features {
                    Ok(_) => format!("of this release it is not known ({})", bug.id),
                    Err(_) => "the driver does not name its patches".to_owned(),
                };
                Finding::unknown(ID, "whether known memory-safety bugs are open", why)
            }
        };
    }
    let title = match found.as_slice() {
        [one] => format!("a known bug is open to users of the node ({})", one.id),
        all => format!("{} known bugs are open to users of the node", all.len()),
    };
    let cause = format!("The first of them: {}.", found[0].what);
    let finding = Finding::warn(ID, title).cause(cause);
    let finding = found
        .iter()
        .fold(finding, |f, bug| f.seen(bug.id, format!("{}; mended by {}", bug.what, bug.patch)));
    with(None)
        .fold(finding, |f, bug| f.seen(bug.id, format!("not known of this release: {}", bug.what)))
        .fix(INSTALL_PATCHES, "rocketctl doctor --only kernel.security", REMOVE_PATCHES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases() {
        assert_eq!(release("7.3.4+deb13-arm64"), Some((7, 3, 4)));
        assert_eq!((release("7.3-rc7"), release("6.18.0")), (Some((7, 3, 0)), Some((6, 18, 0))));
        assert_eq!((release(""), release("next"), release("7")), (None, None, None));
    }
}
