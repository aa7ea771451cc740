//! The same bits on every machine: each kernel on one fixed input, against the plain model bit by
//! bit, and the hash of its output against the one that other machines gave.

use super::*;
use crate::kernels::convert::*;
use crate::kernels::hadamard::rotate;
use crate::kernels::quant::quantize_row;
use half::bf16;

/// A tile with padding everywhere: 13 of 16 rows, 77 of 96 columns, 3 steps.
const M: usize = 16;
const ROWS: usize = 13;
const COLS: usize = 77;
const STEPS: usize = 3;

fn hash(state: u64, bytes: impl IntoIterator<Item = u8>) -> u64 {
    bytes.into_iter().fold(state, |h, b| (h ^ u64::from(b)).wrapping_mul(0x100_0000_01b3))
}

const START: u64 = 0xcbf2_9ce4_8422_2325;

/// The kernel's and the model's output, as bytes.
#[derive(Clone)]
struct Case {
    name: &'static str,
    kernel: Vec<u8>,
    model: Vec<u8>,
}

fn floats(x: impl IntoIterator<Item = f32>) -> Vec<u8> {
    x.into_iter().flat_map(|x| same(x).to_le_bytes()).collect()
}

/// A result kernel's output and its model's.
fn result<T: Copy + Default>(
    name: &'static str,
    bytes: impl Fn(T) -> Vec<u8>,
    kernel: impl FnOnce(&mut [&mut [T]]),
    model: impl Fn(usize, usize) -> T,
) -> Case {
    let mut out = Out::new(ROWS, COLS, COLS + 3, T::default());
    out.run(kernel);
    let place = |n: usize| (n / (COLS + 3), n % (COLS + 3));
    let want = (0..out.data.len())
        .map(place)
        .map(|(i, j)| if j < COLS { model(i, j) } else { T::default() });
    let model = want.flat_map(&bytes).collect();
    Case { name, kernel: out.data.iter().flat_map(|x| bytes(*x)).collect(), model }
}

fn operands() -> Vec<Case> {
    let mut cases = Vec::new();
    for d in DType::ALL {
        let t = d.info();
        let (rows, k) = (ROWS, 4 * t.k_group);
        let cols = k - 10;
        let stride = t.row_bytes(cols) + 1;
        let data = Noise(t.bits as u64).bytes(70 * stride);
        let dims = [rows, cols, stride];
        let src = Bytes::new(&data, rows, t.row_bytes(cols), stride);
        let mut cube = vec![0xa5; t.row_bytes(M * k)];
        feature(src, M, &mut cube);
        cases.push(Case {
            name: "feature",
            kernel: cube,
            model: plain::feature(&data, t, dims, M, k),
        });
        let mut cube = vec![0xa5; t.row_bytes(t.n_group * k)];
        weight_group(src, t.n_group, &mut cube);
        let model = plain::weight_group(&data, t, dims, k);
        cases.push(Case { name: "weight_group", kernel: cube, model });
    }
    cases
}

