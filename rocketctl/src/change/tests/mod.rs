//! Plans on trees: by what the tree is before and after.

mod disk;
mod faults;
mod random;

pub use disk::digest;
pub use faults::survives;

use super::apply::carry_out_on;
use super::place::Place;
use super::undo::undo_on;
use super::*;
use disk::Faulty;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

/// A system with a few files, one of them behind a link.
fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    for folder in ["etc/modprobe.d", "usr/lib", "var/lib", "sys/module/rocket/parameters"] {
        fs::create_dir_all(at(folder)).unwrap();
    }
    symlink("usr/lib", at("lib")).unwrap();
    for (path, bytes, mode) in [
        ("etc/group", "root:x:0:\n", 0o644),
        ("etc/old", "old\n", 0o600),
        ("usr/lib/tool", "\u{1}bytes", 0o755),
        ("sys/module/rocket/parameters/rocket_npu_clk_hz", "0\n", 0o644),
    ] {
        fs::write(at(path), bytes).unwrap();
        fs::set_permissions(at(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    dir
}

/// Every kind of change.
fn plan() -> Plan {
    let more = |old: Option<&str>| {
        let old = old.unwrap_or_default();
        let line = "render:x:105:\n";
        Ok(if old.contains(line) { old.to_owned() } else { format!("{old}{line}") })
    };
    Plan::new("test", "a plan", "rocketctl test --undo")
        .step(
            Step::new("rules", "Rules", "They say who may use the node.")
                .at_undo(&["udevadm", "control", "--reload"])
                .write("/etc/udev/rules.d/71-x.rules", "rule\n", 0o644)
                .write("/etc/udev/rules.d/72-x.rules", "more\n", 0o640)
                .run(&["udevadm", "control", "--reload"], None),
        )
        .step(Step::new("group", "Group", "The node is for it.").edit("/etc/group", more))
        .step(
            Step::new("tool", "Tool", "It is newer.")
                .write("/lib/tool", "new", 0o755)
                .write("/lib/rocket/plugin.so", vec![0; 5000], 0o644)
                .remove("/etc/old")
                .folder("/run/rocket", 0o1777),
        )
        .step(
            Step::new("clock", "Clock", "It is faster.")
                .set("/sys/module/rocket/parameters/rocket_npu_clk_hz", "600000000"),
        )
}

const YES: Options = Options { dry_run: false, yes: true, emit: None };

fn undo_yes() -> UndoOptions {
    UndoOptions { plan: Some("test".into()), yes: true, ..UndoOptions::default() }
}

fn apply(root: &Path, plan: &Plan) -> Result<Outcome> {
    carry_out(root, plan, &YES, &mut Vec::new())
}

/// As from a rescue system, without waiting for the disk.
fn back(root: &Path) {
    let place = Place::new(root).unwrap();
    let all = UndoOptions { plan: None, ..undo_yes() };
    undo_on(&mut Faulty::sound(), &place, &all, &mut Vec::new()).unwrap();
}

#[test]
fn there_and_back() {
    let dir = tree();
    let before = digest(dir.path());
    let done = apply(dir.path(), &plan()).unwrap();
    assert_eq!((done.end, done.exit()), (End::Done, 0));
    assert_eq!(done.commands, ["udevadm control --reload"], "for when that system runs");
    let read = |p: &str| fs::read_to_string(dir.path().join(p)).unwrap();
    assert_eq!(read("etc/udev/rules.d/71-x.rules"), "rule\n");
    assert_eq!(read("etc/group"), "root:x:0:\nrender:x:105:\n");
    assert_eq!(read("usr/lib/tool"), "new");
    assert!(!dir.path().join("etc/old").exists());
    assert_eq!(read("sys/module/rocket/parameters/rocket_npu_clk_hz"), "600000000\n");
    let mode = |p: &str| fs::metadata(dir.path().join(p)).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode("etc/udev/rules.d/72-x.rules"), mode("run/rocket")), (0o640, 0o1777));
    assert_eq!(mode("var/lib/rocketctl/journal"), 0o700);

    let between = digest(dir.path());
    assert_eq!(apply(dir.path(), &plan()).unwrap().end, End::NothingToDo);
    assert_eq!(digest(dir.path()), between, "again is nothing");

    let undone = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!((undone.runs, undone.left.len()), (1, 0));
    assert_eq!(digest(dir.path()), before);
    let again = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!((again.runs, digest(dir.path())), (0, before));
}

