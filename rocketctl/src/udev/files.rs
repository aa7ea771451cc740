//! The files, and the steps that install them.

use crate::change::{State, Step};
use rocket_runtime::board::{Facts, Root};

/// A file of `udev/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct File {
    /// The id of its finding and of its step.
    pub id: &'static str,
    pub path: &'static str,
    pub text: &'static str,
    pub title: &'static str,
    /// What it is good for.
    pub why: &'static str,
    /// What in the path's folder is ours by its first lines.
    pub mark: &'static str,
}

impl File {
    /// Where the package of the tools has it.
    pub fn packaged(&self) -> String {
        self.path.replacen("/etc/", "/usr/lib/", 1)
    }
}

pub const RULES: File = File {
    id: "udev.rules",
    path: "/etc/udev/rules.d/71-rocket-npu.rules",
    text: include_str!("../../../udev/71-rocket-npu.rules"),
    title: "Rules for the node and its cores",
    why: "The node is for the group render, and cores stay on between the jobs of a program: they are switched off \
          after 1000 ms without a job instead of 50, unless the driver has a delay of its own.",
    mark: MARK,
};

/// The workaround of kernel-and-uapi C.3, which opens a file to a group: for the one chip that needs it.
pub const RK3576: File = File {
    id: "udev.rk3576",
    path: "/etc/udev/rules.d/72-rocket-npu-rk3576.rules",
    text: include_str!("../../../udev/72-rocket-npu-rk3576.rules"),
    title: "The RK3576's delay, for the node's group",
    why: "After a job with results wider than a byte this chip's next job writes nothing until its power domain was \
          off. A program gets there through the core's autosuspend_delay_ms, so that file, and no other, is opened \
          to the group render; its members can thereby keep the NPU on.",
    mark: MARK,
};

pub const TMPFILES: File = File {
    id: "udev.counters",
    path: "/etc/tmpfiles.d/rocket-npu.conf",
    text: include_str!("../../../udev/rocket-npu.conf"),
    title: "The folder for counters",
    why: "Programs that use the NPU keep counters in /run/rocket, for rocket-top and `rocketctl why`. Any user may \
          add a file there and nobody may remove another's, as in /tmp.",
    mark: MARK,
};

/// All of them.
pub const FILES: [File; 3] = [RULES, RK3576, TMPFILES];

/// In the first lines of each.
const MARK: &str = "`rocketctl udev`";

/// Where udevadm may be.
const UDEVADM: [&str; 4] = ["usr/bin/udevadm", "bin/udevadm", "sbin/udevadm", "usr/sbin/udevadm"];

/// The files that this machine needs.
pub fn needed(facts: &Facts) -> Vec<File> {
    let mut files = vec![RULES];
    if facts.compatible.iter().flatten().any(|c| c == "rockchip,rk3576") {
        files.push(RK3576);
    }
    files.push(TMPFILES);
    files
}

/// What brings them into effect without a restart.
pub const RELOAD: &[&str] = &["udevadm", "control", "--reload"];
/// And for the node and the cores that are there already.
const IN_EFFECT: [&[&str]; 4] = [
    RELOAD,
    &["udevadm", "trigger", "--subsystem-match=accel"],
    &[
        "udevadm",
        "trigger",
        "--action=bind",
        "--subsystem-match=platform",
        "--property-match=DRIVER=rocket",
    ],
    &["udevadm", "settle", "--timeout=30"],
];

/// Whether somebody reads rules anew: nobody does in a root that another system runs in, as when an image is made.
pub fn listens(root: &Root) -> bool {
    !root.is_live() || root.exists("run/udev/control") == Ok(true)
}

/// The steps that install them, here or, as files and words, elsewhere.
pub fn steps(root: &Root, facts: &Facts, elsewhere: bool) -> Vec<Step> {
    let here = root.is_live() && !elsewhere;
    let there = |path: &str| root.exists(path) == Ok(true);
    let no_udev = here && !UDEVADM.iter().any(|p| there(p));
    let rules: Vec<File> = needed(facts).into_iter().filter(|f| *f != TMPFILES).collect();
    let why = rules.iter().map(|f| f.why).collect::<Vec<_>>().join(" ");
    let mut step = Step::new("udev-rules", RULES.title, why);
    let listens = !here || listens(root);
    if listens {
        step = step.at_undo(RELOAD);
    }
    for file in &rules {
        step = step.write(file.path, file.text, 0o644);
    }
    for command in IN_EFFECT.iter().filter(|_| listens) {
        step = step.run(command, None);
    }
    if no_udev {
        let why = "this system has no udevadm; `rocketctl udev show` prints what its rules must do";
        step = step.given(State::Cannot(why.into()));
    }
    let mut folder = Step::new("counters", TMPFILES.title, TMPFILES.why);
    folder = folder.write(TMPFILES.path, TMPFILES.text, 0o644);
    // Elsewhere what makes it at each start does.
    if here {
        folder = folder.folder("/run/rocket", 0o1777);
    }
    vec![step, folder]
}
