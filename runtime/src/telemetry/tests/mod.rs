//! What a tool sees of a writer, whatever happens to either.

mod files;
mod form;
mod noise;
mod processes;
mod trouble;

use super::layout::{self as l, header};
use super::*;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

const KEY: RowKey<'static> = RowKey {
    place: Place::Npu,
    op: "mul_mat",
    weight: "q4_K",
    k: 576,
    n: 1536,
    rows: 300,
    outcome: "fp16",
};

fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

fn writer(dir: &Path) -> Writer {
    Writer::create(&[Directory::existing(dir)], &[("host", "0.27.0")]).unwrap()
}

/// The only finished file of a folder.
fn only(dir: &Path) -> PathBuf {
    let found = scan(&[dir.to_owned()]);
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].path.clone()
}

/// Counts one call whose figures all say the same number.
fn step(w: &Writer, number: u64) {
    w.update(|image| {
        image.count(&KEY, 1, 3, 5);
        let total = image.total("steps", "1", TotalKind::Counter);
        image.add(total, 1);
        image.event(number, "step", &number.to_string());
    })
    .unwrap();
}

/// Checks that everything in a copy belongs together; the steps in it.
fn steps(s: &Snapshot) -> u64 {
    let n = s.total("steps").unwrap_or(0);
    match s.rows.as_slice() {
        [] => assert_eq!(n, 0),
        [row] => assert_eq!((row.calls, row.macs, row.ns), (n, 3 * n, 5 * n)),
        rows => panic!("{rows:?}"),
    }
    assert_eq!(s.events.last().map_or(0, |e| e.number), n);
    n
}

/// Makes a changed copy whole again.
fn seal(bytes: &mut [u8]) {
    let used = l::u32_at(bytes, header::USED) as usize;
    let sum = l::checksum(&bytes[..used.clamp(l::HEADER, bytes.len())]);
    l::put_u64(bytes, header::CHECKSUM, sum);
}
