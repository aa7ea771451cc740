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
