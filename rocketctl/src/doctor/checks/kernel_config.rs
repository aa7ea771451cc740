use super::super::finding::Finding;
use super::super::{About, Case, Check};

const ID: &str = "kernel.config";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The kernel must have been built with DRM_ACCEL, which is in drm itself and cannot be added, with \
              ROCKCHIP_IOMMU and ROCKCHIP_PM_DOMAINS, and with DRM_ACCEL_ROCKET, which a module can stand in for. \
              Read are /proc/config.gz and the running release's own file in /boot; another release's says nothing. \
              Without either: 'sudo modprobe configs' may give the first, and 'modinfo rocket' says whether there is \
              a module.",
    after: &["board.soc"],
    about: About::Machine,
    required: false,
    run,
};

/// Options that no module can stand in for (kernel-and-uapi D.2, D.10).
const NEEDED: [&str; 3] = ["DRM_ACCEL", "ROCKCHIP_IOMMU", "ROCKCHIP_PM_DOMAINS"];

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    // A driver that runs has what it needs, whatever is written down.
    if facts.loaded == Ok(true) {
        return Finding::ok(ID, "the driver runs on it");
    }
    let config = match &facts.config {
        Ok(config) => config,
        Err(absent) => {
            let why =
                format!("{absent}; 'grep DRM_ACCEL /boot/config-$(uname -r)' on the board tells");
            return Finding::unknown(ID, "how the kernel was configured cannot be told", why);
        }
    };
    let off: Vec<&str> = NEEDED.into_iter().filter(|o| !config.has(o)).collect();
    if !off.is_empty() {
        return off
            .iter()
            .fold(
                Finding::fail(ID, format!("the kernel lacks {}", off.join(", "))),
                |finding, option| {
                    finding.seen(config.path.clone(), format!("CONFIG_{option} is not set"))
                },
            )
            .cause("No module can add that: it takes another kernel.")
            .fix(
                "sudo apt install -t trixie-backports linux-image-arm64",
                "rocketctl doctor --only kernel.config",
                "choose the former kernel in the boot menu",
            );
    }
    let a_module = facts.installed.as_ref().is_ok_and(|files| !files.is_empty());
    match (config.get("DRM_ACCEL_ROCKET"), a_module) {
        ("n", false) => Finding::fail(ID, "the kernel was built without the driver")
            .cause("It has what the driver needs, so that it can be added as a module.")
            .seen(config.path.clone(), "CONFIG_DRM_ACCEL_ROCKET is not set")
            .fix(
                super::INSTALL_PATCHES,
                "rocketctl doctor --only kernel.config",
                super::REMOVE_PATCHES,
            ),
        ("n", true) => Finding::ok(ID, "built without the driver, which a module brings"),
        ("m", _) => Finding::ok(ID, "the driver is a module of this kernel"),
        (_, _) => Finding::ok(ID, "the driver is built into this kernel"),
    }
}
