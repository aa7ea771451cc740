//! Whether a module can be built here for a kernel: what `make` would stumble over, before it does.

#[cfg(test)]
mod tests;

use crate::doctor::finding::Finding;
use goblin::elf::Elf;
use goblin::elf::header::{EM_AARCH64, EM_X86_64};
use rocket_runtime::board::{Absent, Root, Why};

/// Ids and what they are about, for `rocketctl explain`.
pub const CHECKS: &[(&str, &str)] = &[
    (
        RELEASE,
        "The series is built for kernels of 6.18, 6.19 and 7.1 to 7.3; on others nobody knows.",
    ),
    (
        HEADERS,
        "A module is built in the folder that /lib/modules/RELEASE/build leads to: the kernel's headers.",
    ),
    (CONFIG, "DRM_ACCEL is a part of the kernel's own drm; where it is off no module can load."),
    (
        MODPOST,
        "scripts/mod/modpost of the headers runs while a module is built, so it must be for this machine.",
    ),
    (
        SYMVERS,
        "Module.symvers holds what the kernel exports; without it a module builds and does not load.",
    ),
    (COMPILER, "A module is built by gcc and make."),
    (SPACE, "Building takes some megabytes of temporary files."),
];

const RELEASE: &str = "patch.release";
const HEADERS: &str = "patch.headers";
const CONFIG: &str = "patch.config";
const MODPOST: &str = "patch.modpost";
const SYMVERS: &str = "patch.symvers";
const COMPILER: &str = "patch.compiler";
const SPACE: &str = "patch.space";

/// Nothing is known without these.
pub const REQUIRED: &[&str] = &[HEADERS, MODPOST, SYMVERS];

/// What a build needs at least, in bytes.
const ROOM: u64 = 64 << 20;

/// All checks, for a release, on a machine of this kind (`uname -m`); `free` are the bytes that temporary files
/// have, where that is known.
pub fn check(root: &Root, release: &str, machine: &str, free: Option<u64>) -> Vec<Finding> {
    let build = format!("lib/modules/{release}/build");
    let mut findings = vec![of_release(release)];
    let headers = headers(root, &build, release);
    let broken = headers.needs_action();
    findings.push(headers);
    let inside: [(&str, &dyn Fn() -> Finding); 3] = [
        (CONFIG, &|| config(root, &build)),
        (MODPOST, &|| modpost(root, &build, machine, release)),
        (SYMVERS, &|| symvers(root, &build, release)),
    ];
    for (id, run) in inside {
        findings.push(if broken { Finding::skipped(id, HEADERS) } else { run() });
    }
    findings.push(compiler(root));
    findings.push(space(free));
    findings
}

fn install(release: &str) -> String {
    format!("sudo apt install linux-headers-{release}")
}

const VERIFY: &str = "rocketctl patch check";

fn of_release(release: &str) -> Finding {
    let line = |l: &str| {
        release.strip_prefix(l).is_some_and(|r| r.starts_with(['.', '+', '-']) || r.is_empty())
    };
    match ["6.18", "6.19", "7.1", "7.2", "7.3"].into_iter().find(|l| line(l)) {
        Some(line) => Finding::ok(RELEASE, format!("the series is built for {line}")),
        None => Finding::warn(RELEASE, format!("the series was not built for {release}"))
            .cause("It is built for 6.18, 6.19 and 7.1 to 7.3. On another kernel it may not apply or not compile."),
    }
}

fn headers(root: &Root, build: &str, release: &str) -> Finding {
    match root.names(build) {
        Ok(_) => Finding::ok(HEADERS, format!("the headers of {release} are there")),
        Err(absent @ Absent { why: Why::Denied, .. }) => {
            Finding::unread(HEADERS, "the headers", &absent)
        }
        Err(absent) => Finding::fail(HEADERS, format!("the headers of {release} are not there"))
            .cause("A module is built in them. The link may be there and lead nowhere.")
            .seen(format!("/{build}"), absent.to_string())
            .fix(install(release), VERIFY, format!("sudo apt remove linux-headers-{release}")),
    }
}

