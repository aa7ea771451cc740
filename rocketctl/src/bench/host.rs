//! What the host does to operands and results, beside a plain copy of as many bytes: on one thread, in a working
//! set beyond the caches.

use super::Spread;
use rocket_runtime::dtype::DType;
use rocket_runtime::kernels::{Bytes, feature, sum_f32, weight_group};
use serde::Serialize;
use std::hint::black_box;
use std::time::Instant;

/// One kind of work.
#[derive(Debug, Serialize)]
pub struct Bandwidth {
    pub what: &'static str,
    /// Bytes that one repetition reads; it writes as many.
    pub bytes: usize,
    pub measured: Spread,
    /// Read, by the median.
    pub gb_per_s: f64,
    pub of_memcpy: f64,
}

/// Rows, and bytes of a row: 16 MiB.
const ROWS: usize = 1024;
const ROW_BYTES: usize = 16 << 10;

/// Measures all of it.
pub fn measure(times: usize) -> Vec<Bandwidth> {
    let bytes = ROWS * ROW_BYTES;
    let source: Vec<u8> = (0..bytes).map(|i| (i * 31) as u8).collect();
    let mut to = vec![0u8; bytes];
    let copy = repeat(times, || to.copy_from_slice(black_box(&source)));
    let rows = |data| Bytes::new(data, ROWS, ROW_BYTES, ROW_BYTES);
    let activations = repeat(times, || feature(rows(black_box(&source)), ROWS, &mut to));
    let group = DType::Fp16.info().n_group;
    let weights = repeat(times, || {
        let packed = to.chunks_exact_mut(group * ROW_BYTES);
        for (part, dst) in black_box(&source).chunks_exact(group * ROW_BYTES).zip(packed) {
            weight_group(Bytes::new(part, group, ROW_BYTES, ROW_BYTES), group, dst);
        }
    });
    drop(to);
    let cube: Vec<f32> = (0..bytes / 4).map(|i| i as f32).collect();
    let mut out = vec![0f32; bytes / 4];
    let unpack = repeat(times, || {
        let mut rows: Vec<&mut [f32]> = out.chunks_exact_mut(ROW_BYTES / 4).collect();
        sum_f32(&[black_box(&cube)], ROWS, &mut rows, None);
    });
    let all = [
        ("memcpy", &copy),
        ("packing activations", &activations),
        ("packing fp16 weights", &weights),
        ("unpacking fp32 results", &unpack),
    ];
    let speed = |s: &Spread| bytes as f64 / s.median_ns.max(1) as f64;
    let Some(base) = copy.as_ref().map(speed) else { return Vec::new() };
    all.into_iter()
        .filter_map(|(what, measured)| {
            let measured = measured.clone()?;
            let gb_per_s = speed(&measured);
            Some(Bandwidth { what, bytes, measured, gb_per_s, of_memcpy: gb_per_s / base })
        })
        .collect()
}

/// Once unmeasured: pages that nobody touched yet cost more.
fn repeat(times: usize, mut work: impl FnMut()) -> Option<Spread> {
    work();
    let one = |_| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as u64
    };
    Spread::of((0..times.clamp(1, 20)).map(one).collect())
}
