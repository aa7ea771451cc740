//! Every format against products of its own arithmetic, computed here: integers in i64, floats in
//! f64 with bounds derived from K and the accumulation scheme.

use crate::{Stream, board, open};
use half::{bf16, f16};
use proptest::prelude::*;
use rocket_runtime::matmul::{
    Bf16, Float, Fp16, Int4, Int8, Integer, Matrix, Npu, Operand, Rows, Scales, Summation, Tf32,
};
use rocket_runtime::plan::Shape;

/// Sizes on, beside and far from every grid.
fn shapes() -> impl Strategy<Value = Shape> {
    let m = prop_oneof![Just(1), 1usize..40, prop::sample::select(vec![255, 256, 257, 300])];
    let k = prop_oneof![1usize..900, prop::sample::select(vec![31, 32, 33, 511, 512, 513, 1055])];
    let n = prop_oneof![Just(1), 1usize..200, prop::sample::select(vec![63, 64, 65, 257])];
    (m, k, n).prop_map(|(m, k, n)| Shape { m, k, n })
}

fn config() -> ProptestConfig {
    ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() }
}

impl Stream {
    /// Codes of `low..=high`, its ends often: that is where sums are largest.
    fn codes(&mut self, len: usize, low: i8, high: i8) -> Vec<i8> {
        let span = (i16::from(high) - i16::from(low) + 1) as u64;
        let one = |s: &mut Stream| match s.draw() % 4 {
            0 => low,
            1 => high,
            _ => (i16::from(low) + (s.draw() % span) as i16) as i8,
        };
        (0..len).map(|_| one(self)).collect()
    }

    fn scales(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| (self.draw() % 1000 + 1) as f32 / 8192.0).collect()
    }

    fn floats(&mut self, len: usize) -> Vec<f32> {
        (0..len)
            .map(|_| {
                let x = (self.draw() >> 40) as f32 / (1 << 24) as f32 * 2.0 - 1.0;
                x * x * x
            })
            .collect()
    }
}

fn operand<'a, F: Integer>(
    npu: &Npu,
    format: F,
    rows: &'a Rows<'a, i8>,
    keep: &'a mut Option<rocket_runtime::matmul::Resident<F>>,
    resident: bool,
) -> Operand<'a, F> {
    match resident {
        true => Operand::Resident(keep.insert(npu.pack(format, rows).expect("packs"))),
        false => Operand::Stream(format, rows),
    }
}

/// The product in i64, of the channels `from..to`.
fn exact(a: &[i8], w: &[i8], s: Shape, i: usize, j: usize, from: usize, to: usize) -> i64 {
    let (a, w) = (&a[i * s.k..][from..to], &w[j * s.k..][from..to]);
    a.iter().zip(w).map(|(x, y)| i64::from(*x) * i64::from(*y)).sum()
}

