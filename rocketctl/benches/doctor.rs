//! How long the doctor takes: on a board with everything as it should be (wanted: under 200 ms), and on every board
//! of `tests/boards` one after the other, whose findings between them are the whole catalogue's (under 2 s). Figures
//! are printed, and held to nothing: machines differ.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

fn main() {
    divan::main();
}

fn board(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards").join(name)
}

fn all() -> Vec<PathBuf> {
    let boards = std::fs::read_dir(board("")).expect("tests/boards").flatten();
    boards.map(|e| e.path()).filter(|p| p.is_dir()).collect()
}

/// The program as people start it.
fn ask(words: &[&str], root: &Path) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rocketctl"));
    let status = command.args(words).arg("--root").arg(root).stdout(Stdio::null()).status();
    assert!(status.is_ok_and(|s| s.code().is_some_and(|c| c != 2)), "{words:?}");
}

#[divan::bench]
fn doctor_on_a_healthy_board() {
    ask(&["doctor"], &board("rk3588-series"));
}

#[divan::bench]
fn doctor_on_this_machine() {
    ask(&["doctor"], Path::new("/"));
}

#[divan::bench]
fn detect() {
    ask(&["detect"], &board("rk3588-series"));
}

#[divan::bench(sample_count = 10)]
fn doctor_on_every_board(bencher: divan::Bencher) {
    let boards = all();
    bencher.bench(|| boards.iter().for_each(|board| ask(&["doctor", "--json"], board)));
}
