//! What `docs/library.md` shows, as a program: every block of Rust there is a part of this file,
//! held to it by `tests/tests/library.rs`, which runs it as well.
//!
//! `cargo run -p rocket-tests --example library`

use half::{bf16, f16};
use rocket_runtime::device::{Board, KernelBoard};
use rocket_runtime::kernels::{convert, hadamard, quant};
use rocket_runtime::matmul::{
    Bf16, Fp16, Int4, Int8, Matrix, Npu, Operand, Options, Rows, Scales, Stats, Summation, Weights,
};
use rocket_runtime::{Error, Result};
use rocket_sim::{Config, SimBoard};
use std::fmt;
use std::time::Duration;

// guide: board
/// The board of this machine, or a simulated one and the reason.
fn board() -> (Box<dyn Board>, Option<Error>) {
    match KernelBoard::find() {
        Ok(board) => (Box::new(board), None),
        Err(why) => (Box::new(SimBoard::new(Config::default())), Some(why)),
    }
}
// guide: end

// guide: open
fn open(board: &dyn Board) -> Result<Npu> {
    let options = Options { workers: 5, budget: Some(1 << 30), ..Options::default() };
    Npu::open(board, options)
}
// guide: end

// guide: pack
/// C = A W^T in fp16: A is M x K, W is N x K, C is M x N, all row-major.
fn resident(npu: &Npu, a: &[f16], w: &[f16], [m, k, n]: [usize; 3]) -> Result<(Vec<f32>, Stats)> {
    let weights = npu.pack(Fp16, &Rows::new(w, n, k))?; // once a weight
    let mut c = vec![0f32; m * n];
    let a = Matrix::new(a, m, k, k); // rows k elements apart
    // As often as you like:
    let stats = npu.gemm(a, Operand::Resident(&weights), &mut c, None, Summation::OnChip)?;
    Ok((c, stats)) // dropping `weights` frees its memory
}
// guide: end

// guide: one-shot
/// The same with weights that are packed for this call.
fn one_shot(npu: &Npu, a: &[f16], w: &[f16], [m, k, n]: [usize; 3]) -> Result<Vec<f32>> {
    let mut c = vec![0f32; m * n];
    let w = Operand::Stream(Fp16, &Rows::new(w, n, k));
    npu.gemm(Matrix::new(a, m, k, k), w, &mut c, None, Summation::Host)?;
    Ok(c)
}
// guide: end

// guide: weights
/// fp32 weights, made bf16 a row at a time: the whole copy is never in memory.
#[derive(Debug)]
struct Shortened<'a> {
    rows: &'a [f32],
    k: usize,
}

impl Weights<bf16> for Shortened<'_> {
    fn n(&self) -> usize {
        self.rows.len() / self.k
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, n: usize, dst: &mut [bf16]) {
        convert::f32_to_bf16(&self.rows[n * self.k..][..self.k], dst);
    }
}
// guide: end

// guide: scaled
/// fp32 rows as codes, with a scale for each `group` of channels; the scales group by group, as
/// [`Scales`] has them. `rotated` rows have their outliers spread over all channels first.
fn quantize(
    rows: &[f32],
    k: usize,
    group: usize,
    limit: i8,
    rotated: bool,
) -> Result<(Vec<i8>, Vec<f32>)> {
    let (count, groups) = (rows.len() / k, k.div_ceil(group));
    let (mut codes, mut scales) = (vec![0i8; rows.len()], vec![0f32; groups * count]);
    let (mut row, mut row_scales) = (vec![0f32; k], vec![0f32; groups]);
    for r in 0..count {
        row.copy_from_slice(&rows[r * k..][..k]);
        let known = !rotated || hadamard::rotate(&mut row);
        let codes = &mut codes[r * k..][..k];
        if !known || !quant::quantize_row(&row, group, limit, codes, &mut row_scales) {
            let why = "no rotation of that length, or a value that is not finite".into();
            return Err(Error::Shape { what: format!("row {r} of {k} channels"), why });
        }
        for (g, scale) in row_scales.iter().enumerate() {
            scales[g * count + r] = *scale;
        }
    }
    Ok((codes, scales))
}

