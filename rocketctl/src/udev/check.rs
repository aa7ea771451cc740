//! Whether the installed files are ours and of this version, and whether the system gives what they give.

use super::files::{File, RK3576, RULES, TMPFILES, needed};
use crate::doctor::{Finding, Report};
use rocket_runtime::board::{Facts, Reading, Root, Stat};

/// A delay from here on makes no difference (kernel-and-uapi C.2, 081).
const ENOUGH_MS: i64 = 200;
const INSTALL: &str = "sudo rocketctl udev install";
const VERIFY: &str = "rocketctl udev check";
const REMOVE: &str = "sudo rocketctl udev remove";

/// A finding for each file that this machine needs.
pub fn check(root: &Root, facts: &Facts) -> Report {
    let found = needed(facts).into_iter().map(|file| finding(root, facts, &file)).collect();
    let report = Report::new(found, &[]);
    let verdict = match report.exit {
        0 => "nothing to do for the udev rules",
        _ => "the udev rules are not as they should be",
    };
    Report { verdict: verdict.into(), ..report }
}

fn finding(root: &Root, facts: &Facts, file: &File) -> Finding {
    let id = file.id;
    let path = &in_effect(root, file);
    let gives = given(root, facts, file);
    match (installed(root, path, file), gives) {
        (Installed::Current, Some(Err(not))) => {
            Finding::warn(id, format!("{path} is installed, and not in effect"))
                .cause(not)
                .seen(path, "as of this version")
                .fix(
                    "sudo udevadm control --reload && sudo udevadm trigger --action=bind \
                     --subsystem-match=platform && sudo udevadm trigger --subsystem-match=accel",
                    VERIFY,
                    REMOVE,
                )
        }
        (Installed::Current, _) => Finding::ok(id, format!("{path} is installed")),
        (Installed::Other(what), _) => Finding::warn(id, format!("{path} is not this version's"))
            .cause(what)
            .seen(path, "other text")
            .fix(INSTALL, VERIFY, REMOVE),
        (Installed::Unknown(why), _) => Finding::unknown(id, path, why),
        (Installed::No, Some(Ok(()))) => {
            Finding::note(id, format!("{path} is not there, nor needed"))
                .cause("The system gives without it what it gives.")
        }
        (Installed::No, Some(Err(not))) => Finding::warn(id, format!("{path} is not installed"))
            .cause(not)
            .seen(path, "not there")
            .fix(INSTALL, VERIFY, REMOVE),
        (Installed::No, None) => Finding::note(id, format!("{path} is not there"))
            .cause("Whether it is needed shows once the driver has the NPU."),
    }
}

/// A package's copy, unless a file of the same name in /etc takes its place.
fn in_effect(root: &Root, file: &File) -> String {
    let packaged = file.packaged();
    match (root.exists(file.path), root.exists(&packaged)) {
        (Ok(false), Ok(true)) => packaged,
        _ => file.path.to_owned(),
    }
}

enum Installed {
    No,
    Current,
    /// And how it differs.
    Other(&'static str),
    Unknown(String),
}

fn installed(root: &Root, path: &str, file: &File) -> Installed {
    match (root.exists(path), root.bytes(path)) {
        (Ok(false), _) => Installed::No,
        (_, Ok(bytes)) if bytes == file.text.as_bytes() => Installed::Current,
        (_, Ok(bytes)) if is_ours(file, &bytes) => {
            Installed::Other("It is of another version of rocketctl, or was edited.")
        }
        (_, Ok(_)) => {
            Installed::Other("Somebody else wrote it; installing keeps a copy in the journal.")
        }
        (_, Err(absent)) => Installed::Unknown(absent.to_string()),
    }
}

/// Whether a file is one that some version of this program wrote.
pub fn is_ours(file: &File, bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(400)]);
    text.lines().take(2).any(|l| l.starts_with('#') && l.contains(file.mark))
}

/// Whether the system gives what a file gives, or what is missing; nothing where that cannot be seen.
fn given(root: &Root, facts: &Facts, file: &File) -> Option<Result<(), String>> {
    match *file {
        RULES => both(node(facts), delay(facts)),
        RK3576 => opened(root, facts),
        TMPFILES if facts.rocket_nodes().next().is_none() => None,
        TMPFILES => Some(match root.exists("run/rocket") {
            Ok(true) => Ok(()),
            _ => Err("There is no /run/rocket, so programs leave no counters there.".into()),
        }),
        _ => None,
    }
}

/// What is missing of either; good where one is and the other cannot be seen.
fn both(
    a: Option<Result<(), String>>,
    b: Option<Result<(), String>>,
) -> Option<Result<(), String>> {
    match (a, b) {
        (Some(Err(a)), Some(Err(b))) => Some(Err(format!("{a} {b}"))),
        (Some(Err(e)), _) | (_, Some(Err(e))) => Some(Err(e)),
        (a, b) => a.and(b),
    }
}

fn node(facts: &Facts) -> Option<Result<(), String>> {
    let node = facts.rocket_nodes().next()?;
    let stat = node.stat.as_ref().ok()?;
    Some(match for_group(stat) {
        true => Ok(()),
        false => Err(format!(
            "{} is {:o} {}:{}, so not for the group render.",
            node.path, stat.mode, stat.owner, stat.group
        )),
    })
}

/// Whether a node is for the group render, or for everybody.
fn for_group(stat: &Stat) -> bool {
    let group = stat.group == "render" && stat.mode & 0o060 == 0o060;
    group || stat.mode & 0o006 == 0o006
}

fn delay(facts: &Facts) -> Option<Result<(), String>> {
    let delays: Reading<Vec<i64>> = facts.power.iter().map(|p| p.autosuspend_ms.clone()).collect();
    let shortest = delays.ok()?.into_iter().filter(|ms| *ms >= 0).min();
    Some(match shortest {
        Some(ms) if ms < ENOUGH_MS => {
            Err(format!("Cores are switched off after {ms} ms, shorter than gaps between jobs."))
        }
        _ => Ok(()),
    })
}

fn opened(root: &Root, facts: &Facts) -> Option<Result<(), String>> {
    let core = facts.power.first()?;
    let path = format!("{}/autosuspend_delay_ms", core.path);
    let stat = root.stat(&path).ok()?;
    Some(match for_group(&stat) {
        true => Ok(()),
        false => Err(format!("{path} is not for the group render.")),
    })
}