fn results() -> Vec<Case> {
    let mut noise = Noise(1);
    let len = M * COLS.next_multiple_of(8);
    let halves = noise.halves(len);
    let singles: Vec<_> = (0..STEPS).map(|_| noise.floats(len)).collect();
    let words: Vec<_> = (0..4 * STEPS).map(|_| noise.words(len)).collect();
    let shorts: Vec<_> = (0..STEPS).map(|_| noise.shorts(len)).collect();
    let (rs, cs) = (noise.floats(ROWS), noise.floats(COLS));
    let (singles, words, shorts) = (slices(&singles), slices(&words), slices(&shorts));
    let hh = &words[..STEPS];
    let f32s = |x: f32| same(x).to_le_bytes().to_vec();
    let i32s = |x: i32| x.to_le_bytes().to_vec();
    let int = |i, j| plain::sum(hh, M, i, j) as i32;
    let short = |i, j| plain::sum(&shorts, M, i, j) as i32;
    // Two groups: the first stores, the second adds.
    let scaled =
        |i: usize, j: usize, a: i32| (0f32 + rs[i] * cs[j] * a as f32) + rs[i] * cs[j] * a as f32;
    vec![
        result(
            "store_f16",
            f32s,
            |r| store_f16(&halves, M, r, Some(&rs)),
            |i, j| plain::half_value(halves[plain::at::<f16>(M, i, j)]) as f32 * rs[i],
        ),
        result(
            "sum_f32",
            f32s,
            |r| sum_f32(&singles, M, r, None),
            |i, j| plain::sum_f32(&singles, M, i, j),
        ),
        result(
            "sum_f32 scaled",
            f32s,
            |r| sum_f32(&singles, M, r, Some(&rs)),
            |i, j| plain::sum_f32(&singles, M, i, j) * rs[i],
        ),
        result("sum_i32", i32s, |r| sum_i32(hh, M, r), int),
        result("sum_i16", i32s, |r| sum_i16(&shorts, M, r), short),
        result(
            "scaled_i32",
            f32s,
            |r| {
                scaled_i32(hh, M, r, &rs, &cs, true);
                scaled_i32(hh, M, r, &rs, &cs, false);
            },
            |i, j| scaled(i, j, int(i, j)),
        ),
        result(
            "scaled_i16",
            f32s,
            |r| {
                scaled_i16(&shorts, M, r, &rs, &cs, true);
                scaled_i16(&shorts, M, r, &rs, &cs, false);
            },
            |i, j| scaled(i, j, short(i, j)),
        ),
    ]
}

fn conversions() -> Vec<Case> {
    let mut noise = Noise(2);
    let n = 1003;
    let x = noise.floats(n);
    let mut half = vec![f16::ZERO; n];
    f32_to_f16(&x, &mut half);
    let nearest = x.iter().map(|x| plain::nearest_half(*x) as f32);
    let as_half = half.iter().map(|h| plain::half_value(*h) as f32);
    let any = noise.halves(n);
    let mut wide = vec![0f32; n];
    f16_to_f32(&any, &mut wide);
    let exact = any.iter().map(|h| plain::half_value(*h) as f32);
    let mut brain = vec![bf16::ZERO; n];
    f32_to_bf16(&x, &mut brain);
    let upper = x.iter().map(|x| (x.to_bits() >> 16) as u16);
    let shorts = noise.shorts(n);
    let (mut hi, mut lo) = (vec![0i8; n], vec![0i8; n]);
    split_i16(&shorts, &mut hi, &mut lo);
    let model_lo = |x: i16| ((i32::from(x.min(32639)) + 128) & 255) - 128;
    let model_hi = |x: i16| (i32::from(x.min(32639)) - model_lo(x)) >> 8;
    let codes: Vec<i8> = (0..n).map(|_| (noise.next() % 16) as i8 - 8).collect();
    let mut packed = vec![0; n.div_ceil(2)];
    assert!(nibbles(&codes, &mut packed));
    let mut low_even = vec![0u8; n.div_ceil(2)];
    codes.iter().enumerate().for_each(|(i, c)| low_even[i / 2] |= (*c as u8 & 15) << (4 * (i % 2)));
    let shorts_of = |x: &[u16]| -> Vec<u8> { x.iter().flat_map(|x| x.to_le_bytes()).collect() };
    vec![
        Case { name: "f32_to_f16", kernel: floats(as_half), model: floats(nearest) },
        Case { name: "f16_to_f32", kernel: floats(wide), model: floats(exact) },
        Case {
            name: "f32_to_bf16",
            kernel: shorts_of(&brain.iter().map(|b| b.to_bits()).collect::<Vec<_>>()),
            model: shorts_of(&upper.collect::<Vec<_>>()),
        },
        Case {
            name: "split_i16",
            kernel: hi.iter().chain(&lo).map(|x| *x as u8).collect(),
            model: shorts
                .iter()
                .map(|x| model_hi(*x) as u8)
                .chain(shorts.iter().map(|x| model_lo(*x) as u8))
                .collect(),
        },
        Case { name: "nibbles", kernel: packed, model: low_even },
    ]
}