/// A quantized product in int4 with groups of 128 channels.
fn scaled(
    npu: &Npu,
    a: &[f32],
    w: &[f32],
    [m, k, n]: [usize; 3],
    rotated: bool,
) -> Result<Vec<f32>> {
    let (group, limit) = (128, 7); // 127 for int8
    let (a_codes, a_scales) = quantize(a, k, group, limit, rotated)?;
    let (w_codes, w_scales) = quantize(w, k, group, limit, rotated)?;
    let format = Int4 { full: false, group: Some(group) }; // codes of -7..=7
    let weights = npu.pack(format, &Rows::new(&w_codes, n, k))?;
    let mut c = vec![0f32; m * n];
    let scales = Scales { rows: &a_scales, columns: &w_scales };
    let a = Matrix::new(&a_codes, m, k, k);
    npu.gemm_scaled(a, Operand::Resident(&weights), scales, &mut c)?;
    Ok(c)
}
// guide: end

// guide: exact
/// Exact products of 8-bit and of 16-bit integers.
fn exact(
    npu: &Npu,
    [a8, w8]: [&[i8]; 2],
    [a16, w16]: [&[i16]; 2],
    [m, k, n]: [usize; 3],
) -> Result<(Vec<i32>, Vec<i64>)> {
    let (mut c8, mut c16) = (vec![0i32; m * n], vec![0i64; m * n]);
    let w8 = npu.pack(Int8::default(), &Rows::new(w8, n, k))?;
    npu.gemm_exact(Matrix::new(a8, m, k, k), Operand::Resident(&w8), &mut c8)?;
    let w16 = npu.pack_i16(&Rows::new(w16, n, k))?;
    npu.gemm_i16(Matrix::new(a16, m, k, k), &w16, &mut c16)?;
    Ok((c8, c16))
}
// guide: end

// guide: budget
/// Resident if there is room, else packed for this call.
fn as_memory_allows(npu: &Npu, a: Matrix<'_>, w: &Rows<'_>, c: &mut [f32]) -> Result<Stats> {
    let kept = match npu.pack(Fp16, w) {
        Ok(weights) => Some(weights),
        Err(Error::Memory { .. }) => None,
        Err(e) => return Err(e),
    };
    let w = kept.as_ref().map_or(Operand::Stream(Fp16, w), Operand::Resident);
    npu.gemm(a, w, c, None, Summation::OnChip)
}
// guide: end

// guide: options
/// For a program that shares the board: two workers on the fast CPUs, jobs of 10 ms at most, no
/// signal handlers of ours.
fn considerate(board: &dyn Board) -> Result<Npu> {
    let options = Options {
        workers: 2,
        cores: rocket_runtime::board::big_cores("/".as_ref()),
        job_time: Duration::from_millis(10),
        drain_on_signals: false,
        ..Options::default()
    };
    Npu::open(board, options)
}
// guide: end

/// Two threads with one Npu and one weight. Their calls take turns.
fn from_threads(
    npu: &Npu,
    a: [&[f16]; 2],
    w: &[f16],
    [m, k, n]: [usize; 3],
) -> Result<[Vec<f32>; 2]> {
    let weights = npu.pack(Fp16, &Rows::new(w, n, k))?;
    let (mut first, mut second) = (vec![0f32; m * n], vec![0f32; m * n]);
    let one = |a, c: &mut [f32]| {
        let w = Operand::Resident(&weights);
        npu.gemm(Matrix::new(a, m, k, k), w, c, None, Summation::Host)
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| one(a[1], &mut second));
        one(a[0], &mut first)?;
        other.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    Ok([first, second])
}

/// M, K and N: off every grid but the rotation's.
pub const SHAPE: [usize; 3] = [100, 960, 300];

/// A float product beside the same in f64.
#[derive(Debug)]
pub struct Deviation {
    pub what: String,
    /// Largest difference of an element.
    pub largest: f64,
    /// Largest difference of an element, as a part of its bound.
    pub of_bound: f64,
    /// The control: the same, had the last channel been left out.
    pub control: f64,
}

/// What the program finds.
#[derive(Debug)]
pub struct Report {
    pub board: String,
    pub floats: Vec<Deviation>,
    /// Whether the integers are those of an i64 product: 8 bits, 16 bits.
    pub exact: [bool; 2],
    /// Error of the quantized product over the product, both root mean square: plain, rotated.
    pub quantized: [f64; 2],
    /// Bytes that the weights took, and the K step they were packed in.
    pub resident: (u64, usize),
    pub stats: Stats,
    /// Whether the same call gave the same bits again, and from two threads.
    pub agree: bool,
}

