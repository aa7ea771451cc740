//! Boards of `tests/boards`, and what people met with theirs, in variants.

use super::finding::{Finding, Report, Status};
use super::{checks, examine};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

fn boards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards")
}

/// A copy of a board that a case changes.
pub struct Board(tempfile::TempDir);

impl Board {
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn of(name: &str) -> Board {
        let dir = tempfile::tempdir().unwrap();
        copy(&boards().join(name), dir.path());
        Board(dir)
    }

    pub fn set(self, path: &str, bytes: impl AsRef<[u8]>) -> Board {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
        self
    }

    fn add(self, path: &str, text: &str) -> Board {
        let old = fs::read_to_string(self.0.path().join(path)).unwrap();
        self.set(path, old + text)
    }

    pub fn without(self, path: &str) -> Board {
        let path = self.0.path().join(path);
        if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) }.unwrap();
        self
    }

    /// What the doctor says, which must be well formed.
    fn ask(&self) -> Report {
        let report = examine(self.0.path()).unwrap();
        well_formed(&report);
        report
    }

    /// Everything that is not well, by status.
    fn wrong(&self) -> Vec<String> {
        wrong(&self.ask())
    }

    /// The one finding with this id.
    fn finding(&self, id: &str) -> Finding {
        self.ask().findings.into_iter().find(|f| f.id == id).unwrap()
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().unwrap();
        if kind.is_symlink() {
            symlink(fs::read_link(&path).unwrap(), to).unwrap();
        } else if kind.is_dir() {
            fs::create_dir(&to).unwrap();
            copy(&path, &to);
        } else {
            fs::copy(&path, &to).map(drop).unwrap();
        }
    }
}

fn wrong(report: &Report) -> Vec<String> {
    let word = |s: Status| format!("{s:?}").to_lowercase();
    let bad = |f: &&Finding| !matches!(f.status, Status::Ok | Status::Skipped);
    report.findings.iter().filter(bad).map(|f| format!("{} {}", word(f.status), f.id)).collect()
}

/// The rules for every answer (operator-tools): cause first, each fix a command with its verification and its way
/// back, unknown with a reason, one root one finding, exit status and findings of one mind, 80 columns.
pub fn well_formed(report: &Report) {
    let bad = |s: Status| report.findings.iter().any(|f| f.status == s);
    let wants =
        if bad(Status::Fail) || bad(Status::Warn) { report.exit == 1 } else { report.exit != 1 };
    assert!(wants, "exit {} of {report:?}", report.exit);
    for f in &report.findings {
        assert_eq!(f.status == Status::Skipped, f.because.is_some(), "{f:?}");
        assert_eq!(f.status == Status::Unknown, f.why.is_some(), "{f:?}");
        if f.needs_action() {
            assert!(!f.cause.is_empty(), "no cause: {f:?}");
        }
        if let Some(id) = f.because {
            let root = report.findings.iter().find(|r| r.id == id).unwrap();
            assert!(matches!(root.status, Status::Fail | Status::Unknown), "{f:?}");
        }
        for fix in &f.fix {
            assert!(!fix.verify.is_empty() && !fix.undo.is_empty(), "{fix:?}");
            let parsed = Command::new("sh").args(["-n", "-c", &fix.run]).status().unwrap();
            assert!(parsed.success(), "no command: {}", fix.run);
            assert!(!fix.run.contains("control=on") && !fix.run.contains("echo on"), "{}", fix.run);
            if let Some(id) = fix.verify.split("--only ").nth(1) {
                assert!(super::known(id).is_ok(), "{id}");
            }
        }
    }
    let text = report.text(false, false);
    for line in text.lines().filter(|l| !l.trim_start().starts_with("fix:")) {
        let command =
            line.starts_with("    ") || line.contains("verify:") || line.contains("undo:");
        assert!(command || line.chars().count() <= 80, "{line}");
    }
    let json = serde_json::to_value(report).unwrap();
    assert_eq!((&json["exit"], &json["schema"]), (&report.exit.into(), &1.into()));
}

/// Beside each board lies what the doctor must find, and by that what it must not.
#[test]
fn every_board_has_its_findings_and_no_others() {
    let mut seen = 0;
    for entry in fs::read_dir(boards()).unwrap().flatten().filter(|e| e.path().is_dir()) {
        let report = examine(&entry.path()).unwrap();
        well_formed(&report);
        let expected = fs::read_to_string(entry.path().with_extension("findings")).unwrap();
        let expected: Vec<&str> = expected.lines().filter(|l| !l.starts_with('#')).collect();
        assert_eq!(
            wrong(&report),
            expected,
            "{}:\n{}",
            entry.path().display(),
            report.text(false, false)
        );
        insta::assert_snapshot!(
            entry.file_name().to_string_lossy().into_owned(),
            report.text(false, false)
        );
        seen += 1;
    }
    assert!(seen >= 7, "{seen}");
}

