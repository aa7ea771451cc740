use super::super::finding::Finding;
use super::super::{About, Case, Check};
use super::{INSTALL_PATCHES, REMOVE_PATCHES};
use rocket_runtime::board::LogLine;

const ID: &str = "kernel.log";

pub const CHECK: Check = Check {
    id: ID,
    explain: "Jobs that did not end are in the kernel's log as 'NPU job timed out'. On mainline's driver a reset \
              then detaches the IOMMU while the NPU still writes, and the IOMMU complains ('Enable stall request \
              timed out', twice a timeout): these lines come from the timeouts and need no care of their own. Lines \
              of the driver that sound bad and are not, as that a module is out of the tree, are said to be harmless.",
    after: &["kernel.probe"],
    about: About::Machine,
    required: false,
    run,
};

/// Bits of the IOMMU's status register.
const STATUS: &[(u32, &str)] = &[
    (1 << 0, "paging"),
    (1 << 1, "page fault"),
    (1 << 2, "stalled"),
    (1 << 3, "idle"),
    (1 << 4, "replay buffer empty"),
    (1 << 5, "fault by a write"),
];

/// What helps.
#[derive(Clone, Copy, PartialEq)]
enum Help {
    /// The series.
    Patches,
    /// The kernel's state is no longer right.
    Reboot,
    /// A job that takes too long at the boot's clock.
    Clock,
    /// Nothing is wrong.
    Harmless,
}

/// A line of the log, and what it says (kernel-and-uapi D.8, B.6).
struct Known {
    /// All of them are in the line.
    words: &'static [&'static str],
    means: &'static str,
    help: Help,
}

const fn known(words: &'static [&'static str], means: &'static str, help: Help) -> Known {
    Known { words, means, help }
}

/// Causes before what follows from them.
const MESSAGES: &[Known] = &[
    known(
        &["BUG kmalloc-16", "Object already free"],
        "what a refused job brought was freed twice (task-array)",
        Help::Reboot,
    ),
    known(
        &["rocket_iommu_domain_put"],
        "a refused job had no address space, which oopsed (before 7.2.6)",
        Help::Reboot,
    ),
    known(
        &["Memory manager not clean during takedown"],
        "memory was used after its file was closed (domain-allocator)",
        Help::Reboot,
    ),
    known(
        &["drm_mm_takedown"],
        "memory was used after its file was closed (domain-allocator)",
        Help::Reboot,
    ),
    known(
        &["rockchip_pd_power", "Asynchronous SError"],
        "a power domain was used before it had settled",
        Help::Reboot,
    ),
    known(
        &["scheduler already initialized!"],
        "a core was bound again and took another's place (live-cores)",
        Help::Reboot,
    ),
    known(&["NPU job timed out"], "a job did not end within 500 ms", Help::Clock),
    known(
        &["is not ready, skipping", "scheduler"],
        "a core is gone, and the driver still counts it (live-cores)",
        Help::Patches,
    ),
    known(
        &["rocket_ioctl_submit", "WARN"],
        "a job had more tasks than the kernel has memory for (submit-limits)",
        Help::Patches,
    ),
    known(
        &["failed to map buffer: size="],
        "a buffer did not fit into the address space of 4 GiB, or memory is short",
        Help::Clock,
    ),
    known(
        &["Page fault at", "rk_iommu"],
        "a program used an address that it has not mapped",
        Help::Clock,
    ),
    known(
        &["failed to get ack on domain 'npu'"],
        "the NPU's power domain did not answer: its rail is off",
        Help::Reboot,
    ),
    known(
        &["failed to set domain", "npu"],
        "the NPU's power domain did not answer: its rail is off",
        Help::Reboot,
    ),
    known(
        &["Error during raw reset. MMU_DTE_ADDR"],
        "the IOMMU has no clock or power, or a reset left it so",
        Help::Patches,
    ),
    known(
        &[STALL],
        "the IOMMU did not stall while the NPU wrote (reset-before-detach)",
        Help::Patches,
    ),
    known(
        &["module verification failed"],
        "the module is not signed, and was taken",
        Help::Harmless,
    ),
    known(
        &["loading out-of-tree module taints kernel"],
        "a patched module is not the kernel's own",
        Help::Harmless,
    ),
    known(
        &["unknown parameter 'rocket_"],
        "mainline's driver does not have a parameter of the series",
        Help::Harmless,
    ),
    known(
        &["npu", "using dummy regulator"],
        "the device tree names no supply, and the cores came up",
        Help::Harmless,
    ),
];

const STALL: &str = "Enable stall request timed out";

/// A kind of line that the log has: how often, and the first.
struct Found<'a> {
    known: &'a Known,
    count: usize,
    first: &'a str,
}