/// Also on a root that has no folder for the journal.
#[test]
fn a_bare_root() {
    let dir = tempfile::tempdir().unwrap();
    let plan =
        Plan::new("test", "t", "u").step(Step::new("a", "A", "a").write("/x/y/z", "z", 0o600));
    assert_eq!(apply(dir.path(), &plan).unwrap().end, End::Done);
    assert!(dir.path().join("x/y/z").exists());
    undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!(digest(dir.path()), "");
}

#[test]
fn looking_changes_nothing() {
    let dir = tree();
    let before = digest(dir.path());
    let mut said = Vec::new();
    let dry = Options { dry_run: true, ..YES };
    let shown = carry_out(dir.path(), &plan(), &dry, &mut said).unwrap();
    assert_eq!((shown.end, digest(dir.path())), (End::DryRun, before.clone()));
    let said = String::from_utf8(said).unwrap();
    assert!(said.lines().all(|l| l.chars().count() <= 80), "{said}");
    for line in [
        "write /etc/udev/rules.d/71-x.rules (5 bytes, mode 644)",
        "later: udevadm control --reload",
        "edit /etc/group",
        "remove /etc/old",
        "set /sys/module/rocket/parameters/rocket_npu_clk_hz to 600000000",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    apply(dir.path(), &plan()).unwrap();
    let between = digest(dir.path());
    let dry = UndoOptions { dry_run: true, ..undo_yes() };
    let mut said = Vec::new();
    assert!(undo(dir.path(), &dry, &mut said).unwrap().shown_only);
    assert_eq!(digest(dir.path()), between);
    assert!(String::from_utf8(said).unwrap().contains("bring back /usr/lib/tool"));
}

#[test]
fn a_folder_in_place_of_the_system() {
    let (dir, out) = (tree(), tempfile::tempdir().unwrap());
    let before = digest(dir.path());
    let emit = Options { emit: Some(out.path().join("new")), ..YES };
    assert_eq!(carry_out(dir.path(), &plan(), &emit, &mut Vec::new()).unwrap().end, End::Emitted);
    assert_eq!(digest(dir.path()), before);
    let read = |p: &str| fs::read_to_string(out.path().join("new").join(p)).unwrap();
    assert_eq!(read("files/etc/udev/rules.d/71-x.rules"), "rule\n");
    assert_eq!(read("files/usr/lib/tool"), "new");
    let readme = read("README");
    for line in ["    udevadm control --reload", "    rm /etc/old", "(mode 640)"] {
        assert!(readme.contains(line), "{line} in {readme}");
    }
    let again = carry_out(dir.path(), &plan(), &emit, &mut Vec::new()).unwrap_err();
    assert!(again.to_string().contains("not empty"), "{again}");
}

/// What somebody changed since is theirs, unless they say otherwise.
#[test]
fn what_was_changed_since() {
    for (path, change) in
        [("etc/group", "root:x:0:\ntom:x:1000:\n"), ("etc/udev/rules.d/71-x.rules", "edited\n")]
    {
        let dir = tree();
        let before = digest(dir.path());
        apply(dir.path(), &plan()).unwrap();
        fs::write(dir.path().join(path), change).unwrap();
        let between = digest(dir.path());
        let e = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap_err().to_string();
        assert!(e.contains(&format!("/{path}")) && e.contains("--force"), "{e}");
        assert!(path != "etc/group" || e.contains("/var/lib/rocketctl/journal/0001.d/"), "{e}");
        assert_eq!(digest(dir.path()), between, "all or nothing");
        let force = UndoOptions { force: true, ..undo_yes() };
        undo(dir.path(), &force, &mut Vec::new()).unwrap();
        assert_eq!(digest(dir.path()), before);
    }
    let dir = tree();
    apply(dir.path(), &plan()).unwrap();
    let rule = dir.path().join("etc/udev/rules.d/71-x.rules");
    fs::set_permissions(&rule, fs::Permissions::from_mode(0o600)).unwrap();
    let e = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("71-x.rules"), "a mode is a change as well: {e}");
}

/// Links that were put there since lead to nobody's files.
#[test]
fn links_that_came_since() {
    let (dir, outside) = (tree(), tempfile::tempdir().unwrap());
    let before = digest(dir.path());
    apply(dir.path(), &plan()).unwrap();
    let theirs = outside.path().join("71-x.rules");
    fs::write(&theirs, "rule\n").unwrap();
    let rule = dir.path().join("etc/udev/rules.d/71-x.rules");
    fs::remove_file(&rule).unwrap();
    symlink(&theirs, &rule).unwrap();
    let e = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("71-x.rules (there was no such file)"), "{e}");
    let force = UndoOptions { force: true, ..undo_yes() };
    undo(dir.path(), &force, &mut Vec::new()).unwrap();
    assert_eq!((digest(dir.path()), theirs.exists()), (before, true));

    apply(dir.path(), &plan()).unwrap();
    fs::remove_dir_all(dir.path().join("etc/udev/rules.d")).unwrap();
    symlink(outside.path(), dir.path().join("etc/udev/rules.d")).unwrap();
    let e = undo(dir.path(), &force, &mut Vec::new()).unwrap_err().to_string();
    assert!(e.contains("/etc/udev/rules.d leads elsewhere"), "{e}");
    assert!(theirs.exists());
}