fn integers<F: Integer>(format: F, s: Shape, low: i8, high: i8, workers: usize, resident: bool) {
    let mut stream = Stream::new((s.m * 7 + s.k * 3 + s.n) as u64);
    let (a, w) = (stream.codes(s.m * s.k, low, high), stream.codes(s.n * s.k, low, high));
    let npu = open(&board(), workers);
    let (rows, mut keep) = (Rows::new(&w, s.n, s.k), None);
    let w_op = operand(&npu, format, &rows, &mut keep, resident);
    let a_op = Matrix::new(&a, s.m, s.k, s.k);
    let mut c = vec![i32::MIN; s.m * s.n];
    let stats = npu.gemm_exact(a_op, w_op, &mut c).expect("runs");
    assert_eq!(stats.executed_macs - stats.padding_macs, s.macs());
    for (x, ours) in c.iter().enumerate() {
        let want = exact(&a, &w, s, x / s.n, x % s.n, 0, s.k);
        assert_eq!(i64::from(*ours), want, "element {x} of {s:?}");
    }

    // The same with scales, group by group: the order and the roundings that are promised.
    let len = format.group().unwrap_or(s.k);
    let groups = s.k.div_ceil(len);
    let (sa, sw) = (stream.scales(groups * s.m), stream.scales(groups * s.n));
    let mut c = vec![f32::NAN; s.m * s.n];
    npu.gemm_scaled(a_op, w_op, Scales { rows: &sa, columns: &sw }, &mut c).expect("runs");
    for (x, ours) in c.iter().enumerate() {
        let (i, j) = (x / s.n, x % s.n);
        let mut want = None;
        for g in 0..groups {
            let sum = exact(&a, &w, s, i, j, g * len, ((g + 1) * len).min(s.k));
            let term = (sa[g * s.m + i] * sw[g * s.n + j]) * sum as f32;
            want = Some(want.map_or(term, |c: f32| c + term));
        }
        assert_eq!(Some(*ours), want, "scaled element {x} of {s:?}");
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn int8_is_exact(s in shapes(), workers in 1usize..4, resident: bool, group in 0usize..5) {
        let group = (group > 0).then_some(group * 64);
        integers(Int8 { group }, s, -128, 127, workers, resident);
    }

    #[test]
    fn int4_is_exact(s in shapes(), workers in 1usize..4, resident: bool, full: bool, group in 0usize..5) {
        let group = (group > 0).then_some(group * 64);
        let low = if full { -8 } else { -7 };
        integers(Int4 { full, group }, s, low, 7, workers, resident);
    }

    #[test]
    fn int16_is_exact(s in shapes(), workers in 1usize..4, resident: bool, seed: u64) {
        let mut stream = Stream::new(seed);
        let mut values = |len: usize| -> Vec<i16> {
            let one = |s: &mut Stream| match s.draw() % 8 {
                0 => i16::MIN,
                1 => 32_639,
                2 => 127,
                3 => 128,
                _ => (s.draw() as i16).min(32_639),
            };
            (0..len).map(|_| one(&mut stream)).collect()
        };
        let (a, w) = (values(s.m * s.k), values(s.n * s.k));
        let npu = open(&board(), workers);
        let (rows, mut c) = (Rows::new(&w, s.n, s.k), vec![i64::MIN; s.m * s.n]);
        let a_op = Matrix::new(&a, s.m, s.k, s.k);
        match resident {
            true => npu.gemm_i16(a_op, &npu.pack_i16(&rows).expect("packs"), &mut c).expect("runs"),
            false => npu.gemm_i16_streamed(a_op, &rows, &mut c).expect("runs"),
        };
        for (x, ours) in c.iter().enumerate() {
            let (a, w) = (&a[x / s.n * s.k..][..s.k], &w[x % s.n * s.k..][..s.k]);
            let want: i64 = a.iter().zip(w).map(|(x, y)| i64::from(*x) * i64::from(*y)).sum();
            prop_assert_eq!(*ours, want, "element {} of {:?}", x, s);
        }
    }

    #[test]
    fn bf16_is_within_its_bound(s in shapes(), workers in 1usize..4, resident: bool, seed: u64) {
        let mut stream = Stream::new(seed);
        let mut values =
            |len| stream.floats(len).into_iter().map(bf16::from_f32).collect::<Vec<_>>();
        let (a, w) = (values(s.m * s.k), values(s.n * s.k));
        floats(Bf16, s, &a, &w, workers, resident, bf16::to_f64);
    }

    /// The low 13 bits of the operands do not count (npu-rk3588 5.2).
    #[test]
    fn tf32_is_within_its_bound(s in shapes(), workers in 1usize..4, resident: bool, seed: u64) {
        let mut stream = Stream::new(seed);
        let (a, w) = (stream.floats(s.m * s.k), stream.floats(s.n * s.k));
        let short = |x: f32| f64::from(f32::from_bits(x.to_bits() & !0x1fff));
        floats(Tf32, s, &a, &w, workers, resident, short);
    }
}

/// A K step ends in one rounding to fp32 and, as the accumulation inside it is not known, as many
/// more as it has channels; the host adds the steps in f64 and rounds once. With u = 2^-24 and
/// S = sum of |a w|: |error| <= (K + 2) u S, the products themselves being exact.
fn bound(k: usize, magnitude: f64) -> f64 {
    (k as f64 + 2.0) * magnitude / (1u64 << 24) as f64
}

fn floats<F: Float>(
    format: F,
    s: Shape,
    a: &[F::Element],
    w: &[F::Element],
    workers: usize,
    resident: bool,
    value: impl Fn(F::Element) -> f64,
) -> f64
where
    F::Element: Copy,
{
    let npu = open(&board(), workers);
    let rows = Rows::new(w, s.n, s.k);
    let mut c = vec![f32::NAN; s.m * s.n];
    let a_op = Matrix::new(a, s.m, s.k, s.k);
    match resident {
        true => {
            let w = npu.pack(format, &rows).expect("packs");
            npu.gemm_float(a_op, Operand::Resident(&w), &mut c, None).expect("runs")
        }
        false => npu.gemm_float(a_op, Operand::Stream(format, &rows), &mut c, None).expect("runs"),
    };
    // The control: the same product without its last channel.
    let mut caught = 0;
    for (x, ours) in c.iter().enumerate() {
        let (a, w) = (&a[x / s.n * s.k..][..s.k], &w[x % s.n * s.k..][..s.k]);
        let products: Vec<f64> = a.iter().zip(w).map(|(x, y)| value(*x) * value(*y)).collect();
        let sum: f64 = products.iter().sum();
        let bound = bound(s.k, products.iter().map(|p| p.abs()).sum());
        let err = (f64::from(*ours) - sum).abs();
        assert!(err <= bound, "element {x} of {s:?}: off by {err:e}, bound {bound:e}");
        caught += usize::from((products[s.k - 1]).abs() > bound);
    }
    let share = caught as f64 / c.len() as f64;
    println!("{s:?}: without its last channel {share:.2} of the elements leave the bound");
    share
}

/// Most elements leave the bound when a channel is left out: it is not slack.
#[test]
fn the_bounds_of_floats_catch_a_dropped_channel() {
    let s = Shape { m: 30, k: 577, n: 31 };
    let mut stream = Stream::new(2);
    let (a, w) = (stream.floats(s.m * s.k), stream.floats(s.n * s.k));
    let short = |x: f32| f64::from(f32::from_bits(x.to_bits() & !0x1fff));
    assert!(floats(Tf32, s, &a, &w, 1, true, short) > 0.3);
    let halves = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
    assert!(floats(Bf16, s, &halves(&a), &halves(&w), 1, true, bf16::to_f64) > 0.3);
}

/// Codes at the ends of their range over a deep K: the largest sums there are.
#[test]
fn the_largest_sums_are_exact() {
    for (k, resident) in [511, 512, 640, 668, 672, 16_384].map(|k| [(k, false), (k, true)]).concat()
    {
        let s = Shape { m: 4, k, n: 3 };
        let npu = open(&board(), 1);
        for (full, x, y) in [(true, -8i8, -8i8), (true, -8, 7), (false, 7, 7), (false, -7, 7)] {
            let (a, w) = (vec![x; s.m * k], vec![y; s.n * k]);
            let rows = Rows::new(&w, s.n, k);
            let mut c = vec![0; s.m * s.n];
            let (format, mut keep) = (Int4 { full, group: None }, None);
            let w_op = operand(&npu, format, &rows, &mut keep, resident);
            npu.gemm_exact(Matrix::new(&a, s.m, k, k), w_op, &mut c).expect("runs");
            assert_eq!(c, vec![i32::from(x) * i32::from(y) * k as i32; s.m * s.n], "{full} {k}");
        }
        let (a, w) = (vec![-128i8; s.m * k], vec![-128i8; s.n * k]);
        let rows = Rows::new(&w, s.n, k);
        let mut c = vec![0; s.m * s.n];
        let mut keep = None;
        let w_op = operand(&npu, Int8::default(), &rows, &mut keep, resident);
        npu.gemm_exact(Matrix::new(&a, s.m, k, k), w_op, &mut c).expect("runs");
        assert_eq!(c, vec![16_384 * k as i32; s.m * s.n]);
    }
}

/// A deep K and a tall N, resident and streamed.
#[test]
fn deep_and_tall_products_are_exact() {
    for s in [Shape { m: 5, k: 16_384, n: 40 }, Shape { m: 3, k: 40, n: 262_144 }] {
        for resident in [false, true] {
            integers(Int8::default(), s, -128, 127, 2, resident);
            integers(Int4 { full: true, group: None }, s, -8, 7, 2, resident);
        }
    }
}

/// Rows of one pack serve every number of rows.
#[test]
fn one_pack_serves_every_m() {
    let (k, n) = (1055, 130);
    let mut stream = Stream::new(3);
    let w = stream.codes(n * k, -128, 127);
    let npu = open(&board(), 2);
    let packed = npu.pack(Int8::default(), &Rows::new(&w, n, k)).expect("packs");
    for m in [1, 4, 12, 31, 64, 256, 257, 700] {
        let a = stream.codes(m * k, -128, 127);
        let mut c = vec![0; m * n];
        npu.gemm_exact(Matrix::new(&a, m, k, k), Operand::Resident(&packed), &mut c).expect("runs");
        let s = Shape { m, k, n };
        for (x, ours) in c.iter().enumerate() {
            assert_eq!(i64::from(*ours), exact(&a, &w, s, x / n, x % n, 0, k), "{s:?}");
        }
    }
}

/// What cannot be right is refused before anything runs, in words that say what would do.
#[test]
fn what_cannot_be_right_is_refused() {
    let npu = open(&board(), 1);
    let codes = [8i8; 64];
    let rows = Rows::new(&codes, 1, 64);
    let a = Matrix::new(&codes[..], 1, 64, 64);
    let (mut exact, mut scaled) = (vec![0i32; 1], vec![0f32; 1]);
    let int4 = Int4 { full: true, group: None };
    let words = npu.pack(int4, &rows).expect_err("8 is no nibble").to_string();
    assert!(words.contains("-8..=7") && words.contains("row 0"), "{words}");
    let ones = [1i8; 64];
    let good = Rows::new(&ones, 1, 64);
    let words = npu.gemm_exact(a, Operand::Stream(int4, &good), &mut exact).expect_err("8 in A");
    assert!(words.to_string().contains("activation row 0"), "{words}");
    let seven = Int4 { full: false, group: None };
    let eights = [-8i8; 64];
    let low = Rows::new(&eights, 1, 64);
    assert!(npu.gemm_exact(a, Operand::Stream(seven, &low), &mut exact).is_err());

    let group = Int8 { group: Some(40) };
    let words = npu.pack(group, &good).expect_err("no weight blocks").to_string();
    assert!(words.contains("multiple of 32"), "{words}");
    let scales = Scales { rows: &[1.0], columns: &[1.0, 1.0] };
    let int8 = Operand::Stream(Int8::default(), &good);
    let words = npu.gemm_scaled(a, int8, scales, &mut scaled).expect_err("two scales").to_string();
    assert!(words.contains("scales"), "{words}");

    let k = 131_072;
    let long = vec![1i8; k];
    let rows = Rows::new(&long, 1, k);
    let operand = Operand::Stream(Int8::default(), &rows);
    let words = npu.gemm_exact(Matrix::new(&long, 1, k, k), operand, &mut exact).expect_err("long");
    assert!(
        words.to_string().contains("131071") && words.to_string().contains("groups"),
        "{words}"
    );
}

/// Weights packed for few rows, in K steps so long that two tiles of twelve rows may not fit: every
/// M still runs.
#[test]
fn weights_packed_for_few_rows_serve_every_m() {
    let (k, n) = (30_000, 16);
    let mut stream = Stream::new(5);
    let w = stream.integers(n * k, 1);
    let npu = open(&board(), 1);
    for rows in [1, 12, 40] {
        let packed = npu.pack_for(rows, Fp16, &Rows::new(&w, n, k)).expect("packs");
        for m in (1..30).step_by(3).chain([20, 257]) {
            // One channel in a hundred, so that every sum is exact in fp16.
            let a: Vec<f16> = stream
                .integers(m * k, 1)
                .into_iter()
                .enumerate()
                .map(|(i, x)| if i % 97 == 0 { x } else { f16::ZERO })
                .collect();
            let mut c = vec![f32::NAN; m * n];
            let a_op = Matrix::new(&a, m, k, k);
            npu.gemm(a_op, Operand::Resident(&packed), &mut c, None, Summation::OnChip)
                .unwrap_or_else(|e| panic!("{m} rows on weights packed for {rows}: {e}"));
            for (x, ours) in c.iter().enumerate() {
                let (a, w) = (&a[x / n * k..][..k], &w[x % n * k..][..k]);
                let want: f64 = a.iter().zip(w).map(|(x, y)| x.to_f64() * y.to_f64()).sum();
                assert_eq!(f64::from(*ours), want, "{m} rows");
            }
        }
    }
}
