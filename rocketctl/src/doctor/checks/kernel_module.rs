use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.module";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The driver is the kernel's module rocket (CONFIG_DRM_ACCEL_ROCKET), in mainline since 6.18. It is \
              there when sysfs shows it; else modules.dep of the running release says whether it could be \
              loaded. Another release's files say nothing.",
    after: &["kernel.dt-nodes", "kernel.late-probe"],
    about: About::Machine,
    required: true,
    run,
};

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    let patched = |line: &String| line.contains("/updates/") || line.starts_with("updates/");
    let installed = facts.installed.as_ref();
    match (&facts.loaded, installed) {
        (Ok(true), Ok(files)) if files.iter().any(patched) && facts.features.is_err() => {
            Finding::warn(ID, "a patched module is installed, the stock one runs")
                .cause("It was loaded before the patched one was there.")
                .seen("modules.dep", files.first().cloned().unwrap_or_default())
                .seen("/sys/module/rocket/parameters/rocket_features", "not there")
                .fix(
                    "sudo modprobe -r rocket && sudo modprobe rocket",
                    "cat /sys/module/rocket/parameters/rocket_features",
                    "sudo modprobe -r rocket && sudo modprobe rocket",
                )
        }
        (Ok(true), _) => Finding::ok(ID, "the driver is there"),
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
