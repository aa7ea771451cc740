use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.probe";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The driver must have taken each core that the device tree enables, and there must be an accel \
              node whose driver is rocket: another driver may have taken number 0. What kept it from a core \
              is in the kernel's log.",
    after: &["kernel.module"],
    about: About::Machine,
    required: false,
    run,
};

/// What the driver says when it cannot take a core, and what that means (kernel-and-uapi D.8).
const ERRORS: &[(&str, &str)] = &[
    ("failed to get clocks", "the device tree names no clocks as the driver asks for them"),
    ("failed to get resets", "the device tree names no resets as the driver asks for them"),
    ("couldn't find PC registers", "the device tree is of another driver"),
    ("couldn't find CNA registers", "the device tree is of another driver"),
    ("couldn't find CORE registers", "the device tree is of another driver"),
    ("failed to initialize rocket device", "the accel device could not be registered"),
    (
        "failed to get ack on domain 'npu'",
        "the NPU's power domain does not come up: its rail is off",
    ),
];

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let bound = match (&facts.bound, &facts.loaded) {
        (Ok(bound), _) => bound,
        (Err(absent), _) => return Finding::unread(ID, "which cores the driver has", absent),
    };
    let wanted = facts.nodes.iter().filter(|n| n.enabled).count();
    let nodes = facts.rocket_nodes().count();
    if bound.len() >= wanted && nodes > 0 {
        let version = facts.core_versions().first().map(|v| format!(", version {v}"));
        let version = version.unwrap_or_default();
        return Finding::ok(
            ID,
            format!("{} of {wanted} cores, {nodes} accel node{version}", bound.len()),
        );
    }
    let missing: Vec<&str> =
        facts.nodes.iter().filter(|n| n.enabled).map(|n| n.name.as_str()).collect();
    let missing = missing.into_iter().filter_map(|n| n.strip_prefix("npu@"));
    let missing: Vec<&str> =
        missing.filter(|a| !bound.iter().any(|b| b.split('.').next() == Some(a))).collect();
    let known = ERRORS.iter().find_map(|(text, means)| {
        facts.log_with(text).next().map(|line| (line.text.clone(), *means))
    });
    let mut finding =
        Finding::fail(ID, format!("the driver has {} of {wanted} cores", bound.len()))
            .seen("/sys/bus/platform/drivers/rocket", bound.join(" "))
            .seen("without a driver", missing.join(" "));
    if missing.is_empty() {
        // The cores are taken, and the node is not there.
        finding.title = "the driver has its cores and no accel node".into();
        finding.evidence.truncate(1);
    }
    finding = match known {
        Some((line, means)) => finding.cause(format!("{means}.")).seen("kernel log", line),
        None => finding.cause("The kernel's log has no line that says why."),
    };
    finding.fix(
        "sudo modprobe -r rocket && sudo modprobe rocket",
        "rocketctl doctor --only kernel.probe",
        "sudo modprobe -r rocket && sudo modprobe rocket",
    )
}
