//! On copies of the boards of `tests/boards`.

use super::*;
use crate::change::tests::digest;
use crate::doctor::Board;
use crate::ui::Color;
use std::fs;

fn on(board: &Board, command: Command) -> Result<ExitCode> {
    let root = board.path().to_path_buf();
    let globals = Globals { root, json: false, quiet: true, color: Color::Never };
    run(Arguments { command }, &globals)
}

const YES: How = How { yes: true, dry_run: false };

fn set_to(board: &Board, rate: &str, keep: bool) -> Result<ExitCode> {
    on(board, Command::Set { rate: rate.into(), keep, how: YES })
}

fn is(code: Result<ExitCode>, want: u8) -> bool {
    format!("{:?}", code.unwrap()) == format!("{:?}", ExitCode::from(want))
}

fn read(board: &Board, path: &str) -> String {
    fs::read_to_string(board.path().join(path)).unwrap()
}

const TOLD: &str = "sys/module/rocket/parameters/rocket_npu_clk_hz";

/// A9: in words, and nothing is written.
#[test]
fn an_unpatched_driver_is_told_nothing() {
    for name in ["rk3588-stock", "rk3588s-nodes-disabled", "laptop"] {
        let board = Board::of(name);
        let before = digest(board.path());
        assert!(is(set_to(&board, "600MHz", false), 1), "{name}");
        assert!(is(set_to(&board, "600MHz", true), 1), "{name}");
        let already = if name == "rk3588-stock" { 0 } else { 1 };
        assert!(is(set_to(&board, "default", true), already), "{name}");
        assert_eq!(digest(board.path()), before, "{name}");
    }
    let why = refusal(Driver::Stock, 600_000_000).unwrap();
    assert!(why.contains("no parameter") && why.contains("hangs the power firmware"), "{why}");
}

#[test]
fn rates_that_are_refused_change_nothing() {
    let board = Board::of("rk3588-series");
    let before = digest(board.path());
    for bad in ["900MHz", "1GHz", "700MHz", "300MHz", "600", "fast", ""] {
        let e = set_to(&board, bad, true).unwrap_err().to_string();
        assert!(e.contains("600MHz"), "what may be: {e}");
    }
    assert_eq!(digest(board.path()), before);
}

#[test]
fn a_patched_driver_is_told_by_its_parameter_alone() {
    let board = Board::of("rk3588-series").set(TOLD, "0\n");
    let before = digest(board.path());
    let dry = Command::Set { rate: "600MHz".into(), keep: true, how: How { dry_run: true, ..YES } };
    assert!(is(on(&board, dry), 0));
    assert_eq!(digest(board.path()), before);
    assert!(is(set_to(&board, "600MHz", false), 0));
    let changed: Vec<String> = digest(board.path())
        .lines()
        .filter(|l| !before.contains(l) && !l.contains("rocketctl"))
        .map(|l| l.split(' ').next().unwrap().to_owned())
        .collect();
    assert_eq!(changed.iter().filter(|c| c.starts_with("sys/")).collect::<Vec<_>>(), [TOLD]);
    assert!(!changed.iter().any(|c| c.contains("debug")), "{changed:?}");
    assert_eq!(read(&board, TOLD), "600000000\n");
    let undo = || Command::Undo { how: YES, force: false };
    on(&board, undo()).unwrap();
    assert_eq!(digest(board.path()), before);
}

#[test]
fn from_the_next_start_on() {
    let kept = &options::FILE[1..];
    let board =
        Board::of("rk3588-series").set(kept, "# mine\noptions rocket rocket_batch_submit=1\n");
    let before = digest(board.path());
    set_to(&board, "600MHz", true).unwrap();
    let text = read(&board, kept);
    assert!(text.starts_with("# mine\noptions rocket rocket_batch_submit=1\n"), "{text}");
    assert_eq!(options::value(&text, PARAMETER), Some("600000000"));
    assert_eq!(self::kept(&Root::open(board.path()).unwrap()).unwrap().1, 600_000_000);
    set_to(&board, "default", true).unwrap();
    assert_eq!(read(&board, kept), "# mine\noptions rocket rocket_batch_submit=1\n");
    assert_eq!(read(&board, TOLD), "0\n");
    on(&board, Command::Undo { how: YES, force: false }).unwrap();
    assert_eq!(digest(board.path()), before);

    let alone = Board::of("rk3588-series");
    set_to(&alone, "600MHz", true).unwrap();
    assert_eq!(read(&alone, kept), "options rocket rocket_npu_clk_hz=600000000\n");
    set_to(&alone, "default", true).unwrap();
    assert!(!alone.path().join(kept).exists(), "nothing of it is left");

    // Where somebody has it elsewhere, that line is changed, so that the two do not disagree.
    let other = Board::of("rk3588-series")
        .set("etc/modprobe.d/npu.conf", "options rocket rocket_npu_clk_hz=0\n");
    set_to(&other, "600MHz", true).unwrap();
    assert!(read(&other, "etc/modprobe.d/npu.conf").contains("600000000"));
    assert!(!other.path().join(kept).exists());
    let packaged = Board::of("rk3588-series")
        .set("usr/lib/modprobe.d/npu.conf", "options rocket rocket_npu_clk_hz=0\n");
    let before = digest(packaged.path());
    let e = set_to(&packaged, "600MHz", true).unwrap_err().to_string();
    assert!(e.contains("/usr/lib/modprobe.d/npu.conf"), "{e}");
    assert_eq!(digest(packaged.path()), before);
    let early = Board::of("rk3588-series").set("etc/initramfs-tools/modules", "x\nrocket\n");
    let root = Root::open(early.path()).unwrap();
    let step = keep_step(&root, &Facts::read(&root), 600_000_000).unwrap();
    let kinds: Vec<String> = step.changes.iter().map(|c| format!("{c:?}")).collect();
    assert!(kinds[0].contains("update-initramfs") && kinds[2].contains("update-initramfs"));
    assert!(kinds[1].starts_with("Edit"), "anew after it, there and back: {kinds:?}");
}

/// Modprobe has no say in what is part of the kernel.
#[test]
fn a_driver_that_is_built_in() {
    let builtin = "lib/modules/7.3.4+deb13-arm64/modules.builtin";
    let board = Board::of("rk3588-series")
        .set(builtin, "kernel/drivers/accel/rocket/rocket.ko\n")
        .set(TOLD, "0\n");
    let before = digest(board.path());
    assert!(is(set_to(&board, "600MHz", true), 1));
    assert_eq!(digest(board.path()), before);
    assert!(is(set_to(&board, "600MHz", false), 0));
}

/// Unknown is not 0, and the exit status says so.
#[test]
fn what_is_known_of_the_clock() {
    let get = |board: &Board| on(board, Command::Get);
    assert!(is(get(&Board::of("rk3588-series")), 0));
    assert!(is(get(&Board::of("rk3588-stock")), 0));
    assert!(is(get(&Board::of("laptop")), 3));
    let of = |board: &Board| driver(&Facts::read(&Root::open(board.path()).unwrap()));
    assert_eq!(of(&Board::of("rk3588-series")), Driver::Patched);
    assert_eq!(of(&Board::of("rk3588-stock")), Driver::Stock);
    assert_eq!(of(&Board::of("laptop")), Driver::Absent);
    assert_eq!(of(&Board::of("rk3588-series").set(TOLD, "fast\n")), Driver::Unknown);
}
