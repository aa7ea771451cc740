//! The committed fuzz corpora, through the bodies that the fuzz targets run.

#![allow(clippy::unwrap_used)]

mod fuzz_bodies;

use std::path::Path;

/// Runs every file of a corpus; says how many were worth running.
fn replay(target: &str, body: fn(&[u8]) -> bool) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target);
    let mut files: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|e| e.unwrap().path()).collect();
    files.sort();
    let ran = files.iter().filter(|path| {
        println!("{}", path.display());
        body(&std::fs::read(path).unwrap())
    });
    ran.count()
}

#[test]
fn programs_to_mutate_are_right() {
    fuzz_bodies::bases_run();
}

#[test]
fn commands() {
    assert!(replay("commands", fuzz_bodies::commands) > 100);
}

#[test]
fn ioctls() {
    assert!(replay("ioctls", fuzz_bodies::ioctls) > 100);
}