/// splitmix64
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// In -1 ..= 1, small values more often.
    fn value(&mut self) -> f32 {
        let x = (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0;
        x * x * x
    }

    fn list<T>(&mut self, len: usize, one: impl Fn(&mut Draw) -> T) -> Vec<T> {
        (0..len).map(|_| one(self)).collect()
    }
}

/// Each element's terms, in k's order.
fn terms<'a, T: Copy>(
    a: &'a [T],
    w: &'a [T],
    wide: impl Fn(T) -> f64 + Copy + 'a,
) -> impl Fn(usize) -> Vec<f64> + 'a {
    let [_, k, n] = SHAPE;
    move |x| {
        let pairs = a[x / n * k..][..k].iter().zip(&w[x % n * k..][..k]);
        pairs.map(|(a, w)| wide(*a) * wide(*w)).collect()
    }
}

/// `c` against f64, with `factor` times the sum of the terms' magnitudes as the bound.
fn deviation(what: &str, c: &[f32], terms: impl Fn(usize) -> Vec<f64>, factor: f64) -> Deviation {
    let mut d = Deviation { what: what.into(), largest: 0.0, of_bound: 0.0, control: 0.0 };
    for (x, c) in c.iter().enumerate() {
        let terms = terms(x);
        let sum: f64 = terms.iter().sum();
        let bound = factor * terms.iter().map(|t| t.abs()).sum::<f64>() + f64::MIN_POSITIVE;
        let short = terms.last().map_or(sum, |t| sum - t);
        let off = (f64::from(*c) - sum).abs();
        // NaN, of an element that nobody wrote, counts as infinitely far away.
        let off = if off.is_nan() { f64::INFINITY } else { off };
        d.largest = d.largest.max(off);
        d.of_bound = d.of_bound.max(off / bound);
        d.control = d.control.max((short - sum).abs() / bound);
    }
    d
}

fn rms_error(c: &[f32], terms: impl Fn(usize) -> Vec<f64>) -> f64 {
    let (mut error, mut size) = (0.0, 0.0);
    for (x, c) in c.iter().enumerate() {
        let sum: f64 = terms(x).iter().sum();
        error += (f64::from(*c) - sum).powi(2);
        size += sum * sum;
    }
    f64::sqrt(error / size)
}

/// Whether `c` is the product in i64.
fn equal<C: Copy + Into<i64>, T: Copy + Into<i64>>(c: &[C], a: &[T], w: &[T]) -> bool {
    let [m, k, n] = SHAPE;
    let dot = |x: usize| -> i64 {
        let pairs = a[x / n * k..][..k].iter().zip(&w[x % n * k..][..k]);
        pairs.map(|(a, w)| (*a).into() * (*w).into()).sum()
    };
    c.len() == m * n && c.iter().enumerate().all(|(x, c)| (*c).into() == dot(x))
}

