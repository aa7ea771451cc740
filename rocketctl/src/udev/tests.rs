//! On copies of the boards of `tests/boards`.

use super::check::check;
use super::files::{FILES, RK3576, RULES, TMPFILES, needed, steps};
use crate::change::tests::digest;
use crate::change::{self, End, Options, Plan, UndoOptions};
use crate::doctor::{Board, Report, Status};
use rocket_runtime::board::{Facts, Root};
use std::path::Path;

const YES: Options = Options { dry_run: false, yes: true, emit: None };

fn plan(path: &Path) -> Plan {
    let root = Root::open(path).unwrap();
    let mut plan = Plan::new(super::PLAN, "t", "sudo rocketctl udev remove");
    plan.steps = steps(&root, &Facts::read(&root), false);
    plan
}

fn checked(board: &Board) -> Report {
    let root = Root::open(board.path()).unwrap();
    let report = check(&root, &Facts::read(&root));
    crate::doctor::well_formed(&report);
    report
}

fn status(board: &Board, id: &str) -> Status {
    checked(board).findings.iter().find(|f| f.id == id).unwrap().status
}

#[test]
fn installed_and_taken_away_on_every_board() {
    for name in ["rk3588-stock", "rk3588-series", "rk3576", "rk3588-vendor", "laptop"] {
        let board = Board::of(name);
        let before = digest(board.path());
        let done = change::carry_out(board.path(), &plan(board.path()), &YES, &mut Vec::new());
        assert_eq!(done.unwrap().end, End::Done, "{name}");
        for file in FILES {
            let there = std::fs::read(board.path().join(&file.path[1..]));
            assert_eq!(there.is_ok(), file != RK3576 || name == "rk3576", "{name} {}", file.path);
            assert!(there.is_err() || there.unwrap() == file.text.as_bytes());
        }
        assert!(checked(&board).findings.iter().all(|f| !f.title.contains("not this version")));
        let again = change::carry_out(board.path(), &plan(board.path()), &YES, &mut Vec::new());
        assert_eq!(again.unwrap().end, End::NothingToDo, "{name}");
        let options = UndoOptions { plan: Some("udev".into()), yes: true, ..Default::default() };
        change::undo(board.path(), &options, &mut Vec::new()).unwrap();
        assert_eq!(digest(board.path()), before, "{name}");
    }
}

/// Only the RK3576 needs a file opened to a group, and only that file is.
#[test]
fn what_is_opened_to_a_group() {
    let of = |name: &str| needed(&Facts::read(&Root::open(Board::of(name).path()).unwrap()));
    assert_eq!(of("rk3588-stock"), [RULES, TMPFILES]);
    assert_eq!(of("rk3576"), [RULES, RK3576, TMPFILES]);
    let rules = |text: &str| -> Vec<String> {
        let text = text.replace("\\\n", "");
        text.lines().filter(|l| !l.starts_with('#') && !l.is_empty()).map(str::to_owned).collect()
    };
    assert!(rules(RULES.text).iter().all(|r| !r.contains("RUN")));
    let opening = rules(RK3576.text);
    assert_eq!(opening.len(), 1);
    assert_eq!(opening[0].matches("RUN+=").count(), 2);
    assert_eq!(opening[0].matches("/sys%p/power/autosuspend_delay_ms\"").count(), 2);
    assert!(RK3576.why.contains("opened") && RK3576.text.contains("opened"));
    for file in FILES {
        assert!(super::check::is_ours(&file, file.text.as_bytes()), "{}", file.path);
        assert!(!file.text.contains("power/control") && file.text.ends_with('\n'));
        assert!(file.text.lines().all(|l| l.chars().count() + 4 <= 80), "{}", file.path);
        assert!(super::explain(file.id).unwrap().contains(file.path));
    }
}

/// What is written for another system does not hang on what this one has.
#[test]
fn files_for_another_system() {
    let root = Root::open(Path::new("/")).unwrap();
    let steps = steps(&root, &Facts::read(&root), true);
    assert!(steps.iter().all(|s| s.given.is_none()));
    let said = format!("{steps:?}");
    assert!(said.contains("\"control\", \"--reload\"") && !said.contains("Folder"), "{said}");
}

/// Fields of tmpfiles.d: type, path, mode, user, group, age.
#[test]
fn the_folder_for_counters() {
    let line: Vec<&str> = TMPFILES.text.lines().last().unwrap().split(' ').collect();
    assert_eq!(line, ["d", "/run/rocket", "1777", "root", "root", "-"]);
}