fn config(root: &Root, build: &str) -> Finding {
    let text = match root.text(&format!("{build}/.config")) {
        Ok(text) => text,
        Err(absent) => return Finding::unread(CONFIG, "the kernel's configuration", &absent),
    };
    let lacks: Vec<&str> = ["CONFIG_DRM_ACCEL", "CONFIG_ROCKCHIP_IOMMU"]
        .into_iter()
        .filter(|name| {
            !text.lines().any(|l| l.strip_prefix(name).is_some_and(|r| r == "=y" || r == "=m"))
        })
        .collect();
    match lacks[..] {
        [] => Finding::ok(CONFIG, "the kernel can load it"),
        _ => Finding::fail(CONFIG, format!("this kernel has no {}", lacks.join(" and no ")))
            .cause("No module can add that; another kernel can."),
    }
}

fn modpost(root: &Root, build: &str, machine: &str, release: &str) -> Finding {
    let path = format!("{build}/scripts/mod/modpost");
    let bytes = match root.bytes(&path) {
        Ok(bytes) => bytes,
        Err(absent @ Absent { why: Why::Missing, .. }) => {
            return Finding::fail(MODPOST, "the headers have no modpost")
                .cause("They are not complete: modpost is built with them, and runs while a module is built.")
                .seen(format!("/{path}"), absent.to_string())
                .fix(reinstall(release), VERIFY, "nothing was changed");
        }
        Err(absent) => return Finding::unread(MODPOST, "modpost", &absent),
    };
    let found = match Elf::parse(&bytes).map(|e| e.header.e_machine) {
        Ok(EM_AARCH64) => "aarch64",
        Ok(EM_X86_64) => "x86_64",
        Ok(_) => "another machine",
        Err(_) => "no machine: it is no program",
    };
    match found == machine {
        true => Finding::ok(MODPOST, format!("modpost is for {machine}")),
        false => Finding::fail(MODPOST, format!("modpost is for {found}, and this is {machine}"))
            .cause("The headers were made on another machine, as by a cross build; `make` ends with an exec format error.")
            .seen(format!("/{path}"), found)
            .fix(reinstall(release), VERIFY, "nothing was changed"),
    }
}

fn reinstall(release: &str) -> String {
    format!("sudo apt install --reinstall linux-headers-{release}")
}

fn symvers(root: &Root, build: &str, release: &str) -> Finding {
    let path = format!("{build}/Module.symvers");
    let first = root.bytes(&path).map(|b| b.iter().any(|b| !b.is_ascii_whitespace()));
    let fail = |title: &str, seen: String| {
        Finding::fail(SYMVERS, title)
            .cause("A module that is built without it has no versions of symbols, and the kernel refuses it.")
            .seen(format!("/{path}"), seen)
            .fix(reinstall(release), VERIFY, "nothing was changed")
    };
    match first {
        Ok(true) => Finding::ok(SYMVERS, "the kernel's exports are known"),
        Ok(false) => fail("Module.symvers is empty", "0 bytes".into()),
        Err(absent @ Absent { why: Why::Missing, .. }) => {
            fail("there is no Module.symvers", absent.to_string())
        }
        Err(absent) => Finding::unread(SYMVERS, "Module.symvers", &absent),
    }
}

fn compiler(root: &Root) -> Finding {
    let folders = ["usr/bin", "usr/local/bin", "bin"];
    // A tree that was collected has no programs at all.
    if folders.iter().all(|f| root.exists(f) != Ok(true)) {
        return Finding::unknown(COMPILER, "gcc and make", "this tree holds no programs");
    }
    let lacks: Vec<&str> = ["gcc", "make"]
        .into_iter()
        .filter(|tool| !folders.iter().any(|f| root.exists(&format!("{f}/{tool}")) == Ok(true)))
        .collect();
    match lacks[..] {
        [] => Finding::ok(COMPILER, "gcc and make are there"),
        _ => Finding::fail(COMPILER, format!("not installed: {}", lacks.join(", ")))
            .cause("A module is built by both.")
            .fix("sudo apt install gcc make", VERIFY, "sudo apt remove gcc make"),
    }
}

fn space(free: Option<u64>) -> Finding {
    match free {
        None => Finding::unknown(
            SPACE,
            "room for temporary files",
            "a tree has no file system of its own",
        ),
        Some(free) if free >= ROOM => Finding::ok(SPACE, format!("{} MB are free", free >> 20)),
        Some(free) => Finding::fail(SPACE, format!("only {} MB are free", free >> 20))
            .cause(format!("Building takes up to {} MB of temporary files.", ROOM >> 20))
            .fix("df -h /tmp", VERIFY, "nothing was changed"),
    }
}
