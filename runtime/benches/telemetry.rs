//! What counting costs the host: `cargo bench -p rocket-runtime --bench telemetry`. The bound is
//! 100 ns an op; a copy's cost is paid once in a hundred times itself. Nothing here is asserted: a
//! busy machine is slow, not wrong.

use divan::{Bencher, black_box};
use rocket_runtime::telemetry::{Directory, Place, RowKey, Slot, TotalKind, Writer, read};

fn main() {
    divan::main();
}

const KEY: RowKey<'static> = RowKey {
    place: Place::Npu,
    op: "mul_mat",
    weight: "q4_K",
    k: 4096,
    n: 11008,
    rows: 512,
    outcome: "fp16",
};

/// A writer with as many rows as a large model has, and the totals of one op.
fn writer() -> (tempfile::TempDir, Writer, Vec<Slot>) {
    let dir = tempfile::tempdir_in("/dev/shm").expect("shared memory");
    let w = Writer::create(&[Directory::existing(dir.path())], &[]).expect("counters");
    let slots = w.update(|image| {
        (0..40).for_each(|n| image.count(&RowKey { n, ..KEY }, 1, 2, 3));
        let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
        names.map(|n| image.total(n, "1", TotalKind::Counter)).to_vec()
    });
    (dir, w, slots.expect("own process"))
}

#[divan::bench]
fn a_declined_op(bencher: Bencher<'_, '_>) {
    let (_dir, w, _) = writer();
    bencher.bench_local(|| w.update(|image| image.count(black_box(&KEY), 1, 1 << 30, 0)));
}

/// A row and twelve totals.
#[divan::bench]
fn a_computed_op(bencher: Bencher<'_, '_>) {
    let (_dir, w, slots) = writer();
    bencher.bench_local(|| {
        w.update(|image| {
            image.count(black_box(&KEY), 1, 1 << 30, 1000);
            slots.iter().for_each(|&s| image.add(s, black_box(7)));
        })
    });
}

#[divan::bench]
fn nothing_to_publish(bencher: Bencher<'_, '_>) {
    let (_dir, w, _) = writer();
    w.publish();
    bencher.bench_local(|| w.publish_if_due());
}

#[divan::bench]
fn a_copy(bencher: Bencher<'_, '_>) {
    let (_dir, w, _) = writer();
    bencher.bench_local(|| w.publish());
}

#[divan::bench]
fn a_look(bencher: Bencher<'_, '_>) {
    let (_dir, w, _) = writer();
    w.publish();
    bencher.bench_local(|| read(w.path()));
}