#[test]
fn what_is_there_and_what_is_given() {
    let stock = || Board::of("rk3588-stock");
    let f = &checked(&stock()).findings[0];
    assert_eq!((f.status, f.fix[0].run.as_str()), (Status::Warn, "sudo rocketctl udev install"));
    assert!(f.cause.contains("50 ms") && !f.cause.contains("group"), "{f:?}");
    let closed = stock().set("dev/accel/accel0.stat", "261 0 600 root root");
    assert!(checked(&closed).findings[0].cause.contains("600 root:root"));

    // The series keeps cores on for long enough by itself.
    let series = || Board::of("rk3588-series");
    assert_eq!(status(&series(), "udev.rules"), Status::Note);
    let current = series().set(&RULES.path[1..], RULES.text);
    assert_eq!(status(&current, "udev.rules"), Status::Ok);
    let edited = series().set(&RULES.path[1..], RULES.text.replace("1000", "20"));
    assert_eq!(status(&edited, "udev.rules"), Status::Warn);
    let idle = stock().set(&RULES.path[1..], RULES.text);
    let f = &checked(&idle).findings[0];
    assert!(f.title.contains("not in effect") && f.fix[0].run.contains("trigger"), "{f:?}");

    let unread =
        stock().set("sys/bus/platform/devices/fdab0000.npu/power/autosuspend_delay_ms", "soon");
    assert_eq!(status(&unread, "udev.rules"), Status::Note, "the node is right, the rest unknown");
    assert_eq!(status(&stock(), "udev.counters"), Status::Warn);
    assert_eq!(status(&stock().set("run/rocket/x", ""), "udev.counters"), Status::Note);
    assert_eq!(checked(&Board::of("laptop")).exit, 0, "nothing to need them");
}

/// A package's copy counts, and one in /etc takes its place.
#[test]
fn what_a_package_installed() {
    let packaged = "usr/lib/udev/rules.d/71-rocket-npu.rules";
    let series = || Board::of("rk3588-series").set(packaged, RULES.text);
    let f = &checked(&series()).findings[0];
    assert_eq!((f.status, f.title.contains(packaged)), (Status::Ok, true), "{f:?}");
    let old = Board::of("rk3588-series").set(packaged, RULES.text.replace("1000", "20"));
    let f = &checked(&old).findings[0];
    assert_eq!((f.status, f.title.contains(packaged)), (Status::Warn, true), "{f:?}");
    let masked = series().set(&RULES.path[1..], "");
    let f = &checked(&masked).findings[0];
    assert_eq!((f.status, f.title.contains(RULES.path)), (Status::Warn, true), "{f:?}");
    let counters = series().set("usr/lib/tmpfiles.d/rocket-npu.conf", TMPFILES.text);
    let counters = counters.set("run/rocket/x", "");
    assert_eq!(status(&counters, "udev.counters"), Status::Ok);
}

/// What `setup` installed can be taken away alone, and then what `setup` did otherwise taken back.
#[test]
fn away_with_what_another_run_installed() {
    let board = Board::of("rk3588-series");
    let before = digest(board.path());
    let mut setup = plan(board.path());
    setup.name = "setup";
    change::carry_out(board.path(), &setup, &YES, &mut Vec::new()).unwrap();
    let globals = || crate::ui::Globals {
        root: board.path().to_path_buf(),
        json: false,
        quiet: true,
        color: crate::ui::Color::Never,
    };
    let remove = |force| {
        let how = crate::change::How { yes: true, dry_run: false };
        let command = super::Command::Remove { how, force };
        super::run(super::Arguments { command }, &globals())
    };
    let rule = board.path().join(&RULES.path[1..]);
    std::fs::write(&rule, RULES.text.replace("1000", "300")).unwrap();
    let e = remove(false).unwrap_err().to_string();
    assert!(e.contains("--force") && rule.exists(), "{e}");
    std::fs::write(&rule, "# mine\n").unwrap();
    remove(true).unwrap();
    assert!(rule.exists(), "somebody else's is left alone");
    std::fs::write(&rule, RULES.text).unwrap();
    remove(false).unwrap();
    assert!(!rule.exists() && !board.path().join(&TMPFILES.path[1..]).exists());
    remove(false).unwrap();
    assert!(!rule.exists(), "again is nothing");
    let options = UndoOptions { plan: Some("setup".into()), yes: true, ..Default::default() };
    change::undo(board.path(), &options, &mut Vec::new()).unwrap();
    let files = digest(board.path());
    // What is left is the journal of the removal.
    assert!(files.lines().filter(|l| !l.starts_with("var")).all(|l| before.contains(l)), "{files}");
}