/// Somebody's file in a folder of ours keeps the folder; a parameter by somebody else keeps its value.
#[test]
fn what_others_put_there_stays() {
    let dir = tree();
    apply(dir.path(), &plan()).unwrap();
    fs::write(dir.path().join("etc/udev/rules.d/99-own.rules"), "own").unwrap();
    let clock = dir.path().join("sys/module/rocket/parameters/rocket_npu_clk_hz");
    fs::write(&clock, "400000000\n").unwrap();
    let undone = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    assert!(undone.left.iter().any(|l| l.starts_with("/etc/udev/rules.d: ")), "{undone:?}");
    assert!(undone.left.iter().any(|l| l.contains("it is 400000000 by now")), "{undone:?}");
    assert!(dir.path().join("etc/udev/rules.d/99-own.rules").exists());
    assert!(!dir.path().join("etc/udev/rules.d/71-x.rules").exists());
}

/// Two runs over one file, of one plan and of two.
#[test]
fn several_runs() {
    let write = |name, text: &str| {
        Plan::new(name, "t", "u").step(Step::new("a", "A", "a").write("/etc/old", text, 0o600))
    };
    let dir = tree();
    let before = digest(dir.path());
    apply(dir.path(), &write("test", "1")).unwrap();
    apply(dir.path(), &write("test", "2")).unwrap();
    apply(dir.path(), &write("test", "1")).unwrap();
    assert_eq!(undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap().runs, 3);
    assert_eq!(digest(dir.path()), before);
    apply(dir.path(), &write("test", "1")).unwrap();
    apply(dir.path(), &write("other", "2")).unwrap();
    let e = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap_err();
    assert!(e.to_string().contains("/etc/old"), "the other plan's: {e}");
    let other = UndoOptions { plan: Some("other".into()), ..undo_yes() };
    assert_eq!(undo(dir.path(), &other, &mut Vec::new()).unwrap().runs, 1);
    assert_eq!(undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap().runs, 1);
    assert_eq!(digest(dir.path()), before);
}

/// A plan that fails of itself, and a disk that fails as it is taken back: what is half way is nobody else's.
#[test]
fn what_is_half_taken_back() {
    let plan = || {
        Plan::new("test", "t", "u").step(
            Step::new("a", "A", "a")
                .write("/etc/a", "1", 0o600)
                .write("/etc/new/deep/d", "2", 0o600)
                .write("/etc/new/deep/d", "3", 0o755)
                .remove("/etc/a")
                .write("/etc/a", [128], 0o600)
                .edit("/etc/a", |old| Ok(old.unwrap_or_default().to_owned())),
        )
    };
    for at in 1.. {
        let dir = tree();
        let before = digest(dir.path());
        let place = Place::new(dir.path()).unwrap();
        let mut disk = Faulty::new(at, disk::Fault::Fail);
        let e = carry_out_on(&mut disk, &place, &plan(), &YES, &mut Vec::new()).unwrap_err();
        back(dir.path());
        assert_eq!(digest(dir.path()), before, "{at}: {e:#}");
        if disk.count < at {
            assert!(format!("{e:#}").contains("is no text") && at > 60, "{at}: {e:#}");
            break;
        }
    }
}

