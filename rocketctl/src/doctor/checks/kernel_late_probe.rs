use super::super::finding::Finding;
use super::super::{About, Case, Check};
use rocket_runtime::board::{Facts, LogLine};

const ID: &str = "kernel.late-probe";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Late in the boot the kernel switches off every rail that nobody has claimed. If the driver is a \
              module and comes after that, its rail is gone. The module belongs in the initramfs then, or \
              into the kernel.",
    after: &["kernel.dt-nodes"],
    about: About::Machine,
    required: false,
    run,
};

/// Whether the rail was cut before the driver came.
pub fn is_late(facts: &Facts) -> bool {
    lines(facts).is_some()
}

/// The line of the rail's end and that of the driver, where they are in the wrong order and no node came of it.
fn lines(facts: &Facts) -> Option<(&LogLine, &LogLine)> {
    let off = facts.log_with("vdd_npu_s0: disabling").next()?;
    // "rocket fdab0000.npu: …", or the line of the DRM device.
    let ours =
        |l: &&LogLine| l.text.starts_with("rocket ") || l.text.contains("Initialized rocket");
    let came = facts.log.iter().flatten().find(ours)?;
    let before = matches!((off.seconds, came.seconds), (Some(a), Some(b)) if a < b);
    (before && facts.accel.is_empty()).then_some((off, came))
}

fn run(case: &Case) -> Finding {
    let facts = &case.facts;
    if let Err(absent) = &facts.log {
        return Finding::unread(ID, "whether the rail was cut before the driver came", absent);
    }
    match lines(facts) {
        Some((off, came)) => {
            let at = |s: Option<f64>| s.map_or_else(|| "?".to_owned(), |s| format!("{s:.3} s"));
            Finding::fail(ID, "the driver came after its rail was switched off")
                .cause("The module is loaded too late: put it into the initramfs.")
                .seen("kernel log", format!("{}: {}", at(off.seconds), off.text))
                .seen("kernel log", format!("{}: {}", at(came.seconds), came.text))
                .fix(
                    "echo rocket | sudo tee -a /etc/initramfs-tools/modules && sudo update-initramfs -u",
                    "lsinitramfs /boot/initrd.img-$(uname -r) | grep rocket.ko",
                    "sudo sed -i /^rocket$/d /etc/initramfs-tools/modules && sudo update-initramfs -u",
                )
        }
        None => Finding::ok(ID, "the rail was not cut before the driver came"),
    }
}