/// Runs every part of the guide on `board`.
pub fn run(board: &dyn Board) -> Result<Report> {
    let [m, k, n] = SHAPE;
    let npu = open(board)?;
    let mut draw = Draw(1);
    let ulp24 = 2f64.powi(-24);

    let half = |d: &mut Draw| f16::from_f32(d.value());
    let (a, w) = (draw.list(m * k, half), draw.list(n * k, half));
    let kept = npu.pack(Fp16, &Rows::new(&w, n, k))?;
    let resident_bytes = (kept.bytes(), kept.k_step());
    drop(kept);
    let steps = k.div_ceil(resident_bytes.1) as f64;
    let (on_chip, stats) = resident(&npu, &a, &w, SHAPE)?;
    let by_host = one_shot(&npu, &a, &w, SHAPE)?;
    let f16s = || terms(&a, &w, f16::to_f64);
    let chip_bound = (steps + 1.0) * 2f64.powi(-11) + (k as f64 + 2.0) * ulp24;
    let host_bound = (k as f64 + 2.0) * ulp24;
    let mut floats = vec![
        deviation("fp16, sums on chip", &on_chip, f16s(), chip_bound),
        deviation("fp16, sums by the host", &by_host, f16s(), host_bound),
    ];

    let mut again = vec![0f32; m * n];
    as_memory_allows(&npu, Matrix::new(&a, m, k, k), &Rows::new(&w, n, k), &mut again)?;
    let mut agree = again == on_chip;
    let (once_more, _) = resident(&considerate(board)?, &a, &w, SHAPE)?;
    floats.push(deviation("fp16, two workers and short jobs", &once_more, f16s(), chip_bound));
    let [first, second] = from_threads(&npu, [&a, &a], &w, SHAPE)?;
    agree &= first == second;
    floats.push(deviation("fp16, resident, from two threads", &first, f16s(), host_bound));

    // A channel in 64 is thirty times as large as the others.
    let outlier = |i: usize, x: f32| if i % k % 64 == 7 { 30.0 * x } else { x };
    let mut wide = |len| -> Vec<f32> {
        draw.list(len, Draw::value).into_iter().enumerate().map(|(i, x)| outlier(i, x)).collect()
    };
    let (a, w) = (wide(m * k), wide(n * k));
    let mut c = vec![0f32; m * n];
    let a_short: Vec<bf16> = a.iter().map(|x| bf16::from_f32(*x)).collect();
    let rows = Shortened { rows: &w, k };
    npu.gemm_float(Matrix::new(&a_short, m, k, k), Operand::Stream(Bf16, &rows), &mut c, None)?;
    let mut w_short = vec![bf16::ZERO; n * k];
    convert::f32_to_bf16(&w, &mut w_short);
    floats.push(deviation("bf16", &c, terms(&a_short, &w_short, bf16::to_f64), host_bound));

    let plain = scaled(&npu, &a, &w, SHAPE, false)?;
    let rotated = scaled(&npu, &a, &w, SHAPE, true)?;
    let f32s = || terms(&a, &w, f64::from);
    let quantized = [rms_error(&plain, f32s()), rms_error(&rotated, f32s())];

    let byte = |d: &mut Draw| d.bits() as i8;
    let word = |d: &mut Draw| (d.bits() as i16).min(convert::I16_MAX);
    let (a8, w8) = (draw.list(m * k, byte), draw.list(n * k, byte));
    let (a16, w16) = (draw.list(m * k, word), draw.list(n * k, word));
    let (c8, c16) = exact(&npu, [&a8, &w8], [&a16, &w16], SHAPE)?;
    let exact = [equal(&c8, &a8, &w8), equal(&c16, &a16, &w16)];
    Ok(Report {
        board: npu.board().into(),
        floats,
        exact,
        quantized,
        resident: resident_bytes,
        stats,
        agree,
    })
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [m, k, n] = SHAPE;
        writeln!(f, "board: {}", self.board)?;
        writeln!(f, "C of {m} x {n} = A of {m} x {k} times W of {n} x {k}")?;
        let (bytes, step) = self.resident;
        writeln!(f, "fp16 weights: {bytes} bytes resident, K steps of {step}")?;
        let Stats { tasks, jobs, workers, executed_macs, padding_macs, .. } = self.stats;
        let padding = 100.0 * padding_macs as f64 / executed_macs as f64;
        writeln!(
            f,
            "a call: {tasks} programs, {jobs} jobs, {workers} workers, {padding:.1} % padding"
        )?;
        writeln!(f, "farthest from f64, as a part of the bound, and without the last channel:")?;
        for d in &self.floats {
            let Deviation { what, largest, of_bound, control } = d;
            writeln!(f, "  {what:<33} {largest:.1e} {of_bound:6.3} {control:5.0}")?;
        }
        let [plain, rotated] = self.quantized.map(|e| 100.0 * e);
        writeln!(f, "int4, groups of 128: {plain:.1} % rms error, {rotated:.1} % rotated")?;
        let word = |equal| if equal { "equal to the i64 product" } else { "NOT the i64 product" };
        writeln!(f, "int8: {}", word(self.exact[0]))?;
        writeln!(f, "int16: {}", word(self.exact[1]))?;
        let again = if self.agree { "the same bits" } else { "OTHER bits" };
        writeln!(f, "again, and from two threads: {again}")
    }
}

fn main() -> Result<()> {
    let (board, why) = board();
    if let Some(why) = why {
        println!("a simulated board, for there is none here: {why}");
    }
    print!("{}", run(&*board)?);
    Ok(())
}