/// On the live system commands run, in their order, and are taken back after the files.
#[test]
fn commands_of_the_live_system() {
    let dir = tree();
    let before = digest(dir.path());
    let place = Place::as_if_live(dir.path());
    let plan = || {
        plan().step(
            Step::new("module", "Module", "m")
                .run(&["groupadd", "render"], Some(&["groupdel", "render"]))
                .run(&["modprobe", "rocket"], None),
        )
    };
    let mut disk = Faulty::sound();
    carry_out_on(&mut disk, &place, &plan(), &YES, &mut Vec::new()).unwrap();
    assert_eq!(disk.ran, ["udevadm control --reload", "groupadd render", "modprobe rocket"]);
    let mut disk = Faulty::sound();
    let undone = undo_on(&mut disk, &place, &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!(disk.ran, ["groupdel render", "udevadm control --reload"]);
    assert_eq!(undone.left, [""; 0]);
    assert_eq!(digest(dir.path()), before);

    let mut disk = Faulty::sound();
    disk.fails = Some("groupadd");
    let e = carry_out_on(&mut disk, &place, &plan(), &YES, &mut Vec::new()).unwrap_err();
    assert!(format!("{e:#}").contains("the system is as it was: step module: groupadd"), "{e:#}");
    assert_eq!(digest(dir.path()), before);
    assert_eq!(disk.ran.last().unwrap(), "udevadm control --reload", "after the rules are gone");

    carry_out_on(&mut Faulty::sound(), &place, &plan(), &YES, &mut Vec::new()).unwrap();
    let mut disk = Faulty::sound();
    disk.fails = Some("groupdel");
    let undone = undo_on(&mut disk, &place, &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!((undone.failed.len(), undone.exit()), (1, 1));
    assert_eq!(digest(dir.path()), before, "all but the group");

    // The same from a rescue system: its files at once, its commands later.
    carry_out_on(&mut Faulty::sound(), &place, &plan(), &YES, &mut Vec::new()).unwrap();
    let undone = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    assert_eq!(undone.commands, ["groupdel render", "udevadm control --reload"]);
    assert_eq!(digest(dir.path()), before);
}

#[test]
fn what_stands_in_the_way() {
    let dir = tree();
    let before = digest(dir.path());
    let blocked = || Step::new("no", "No", "n").given(State::Cannot("no headers".into()));
    let must = plan().step(blocked());
    let outcome = apply(dir.path(), &must).unwrap();
    assert_eq!((outcome.end, outcome.exit()), (End::Blocked, 1));
    assert_eq!(digest(dir.path()), before);
    assert_eq!(apply(dir.path(), &plan().step(blocked().optional())).unwrap().end, End::Done);
    undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap();
    let odd = Plan::new("test", "t", "u").step(Step::new("a", "A", "a").write("/etc", "x", 0o644));
    let outcome = apply(dir.path(), &odd).unwrap();
    assert_eq!(outcome.steps[0].was, State::Cannot("/etc is no file".into()));
    let below =
        Plan::new("test", "t", "u").step(Step::new("a", "A", "a").write("/etc/old/x", "x", 0o644));
    let e = apply(dir.path(), &below);
    assert!(e.is_err() || e.unwrap().end == End::Blocked);
    assert_eq!(digest(dir.path()), before);
}

#[test]
fn two_at_once() {
    let dir = tree();
    let place = Place::new(dir.path()).unwrap();
    apply(dir.path(), &plan()).unwrap();
    let held = runs::Runs::open(&mut disk::Faulty::sound(), &place, true).unwrap();
    let e = undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap_err();
    assert!(e.to_string().contains("another rocketctl"), "{e}");
    drop(held);
    assert_eq!(undo(dir.path(), &undo_yes(), &mut Vec::new()).unwrap().runs, 1);
}

#[test]
fn journals_that_are_none() {
    let begin =
        r#"{"record":"begin","schema":1,"version":"0","plan":"p","undo":"u","time":1,"made":[]}"#;
    let parse = |text: &str| journal::parse(text.as_bytes());
    assert_eq!(parse("").unwrap(), None);
    assert_eq!(parse(&begin[..40]).unwrap(), None, "cut in its first line");
    assert!(!parse(&format!("{begin}\n")).unwrap().unwrap().ended);
    let folder = |n: u32, path: &str| {
        format!(r#"{{"record":"do","n":{n},"step":"s","kind":"folder","path":"{path}"}}"#)
    };
    let with = |lines: &[String]| parse(&format!("{begin}\n{}\n", lines.join("\n")));
    assert_eq!(with(&[folder(1, "/a")]).unwrap().unwrap().deeds.len(), 1);
    let end = r#"{"record":"end"}"#.to_owned();
    assert!(with(std::slice::from_ref(&end)).unwrap().unwrap().ended);
    for bad in [
        vec![folder(2, "/a")],
        vec![folder(1, "/a/../../etc")],
        vec![folder(1, "a")],
        vec![end.clone(), folder(1, "/a")],
        vec![begin.to_owned()],
        vec!["{".to_owned()],
        vec![String::new()],
    ] {
        assert!(with(&bad).is_err(), "{bad:?}");
    }
    let newer = parse(&begin.replace("\"schema\":1", "\"schema\":9")).unwrap();
    assert_eq!(newer, None, "no line end");
    let newer = parse(&(begin.replace("\"schema\":1", "\"schema\":9") + "\n")).unwrap_err();
    assert!(newer.contains("schema 9"), "{newer}");
    assert!(journal::parse(&vec![b'\n'; 5 << 20]).is_err(), "too long");
}