#[test]
fn checks_depend_on_those_before_them() {
    for (i, check) in checks::ALL.iter().enumerate() {
        let before = |id: &str| checks::ALL[..i].iter().any(|c| c.id == id);
        assert!(check.after.iter().all(|id| before(id)), "{}", check.id);
        assert!(check.explain.len() > 60, "{}", check.id);
    }
}

/// What `verify` of a fix runs must not call a board ready whose check could not be made.
#[test]
fn one_check_alone() {
    let ids = |report: &Report| report.findings.iter().map(|f| f.id).collect::<Vec<_>>();
    let one = |board: &str, only: &str| {
        let only = [only.to_owned()];
        super::chosen(examine(&boards().join(board)).unwrap(), &only, &[])
    };
    let ready = one("rk3588-series", "speed.clock");
    assert_eq!((ids(&ready), ready.exit), (vec!["speed.clock"], 0));
    let skipped = one("rk3588s-nodes-disabled", "speed.clock");
    assert_eq!((ids(&skipped), skipped.exit), (vec!["kernel.dt-nodes", "speed.clock"], 1));
    well_formed(&skipped);
    let stock = examine(&boards().join("rk3588-stock")).unwrap();
    let less = super::chosen(stock, &[], &["speed.clock".to_owned()]);
    assert!(!ids(&less).contains(&"speed.clock") && less.exit == 1);
}

/// A2 and neighbours.
#[test]
fn nodes_that_are_disabled() {
    let all = Board::of("rk3588s-nodes-disabled");
    assert_eq!(all.wrong(), ["fail kernel.dt-nodes"]);
    let skipped = |f: &Finding| f.because == Some("kernel.dt-nodes");
    assert!(all.ask().findings.iter().filter(|f| skipped(f)).count() >= 8);
    let one = Board::of("rk3588-stock").set("proc/device-tree/npu@fdac0000/status", "disabled\0");
    assert_eq!(one.finding("kernel.dt-nodes").title, "1 of 3 cores are disabled");
    let unsaid = Board::of("rk3588-stock").without("proc/device-tree/npu@fdac0000/status");
    assert_eq!(unsaid.finding("kernel.dt-nodes").status, Status::Ok, "no status means okay");
    let odd = Board::of("rk3588-stock").set("proc/device-tree/npu@fdab0000/status", "reserved\0");
    assert_eq!(odd.finding("kernel.dt-nodes").status, Status::Fail);
}

/// A3: of firmware that boots an Arm board with ACPI, and not of a laptop.
#[test]
fn acpi() {
    assert_eq!(Board::of("rk3588-acpi").wrong(), ["fail board.acpi-boot"]);
    assert_eq!(Board::of("laptop").finding("board.acpi-boot").status, Status::Ok);
    let both = Board::of("rk3588-stock").set("sys/firmware/acpi/tables/DSDT", "x");
    assert_eq!(both.finding("board.acpi-boot").status, Status::Ok, "the device tree is there");
}

/// A4: what cannot be seen is not missing, and another release's files say nothing.
#[test]
fn a_kernel_that_cannot_be_looked_at() {
    let hidden = || {
        Board::of("rk3588-stock")
            .without("sys/module")
            .without("sys/bus")
            .without("sys/class/accel")
            .without("lib")
            .set("cmd/dmesg.txt", "")
    };
    for board in [hidden(), hidden().set("lib/modules/6.1.0-other/modules.dep", "kernel/x.ko:\n")] {
        let report = board.ask();
        assert_eq!(report.exit, 3, "{}", report.text(false, false));
        let f = report.findings.iter().find(|f| f.id == "kernel.module").unwrap();
        assert_eq!(f.status, Status::Unknown);
        assert!(f.why.as_ref().unwrap().contains("modinfo rocket"), "how to find out: {f:?}");
        assert!(report.findings.iter().all(|f| f.status != Status::Fail));
    }
    let bare = hidden().set("lib/modules/7.3.4+deb13-arm64/modules.dep", "kernel/x.ko:\n");
    assert_eq!(bare.finding("kernel.module").title, "this kernel has no driver for the NPU");
    let there = "kernel/drivers/accel/rocket/rocket.ko.zst: a.ko\n";
    let there = hidden().set("lib/modules/7.3.4+deb13-arm64/modules.dep", there);
    assert_eq!(there.finding("kernel.module").fix[0].run, "sudo modprobe rocket");
    let near = "kernel/drivers/net/rocketdisk.ko: a.ko kernel/rocket.ko\n";
    let near = hidden().set("lib/modules/7.3.4+deb13-arm64/modules.dep", near);
    assert_eq!(near.finding("kernel.module").title, "this kernel has no driver for the NPU");
}