fn quantization() -> Vec<Case> {
    let x = Noise(3).floats(1000);
    let mut cases = Vec::new();
    for (limit, group) in [(127, 1000), (127, 32), (7, 128)] {
        let mut codes = vec![0i8; 1000];
        let mut scales = vec![0f32; 1000usize.div_ceil(group)];
        assert!(quantize_row(&x, group, limit, &mut codes, &mut scales));
        let mut model = Vec::new();
        let mut steps = Vec::new();
        for part in x.chunks(group) {
            let step = part.iter().fold(0f32, |a, x| a.max(x.abs())) / f32::from(limit);
            model.extend(part.iter().map(|x| (x / step).round_ties_even() as i8 as u8));
            steps.push(step);
        }
        model.extend(floats(steps));
        let mut kernel: Vec<u8> = codes.iter().map(|c| *c as u8).collect();
        kernel.extend(floats(scales));
        cases.push(Case { name: "quantize_row", kernel, model });
    }
    // Whole numbers: every sum is exact, so the order of the additions is not part of the model.
    for len in [2, 64, 512, 60, 960, 1920] {
        let mut row: Vec<f32> = (0..len).map(|i| ((i * i + 7 * i) % 101) as f32 - 50.0).collect();
        let scale = (1.0 / (len as f64).sqrt()) as f32;
        let model = floats((0..len).map(|i| {
            let dot: i32 = (0..len).map(|j| plain::hadamard(len, i, j) * row[j] as i32).sum();
            dot as f32 * scale
        }));
        assert!(rotate(&mut row));
        cases.push(Case { name: "rotate", kernel: floats(row), model });
    }
    cases
}

/// The hashes, of the model's output on x86-64; kernels of one name are hashed together.
const DIGESTS: &[(&str, u64)] = &[
    ("feature", 0xf94a1a7a98e23130),
    ("weight_group", 0x5cb67db7bb26bb5c),
    ("store_f16", 0x8bcaf14990d70660),
    ("sum_f32", 0x51d0f4a7d318c70b),
    ("sum_f32 scaled", 0x2cd672cfa0cf030b),
    ("sum_i32", 0xc40457c3d1e18672),
    ("sum_i16", 0xf790905df7863e21),
    ("scaled_i32", 0xb49acb30bf1f592a),
    ("scaled_i16", 0xa0435b89b0c0365d),
    ("f32_to_f16", 0x077cf074bbbc4e93),
    ("f16_to_f32", 0xc6bcf0bf055654a8),
    ("f32_to_bf16", 0x7b351a03f1e725d1),
    ("split_i16", 0x33b31f5a4dafa184),
    ("nibbles", 0xb1f24dbd669b4891),
    ("quantize_row", 0x46adfb464b57b2d3),
    ("rotate", 0x9cfa424a8b6a5f00),
    ("rotate, rounded", 0xbd67ae01b66fe693),
];

#[test]
fn every_machine_gives_the_same_bits() {
    let mut digests: Vec<(&str, u64)> = Vec::new();
    for case in [operands(), results(), conversions(), quantization()].concat() {
        assert!(case.kernel == case.model, "{} differs from its model", case.name);
        match digests.iter_mut().find(|d| d.0 == case.name) {
            Some((_, h)) => *h = hash(*h, case.kernel),
            None => digests.push((case.name, hash(START, case.kernel))),
        }
    }
    // Here the order of the additions shows, which no model fixes: machines are compared only.
    let mut h = START;
    for len in [2, 32, 2048, 60, 480, 3840] {
        let mut row = Noise(4).floats(len);
        assert!(rotate(&mut row));
        h = hash(h, floats(row));
    }
    digests.push(("rotate, rounded", h));
    for (name, h) in &digests {
        println!("    (\"{name}\", {h:#018x}),");
    }
    assert_eq!(digests, DIGESTS);
}