/// Every kind that the log has, in the table's order; a line counts for the first kind that it is of.
fn found(log: &[LogLine]) -> Vec<Found<'_>> {
    let mut all: Vec<Found> =
        MESSAGES.iter().map(|known| Found { known, count: 0, first: "" }).collect();
    for line in log {
        let is = |f: &&mut Found| f.known.words.iter().all(|w| line.text.contains(w));
        let Some(kind) = all.iter_mut().find(is) else { continue };
        if kind.count == 0 {
            kind.first = &line.text;
        }
        kind.count += 1;
    }
    all.retain(|f| f.count > 0);
    all
}

/// The line, with the IOMMU's status in words.
fn decoded(line: &str) -> String {
    let hex = line.split("status: 0x").nth(1).and_then(|h| h.split_whitespace().next());
    let Some(status) = hex.and_then(|h| u32::from_str_radix(h, 16).ok()) else {
        return line.to_owned();
    };
    let names: Vec<&str> =
        STATUS.iter().filter(|(b, _)| status & b != 0).map(|(_, n)| *n).collect();
    format!("{line} ({})", names.join(", "))
}

/// `core 0 NPU clk -> 600000000 Hz (reads back 200000000)`: what the firmware made of the rate.
fn refused_rate(log: &[LogLine]) -> Option<&str> {
    log.iter().rev().find_map(|line| {
        let (_, rest) = line.text.split_once("NPU clk -> ")?;
        let (wanted, rest) = rest.split_once(" Hz (reads back ")?;
        let got = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        (wanted != got).then_some(line.text.as_str())
    })
}

fn run(case: &Case) -> Finding {
    let log = match &case.facts.log {
        Ok(log) => log,
        Err(absent) => return Finding::unread(ID, "what the kernel said of the NPU", absent),
    };
    let (harmless, complaints): (Vec<Found>, Vec<Found>) =
        found(log).into_iter().partition(|f| f.known.help == Help::Harmless);
    if let Some(first) = complaints.first() {
        return complaint(first, &complaints);
    }
    if let Some(line) = refused_rate(log) {
        return Finding::warn(ID, "the firmware did not take the clock's rate")
            .cause("The driver asked for one rate and read another back.")
            .seen("kernel log", line)
            .fix(RESET_CLOCK, "rocketctl doctor --only kernel.log", RAISE_CLOCK);
    }
    match harmless.first() {
        None => Finding::ok(ID, "the kernel has no complaint"),
        Some(first) => Finding::ok(ID, "the kernel has no complaint that matters")
            .cause(format!("Harmless: {} ({}).", first.first, first.known.means)),
    }
}

const RAISE_CLOCK: &str =
    "echo 600000000 | sudo tee /sys/module/rocket/parameters/rocket_npu_clk_hz";
const RESET_CLOCK: &str = "echo 0 | sudo tee /sys/module/rocket/parameters/rocket_npu_clk_hz";

/// One finding for all of them: they tend to come from one root, which the table has first.
fn complaint(first: &Found, all: &[Found]) -> Finding {
    let timed_out = first.known.words == ["NPU job timed out"];
    let stalls = all.iter().any(|f| f.known.words == [STALL]);
    let mut finding = match timed_out {
        true => Finding::warn(ID, format!("{} jobs did not end and were reset", first.count)).cause(
            "A job may take 500 ms: at 200 MHz a long one does not fit, and a wrong one never ends.",
        ),
        false => Finding::warn(ID, first.known.means).cause("The kernel's log has it."),
    };
    if stalls {
        finding.cause += " The IOMMU's lines follow from mainline's order of reset and detach, which \
                          reset-before-detach (088) changes.";
    }
    for f in all {
        let line = format!("{} x {}", f.count, decoded(f.first));
        finding = finding.seen(
            "kernel log",
            match f.known.words == [STALL] || timed_out {
                true => line,
                false => format!("{line}: {}", f.known.means),
            },
        );
    }
    let verify = "sudo dmesg --clear && rocketctl doctor --only kernel.log";
    match first.known.help {
        _ if stalls => finding.fix(INSTALL_PATCHES, verify, REMOVE_PATCHES),
        Help::Patches => finding.fix(INSTALL_PATCHES, verify, REMOVE_PATCHES),
        Help::Reboot => finding
            .fix(
                "sudo reboot",
                "rocketctl doctor --only kernel.log",
                "none: the kernel's state was not right",
            )
            .fix(INSTALL_PATCHES, "rocketctl doctor --only kernel.security", REMOVE_PATCHES),
        Help::Clock | Help::Harmless => finding.fix(RAISE_CLOCK, verify, RESET_CLOCK),
    }
}