/// A5.
#[test]
fn a_module_that_comes_after_its_rail_is_cut() {
    let off = "[   31.402000] vdd_npu_s0: disabling\n";
    let came = "[   44.120000] rocket fdab0000.npu: failed to get clocks for core\n";
    let board = |log: String| {
        Board::of("rk3588-stock")
            .without("sys/class/accel")
            .without("sys/bus")
            .set("cmd/dmesg.txt", log)
    };
    let late = board(format!("{off}{came}"));
    let f = late.finding("kernel.late-probe");
    assert_eq!((f.status, f.evidence.len()), (Status::Fail, 2));
    assert!(f.evidence[0].value.contains("31.402 s") && f.evidence[1].value.contains("44.120 s"));
    assert_eq!(late.wrong().iter().filter(|w| w.starts_with("fail")).count(), 1);
    let came = came.replace("44.12", " 4.12");
    assert_eq!(board(format!("{came}{off}")).finding("kernel.late-probe").status, Status::Ok);
    let early = off.replace("31.402", " 1.402");
    let works = Board::of("rk3588-stock").add("cmd/dmesg.txt", &early);
    assert_eq!(works.finding("kernel.late-probe").status, Status::Ok, "it works, whatever was cut");
}

/// A6 and its neighbour: listed and in, listed and not in, not listed.
#[test]
fn groups_of_the_user_and_of_the_session() {
    let closed = || Board::of("rk3588-stock").set("dev/accel/accel0.stat", "261 0 660 root render");
    assert_eq!(closed().finding("access.group").status, Status::Ok);
    let id = "uid=1000(tom) gid=1000(tom) groups=1000(tom)";
    let stale = closed().set("cmd/id.txt", id);
    assert_eq!(stale.finding("access.group").status, Status::Ok);
    assert_eq!(stale.finding("access.stale-login").fix[0].run, "newgrp render");
    let out = closed().set("cmd/id.txt", id).set("etc/group", "render:x:105:\ntom:x:1000:\n");
    assert_eq!(out.finding("access.group").fix[0].run, "sudo usermod -aG render tom");
    assert_eq!(out.finding("access.stale-login").because, Some("access.group"));
    let root = out.set("cmd/id.txt", "uid=0(root) gid=0(root) groups=0(root)");
    assert_eq!(root.finding("access.group").status, Status::Ok);
    // No udev rule, as before version 257.
    let bare = || Board::of("rk3588-stock").set("dev/accel/accel0.stat", "261 0 600 root root");
    let f = bare().finding("access.node");
    assert_eq!((f.status, f.fix[0].run.as_str()), (Status::Fail, "sudo rocketctl udev install"));
    assert_eq!(bare().finding("access.group").because, Some("access.node"));
    let root = bare().set("cmd/id.txt", "uid=0(root) gid=0(root) groups=0(root)");
    assert_eq!(root.finding("access.node").status, Status::Warn, "root can, others cannot");
    let nobody = closed().without("cmd/id.txt");
    assert_eq!(nobody.finding("access.group").status, Status::Unknown);
}

/// A7.
#[test]
fn a_container_that_may_not_open_the_node() {
    let inside = || Board::of("rk3588-stock").set("run/.containerenv", "");
    let shut = inside()
        .set("dev/accel/accel0.open", "EPERM")
        .set("dev/accel/accel0.stat", "261 0 660 nobody nogroup");
    let f = shut.finding("board.container");
    assert!(f.fix[0].run.contains("--device /dev/accel/accel0 --group-add keep-groups"), "{f:?}");
    assert_eq!(shut.finding("access.group").because, Some("board.container"));
    assert_eq!(inside().finding("board.container").status, Status::Note, "it opens");
    let outside = Board::of("rk3588-stock").set("dev/accel/accel0.open", "EPERM");
    assert_eq!(outside.finding("board.container").status, Status::Ok);
}

/// A8: and never `on`.
#[test]
fn when_cores_are_switched_off() {
    let core = "sys/bus/platform/devices/fdab0000.npu/power";
    let after =
        |ms: &str| Board::of("rk3588-stock").set(&format!("{core}/autosuspend_delay_ms"), ms);
    for (ms, want) in
        [("50", Status::Warn), ("199", Status::Warn), ("200", Status::Ok), ("-1", Status::Ok)]
    {
        assert_eq!(after(ms).finding("speed.autosuspend").status, want, "{ms}");
    }
    assert_eq!(after("soon").finding("speed.autosuspend").status, Status::Unknown);
    let pinned = Board::of("rk3588-series").set(&format!("{core}/control"), "on\n");
    assert_eq!(pinned.wrong(), ["warn speed.power-control"]);
}

