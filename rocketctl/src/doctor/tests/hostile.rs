//! Boards that are not as anybody expects.

use super::{Board, boards};
use std::fs;
use std::path::{Path, PathBuf};

fn files(dir: &Path) -> Vec<PathBuf> {
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
}

/// A report may be a stranger's: nothing in it becomes a command, and nothing gets to the terminal as it is.
#[test]
fn nothing_of_a_board_is_obeyed() {
    let evil = "x; touch /tmp/owned #\x1b[2J";
    let board = Board::of("rk3588-series")
        .set("sys/devices/system/cpu/cpu4/cpufreq/scaling_governor", evil)
        .set("sys/class/devfreq/dmc/governor", "powersave")
        .set("dev/accel/accel0.stat", "261 0 660 root x;id")
        .set("cmd/id.txt", "uid=1000(a$(id)) gid=1000 groups=1000")
        .set("etc/group", "x;id:x:9:\n")
        .set("boot/vmlinuz-9.9$(touch b)", "")
        .set("lib/modules/9.9$(touch b)/modules.dep", "\n")
        .set("proc/device-tree/model", evil);
    let report = board.ask();
    let fixes = report.findings.iter().flat_map(|f| &f.fix);
    let all: Vec<String> = fixes.flat_map(|f| [f.run.clone(), f.undo.clone()]).collect();
    for bad in ["x; touch", "x;id", "9.9$(touch b)", "a$(id"] {
        let with: Vec<&String> = all.iter().filter(|c| c.contains(bad)).collect();
        assert!(!with.is_empty(), "{bad} is in no command: {all:?}");
        assert!(with.iter().all(|c| c.contains(&format!("'{bad}"))), "{with:?}");
    }
    assert!(!report.text(false, false).contains(|c: char| c.is_control() && c != '\n'));
}

/// Whatever is missing or wrong below the root, there is an answer.
#[test]
fn boards_with_something_missing() {
    let unit = "[Service]\nDevicePolicy=closed\nUser=tom\n";
    for name in ["rk3588-stock", "rk3588-series"] {
        let mut board = Board::of(name).set("etc/systemd/system/x.service", unit);
        for file in files(&boards().join(name)) {
            let path = file.strip_prefix(boards().join(name)).unwrap().to_str().unwrap().to_owned();
            board = board.without(&path);
            board.ask_for("x");
            board = board.set(&path, b"\xff\0\n:,");
            board.ask_for("x");
            board = board.set(&path, fs::read(&file).unwrap());
        }
    }
}
