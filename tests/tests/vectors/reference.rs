//! Task sequences of whole GEMMs: the generator of the reference's sequences gives the recorded
//! ones task by task, and replayed as driver jobs they multiply right.

use crate::Ran;
use crate::json::File;
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::Shape;
use rocket_sim::{Arithmetic, Config};
use rocket_tests::TestBoard;
use rocket_tests::reference::{self, Kind, Residency, Sequence, Share, Waits};

pub fn jobs(file: &File) -> Ran {
    let recorded = Sequence::recorded(&file.value).unwrap_or_else(|e| panic!("{file}: {e}"));
    let kind = Kind::plain(recorded.dtype);
    let (plan, _) = kind.plan(recorded.shape, Residency::Streaming).expect("admitted");
    assert_eq!(plan, recorded.plan, "{file}");
    let built = Sequence::new(recorded.dtype, recorded.shape, plan);
    assert_eq!(built.jobs.len(), recorded.jobs.len(), "{file}: jobs");
    for (j, (built, recorded)) in built.jobs.iter().zip(&recorded.jobs).enumerate() {
        assert_eq!(built.tasks.len(), recorded.tasks.len(), "{file}: tasks of job {j}");
        for (t, (built, recorded)) in built.tasks.iter().zip(&recorded.tasks).enumerate() {
            assert_eq!(built, recorded, "{file}: job {j}, task {t}");
        }
    }
    multiplies(file, recorded.clone());
    Ran::new(format!("jobs {}", recorded.dtype.info().name), recorded.tasks().count())
}

/// The recorded sequence as it stands, against a product in i64.
fn multiplies(file: &File, recorded: Sequence) {
    let Shape { m, k, n } = recorded.shape;
    let (dtype, tasks) = (recorded.dtype, recorded.tasks().count() as u64);
    let (jobs, reused) = (recorded.jobs.len() as u64, reused(&recorded));
    let features = |m: usize, k: usize| ((m * 31 + k * 17 + m * k) % 5) as i8 - 2;
    let weights = |n: usize, k: usize| ((n * 13 + k * 7 + n * k) % 3) as i8 - 1;
    let board =
        TestBoard::new(Config { arithmetic: Arithmetic::Fast, patient: true, ..Config::default() });
    let data = reference::Data { features: &features, weights: &weights };
    let shares = [Share::whole(recorded, Residency::Resident)];
    let product = reference::replay(&board, &shares, Waits::Each, Some(data), || ())
        .unwrap_or_else(|e| panic!("{file}: {e}"))
        .expect("a product of data");
    let a: Vec<i64> = (0..m * k).map(|i| features(i / k, i % k).into()).collect();
    let w: Vec<i64> = (0..n * k).map(|i| weights(i / k, i % k).into()).collect();
    for (i, got) in product.iter().enumerate() {
        let (a, w) = (&a[i / n * k..][..k], &w[i % n * k..][..k]);
        let want: i64 = a.iter().zip(w).map(|(a, w)| a * w).sum();
        assert_eq!(*got, want as f64, "{file}: C[{}, {}]", i / n, i % n);
    }
    let c = board.counters();
    assert_eq!((c.tasks, c.jobs, c.submits), (tasks, jobs, jobs), "{file}");
    assert_eq!(c.macs, (m * k * n) as u64, "{file}");
    // Each tile is loaded once for each of the other side's, but where it is reused.
    let plan = shares[0].sequence.plan;
    let loaded = dtype.info().row_bytes(plan.n_nt * m * k + plan.n_mt * n * k) as u64;
    assert_eq!(c.dma_read_feature + c.dma_read_weight + reused, loaded, "{file}");
    assert_eq!(board.explanations(), [], "{file}");
}

/// Bytes that reuse bits save.
fn reused(s: &Sequence) -> u64 {
    use rocket_runtime::program::Reuse;
    let rows = |t: &reference::Task| match t.reuse {
        Reuse::None => 0,
        Reuse::Data => t.extent.m * t.extent.k,
        Reuse::Weights => t.extent.n * t.extent.k,
    };
    s.tasks().map(|t| s.dtype.info().row_bytes(rows(t)) as u64).sum()
}

/// Nothing of the generator is held to the notes but the recorded dtypes: they must be all that
/// have an entry of their own.
#[test]
fn recorded_dtypes_are_those_compared() {
    let Some(dir) = crate::folder() else {
        println!("no vectors beside this clone: skipped");
        return;
    };
    let mut seen: Vec<DType> = crate::json::files_below(&dir)
        .iter()
        .filter(|f| f.text("schema") == Some("rk3588-jobs/1"))
        .map(|f| Sequence::recorded(&f.value).expect("reads").dtype)
        .collect();
    seen.sort_by_key(|d| *d as usize);
    seen.dedup();
    assert_eq!(seen, [DType::Fp16, DType::Int8, DType::Int4, DType::Bf16, DType::Tf32]);
}
