use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};
use rocket_runtime::board::Facts;

const ID: &str = "kernel.module";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The driver is the kernel's module rocket (CONFIG_DRM_ACCEL_ROCKET), in mainline since 6.18. It is \
              there when sysfs shows it; else modules.dep of the running release says whether it could be \
              loaded. Another release's files say nothing of this one; those of the kernel that boots next say what \
              it will have.",
    after: &["kernel.dt-nodes", "kernel.late-probe", "kernel.config"],
    about: About::Machine,
    required: true,
    run,
};

/// What the kernel says when it will not have a module (kernel-and-uapi D.8).
const REFUSALS: &[(&str, &str)] = &[
    ("section size must match", "The module was built for a kernel that is configured otherwise."),
    ("disagrees about version of symbol", "The module was built for another kernel."),
    ("version magic", "The module was built for another release."),
    (
        "Loading of unsigned module is rejected",
        "Secure boot is on, and the module is not signed with an enrolled key.",
    ),
];

fn refusal(facts: &Facts) -> Option<(String, &'static str)> {
    REFUSALS.iter().find_map(|(words, means)| {
        let line = facts.log_with(words).find(|l| l.text.contains("rocket"))?;
        Some((line.text.clone(), *means))
    })
}

/// Whether the running driver is mainline's: it names no features, and is not out of the tree.
fn is_stock(facts: &Facts) -> bool {
    facts.features.is_err() && !facts.module.taint.as_ref().is_ok_and(|t| t.contains('O'))
}

/// What a patched driver that is installed will mend once it runs is one matter with that it does not run.
pub fn pending(facts: &Facts, id: &'static str) -> Option<Finding> {
    let waits = facts.loaded == Ok(true)
        && is_stock(facts)
        && facts.installed.iter().flatten().any(|line| patched(line));
    waits.then(|| Finding::skipped(id, ID))
}

fn patched(line: &str) -> bool {
    line.contains("/updates/") || line.starts_with("updates/")
}

/// What the kernel that boots next has less of than the one that runs.
fn next_boot(facts: &Facts) -> Option<Finding> {
    let (next, running) = (facts.next.as_ref().ok()?, facts.release.as_ref().ok()?);
    let modules = next.modules.as_ref().ok().filter(|_| next.release != *running)?;
    let title = match (modules.iter().any(|line| patched(line)), facts.features.is_ok()) {
        _ if modules.is_empty() => "the kernel that boots next has no driver",
        (false, true) => "the kernel that boots next has the stock driver",
        _ => return None,
    };
    Some(
        Finding::warn(ID, title)
            .cause(format!(
                "{running} runs, {} boots next. Headers for it let DKMS build the driver.",
                next.release
            ))
            .seen(next.source.clone(), next.release.clone())
            .seen(
                format!("/lib/modules/{}/modules.dep", next.release),
                match modules.first() {
                    Some(line) => line.split(':').next().unwrap_or_default().to_owned(),
                    None => "without rocket".to_owned(),
                },
            )
            .fix(
                format!(
                    "sudo apt install linux-headers-{r} && sudo dkms autoinstall -k {r}",
                    r = word(&next.release)
                ),
                "rocketctl doctor --only kernel.module",
                format!("sudo apt remove linux-headers-{}", word(&next.release)),
            ),
    )
}

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let installed = facts.installed.as_ref();
    match (&facts.loaded, installed) {
        (Ok(true), Ok(files)) if pending(facts, ID).is_some() => {
            Finding::warn(ID, "a patched module is installed, the stock one runs")
                .cause(
                    "It was loaded before the patched one was there, or from an initramfs that has the stock one \
                     (then 'sudo update-initramfs -u' comes first).",
                )
                .seen("modules.dep", files.first().cloned().unwrap_or_default())
                .seen("/sys/module/rocket/parameters/rocket_features", "not there")
                .fix(
                    "sudo modprobe -r rocket && sudo modprobe rocket",
                    "cat /sys/module/rocket/parameters/rocket_features",
                    "sudo modprobe -r rocket && sudo modprobe rocket",
                )
        }
        (Ok(true), _) => next_boot(facts).unwrap_or_else(|| Finding::ok(ID, "the driver is there")),
        (Ok(false), Ok(files)) if !files.is_empty() && refusal(facts).is_some() => {
            let (line, means) = refusal(facts).unwrap_or_default();
            Finding::fail(ID, "the kernel refuses the driver's module")
                .cause(means)
                .seen("kernel log", line)
                .seen("modules.dep", files[0].split(':').next().unwrap_or_default())
                .fix(
                    "sudo dkms autoinstall && sudo modprobe rocket",
                    "rocketctl doctor --only kernel.module",
                    "sudo modprobe -r rocket",
                )
        }
        (Ok(false), Ok(files)) if !files.is_empty() => {
            Finding::fail(ID, "the driver is not loaded")
                .cause("This kernel has it as a module.")
                .seen("modules.dep", files[0].split(':').next().unwrap_or_default())
                .fix(
                    "sudo modprobe rocket",
                    "rocketctl doctor --only kernel.module",
                    "sudo modprobe -r rocket",
                )
        }
        (Ok(false), Ok(_)) if facts.config.as_ref().is_ok_and(|c| c.get("DRM_ACCEL_ROCKET") == "m") => {
            Finding::fail(ID, "the driver's module is not installed")
                .cause("The kernel was configured with it, and its file is missing: packages put it apart, or it was removed.")
                .seen("modules.dep", "without rocket")
                .fix(
                    "sudo apt install --reinstall linux-modules-$(uname -r)",
                    "modinfo rocket",
                    "none needed",
                )
        }
        (Ok(false), Ok(_)) => Finding::fail(ID, "this kernel has no driver for the NPU")
            .cause("It was built without CONFIG_DRM_ACCEL_ROCKET, or is older than 6.18.")
            .seen("/proc/sys/kernel/osrelease", facts.release.clone().unwrap_or_default())
            .fix(
                "sudo apt install -t trixie-backports linux-image-arm64",
                "modinfo rocket",
                "choose the former kernel in the boot menu",
            ),
        (Ok(false), Err(absent)) => Finding::unknown(
            ID,
            "whether this kernel has the driver cannot be told",
            format!("{absent}; 'modinfo rocket' on the board tells"),
        ),
        (Err(absent), _) => Finding::unread(ID, "whether the driver is loaded", absent),
    }
}