/// A9: of the clock, and that looking changes nothing.
#[test]
fn the_clock() {
    let before = digest(&boards().join("rk3588-stock"));
    let f = Board::of("rk3588-stock").finding("speed.clock");
    assert!(f.title.contains("cannot raise it"), "{f:?}");
    assert_eq!(digest(&boards().join("rk3588-stock")), before);
    let parameter = "sys/module/rocket/parameters/rocket_npu_clk_hz";
    let untold = Board::of("rk3588-series").set(parameter, "0\n");
    assert!(
        untold.finding("speed.clock").fix[0].run.starts_with("sudo rocketctl clock set 600MHz")
    );
    let unread = Board::of("rk3588-series").without(parameter).without("sys/kernel");
    assert_eq!(unread.finding("speed.clock").status, Status::Unknown, "unknown is not slow");
}

/// What a fix has of this program is a command that it takes.
#[test]
fn fixes_that_are_commands_of_ours() {
    use clap::Parser;
    let closed = Board::of("rk3588-stock").set("dev/accel/accel0.stat", "261 0 600 root root");
    let untold =
        Board::of("rk3588-series").set("sys/module/rocket/parameters/rocket_npu_clk_hz", "0\n");
    let mut seen = 0;
    for (board, id) in
        [(&closed, "access.node"), (&closed, "speed.autosuspend"), (&untold, "speed.clock")]
    {
        let f = board.finding(id);
        for command in [&f.fix[0].run, &f.fix[0].verify, &f.fix[0].undo] {
            let words = command.trim_start_matches("sudo ").split(' ');
            assert!(crate::Arguments::try_parse_from(words).is_ok(), "{command}");
            seen += 1;
        }
    }
    assert_eq!(seen, 9);
}

/// A10: one finding, with a count and the status in words, in reasonable time.
#[test]
fn lines_of_the_iommu() {
    let stall =
        "[ 9.0] rk_iommu fdab9000.iommu: Enable stall request timed out, status: 0x00001d\n";
    let hang = "[ 9.1] rocket fdab0000.npu: NPU job timed out\n";
    assert_eq!(Board::of("rk3588-series").finding("kernel.log").status, Status::Ok);
    for (stalls, hangs) in [(1, 1), (60, 30), (20_000, 1)] {
        let log = stall.repeat(stalls) + &hang.repeat(hangs);
        let board = Board::of("rk3588-series").add("cmd/dmesg.txt", &log);
        assert_eq!(board.wrong(), ["warn kernel.log"]);
        let f = board.finding("kernel.log");
        assert!(f.title.starts_with(&format!("{hangs} jobs")), "{f:?}");
        assert!(f.evidence[1].value.starts_with(&format!("{stalls} x ")), "{f:?}");
        assert!(
            f.evidence[1].value.contains("paging, stalled, idle, replay buffer empty"),
            "{f:?}"
        );
    }
}

/// Whatever is missing or wrong below the root, there is an answer.
#[test]
fn boards_with_something_missing() {
    let files = |dir: &Path| -> Vec<PathBuf> {
        let mut all = Vec::new();
        let mut open = vec![dir.to_path_buf()];
        while let Some(dir) = open.pop() {
            for e in fs::read_dir(&dir).unwrap().flatten() {
                let kind = e.file_type().unwrap();
                if kind.is_dir() {
                    open.push(e.path())
                } else if kind.is_file() {
                    all.push(e.path())
                }
            }
        }
        all
    };
    for name in ["rk3588-stock", "rk3588-series"] {
        for file in files(&boards().join(name)) {
            let path = file.strip_prefix(boards().join(name)).unwrap().to_str().unwrap().to_owned();
            Board::of(name).without(&path).ask();
            Board::of(name).set(&path, b"\xff\0\n:,").ask();
        }
    }
}

/// Names and bytes of a tree.
fn digest(dir: &Path) -> String {
    let mut all = String::new();
    let mut open = vec![dir.to_path_buf()];
    while let Some(dir) = open.pop() {
        let mut entries: Vec<_> = fs::read_dir(&dir).unwrap().flatten().map(|e| e.path()).collect();
        entries.sort();
        for e in entries {
            all += &format!("{} {:?}\n", e.display(), fs::read(&e).unwrap_or_default());
            if e.is_dir() && !e.is_symlink() {
                open.push(e);
            }
        }
    }
    all
}
