//! What it takes to start with packed weights on disk: 64 MiB that the system has in memory,
//! opened, checked and copied into a buffer, against memcpy of 64 MiB in the same run.
//!
//! `cargo bench -p rocket-runtime --bench store [-- DIRECTORY]`; without a directory, in the
//! folder for temporary files. Nothing here is asserted: a busy machine is slow, not wrong.

use rocket_runtime::store::{Key, Saved, Store, content};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Instant;

const PART: usize = 16 << 20;
const PARTS: usize = 4;
/// Alternating runs; the best of each.
const ROUNDS: usize = 15;

fn seconds(f: impl FnOnce()) -> f64 {
    let start = Instant::now();
    f();
    start.elapsed().as_secs_f64()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let given = std::env::args().skip(1).find(|a| !a.starts_with('-')).map(PathBuf::from);
    let dir = tempfile::tempdir_in(given.unwrap_or_else(std::env::temp_dir))?;
    let store = Store::open(dir.path(), None)?;
    let source: Vec<u8> = (0..PART * PARTS).map(|i| (i * 7 % 251) as u8).collect();
    let mut target = vec![1u8; source.len()];
    let key = Key {
        content: content(&source),
        format: "bench",
        n: PARTS as u64,
        k: PART as u64,
        plan: String::new(),
    };
    let parts: Vec<&[u8]> = source.chunks(PART).collect();
    let mut saved = Saved::Yes;
    let saving = seconds(|| {
        saved = store.save(&key, &parts).unwrap_or_else(|e| Saved::No(e.to_string()));
    });
    if let Saved::No(why) = saved {
        return Err(why.into());
    }
    let (mut copy, mut hash, mut load, mut start) = (f64::MAX, f64::MAX, f64::MAX, f64::MAX);
    let mut found = 0;
    for _ in 0..ROUNDS {
        copy = copy.min(seconds(|| black_box(&mut target).copy_from_slice(black_box(&source))));
        hash = hash.min(seconds(|| {
            black_box(content(black_box(&source)));
        }));
        target.fill(0);
        start = start.min(seconds(|| {
            let begun = Instant::now();
            let Ok(Some(packed)) = store.load(&key) else { return };
            load = load.min(begun.elapsed().as_secs_f64());
            for (to, from) in black_box(&mut target).chunks_mut(PART).zip(packed.parts()) {
                to.copy_from_slice(from);
            }
            found += 1;
        }));
        if found == 0 || target != source {
            return Err("what was loaded is not what was saved".into());
        }
    }
    let line = |what: &str, s: f64| {
        let rate = source.len() as f64 / s / 1e9;
        println!("{what:<28} {:>7.2} ms {rate:>6.2} GB/s {:>6.2} x memcpy", s * 1e3, s / copy);
    };
    line("memcpy of 64 MiB", copy);
    line("xxh3-128 of 64 MiB", hash);
    line("open, map and check", load);
    line("open, map, check and copy", start);
    line("save, synced (once)", saving);
    Ok(())
}
