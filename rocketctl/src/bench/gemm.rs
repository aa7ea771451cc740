//! Products with resident weights, and the smallest job.

use super::{Shape, Spread};
use crate::npu::Npu as Device;
use crate::selftest::draw::Draw;
use clap::ValueEnum;
use half::{bf16, f16};
use rocket_runtime::Result;
use rocket_runtime::matmul::{
    Bf16, Fp16, Int4, Int8, Matrix, Npu, Operand, Options, Rows, Stats, Summation, Tf32,
};
use rocket_sim::{CORES, Counters};
use serde::{Serialize, Serializer};
use std::time::{Duration, Instant};

/// A number format, and where its sums are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// K steps added up on the NPU.
    Fp16,
    /// K steps added up by the host.
    Fp16Host,
    Bf16,
    Tf32,
    Int8,
    Int4,
    /// By bytes.
    Int16,
}

impl Format {
    pub const ALL: &[Format] = &[
        Format::Fp16,
        Format::Fp16Host,
        Format::Bf16,
        Format::Tf32,
        Format::Int8,
        Format::Int4,
        Format::Int16,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Format::Fp16 => "fp16",
            Format::Fp16Host => "fp16-host",
            Format::Bf16 => "bf16",
            Format::Tf32 => "tf32",
            Format::Int8 => "int8",
            Format::Int4 => "int4",
            Format::Int16 => "int16",
        }
    }
}

impl Serialize for Format {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}

/// One product, measured or modelled.
#[derive(Debug, Serialize)]
pub struct Product {
    pub format: Format,
    /// Rows, K, N.
    pub shape: Shape,
    /// Of whole calls on a real board; none of a simulated one, whose speed is this machine's.
    pub measured: Option<Spread>,
    /// Of the busiest core, by the cost model.
    pub modelled_ns: Option<u64>,
    /// Two operations a multiply-accumulate of the definition, padding not counted.
    pub gops: Option<f64>,
    pub executed_macs: u64,
    pub padding_macs: u64,
    pub submits: u64,
    pub jobs: u64,
    pub tasks: u64,
    pub retries: u64,
    /// Read and written by the NPU: a simulated board's count, no real one tells.
    pub dma_bytes: Option<u64>,
}

impl Product {
    pub fn median_ns(&self) -> Option<u64> {
        self.measured.as_ref().map(|s| s.median_ns).or(self.modelled_ns)
    }

    pub fn min_ns(&self) -> Option<u64> {
        self.measured.as_ref().map(|s| s.min_ns).or(self.modelled_ns)
    }
}

/// Longest that one product is repeated.
const PATIENCE: Duration = Duration::from_secs(5);

/// Measures a product.
///
/// # Errors
/// What the NPU does wrong.
pub fn measure(
    npu: &Npu,
    device: &Device,
    format: Format,
    shape: Shape,
    times: usize,
) -> Result<Product> {
    let Shape { m, k, n } = shape;
    let mut draw = Draw(5);
    let mut floats = |rows: usize| draw.list(rows * k, Draw::value);
    let (a, w) = (floats(m), floats(n));
    match format {
        Format::Fp16 | Format::Fp16Host => {
            let half = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
            let (a, w) = (half(&a), half(&w));
            let packed = npu.pack(Fp16, &Rows::new(&w, n, k))?;
            let summation = match format {
                Format::Fp16 => Summation::OnChip,
                _ => Summation::Host,
            };
            let mut c = vec![0f32; m * n];
            repeat(device, format, shape, times, || {
                let a = Matrix::new(&a, m, k, k);
                npu.gemm(a, Operand::Resident(&packed), &mut c, None, summation)
            })
        }
        Format::Bf16 => {
            let short = |x: &[f32]| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>();
            let (a, w) = (short(&a), short(&w));
            let packed = npu.pack(Bf16, &Rows::new(&w, n, k))?;
            let mut c = vec![0f32; m * n];
            repeat(device, format, shape, times, || {
                npu.gemm_float(Matrix::new(&a, m, k, k), Operand::Resident(&packed), &mut c, None)
            })
        }
        Format::Tf32 => {
            let packed = npu.pack(Tf32, &Rows::new(&w, n, k))?;
            let mut c = vec![0f32; m * n];
            repeat(device, format, shape, times, || {
                npu.gemm_float(Matrix::new(&a, m, k, k), Operand::Resident(&packed), &mut c, None)
            })
        }
        Format::Int8 | Format::Int4 => {
            let limit = if format == Format::Int8 { 127.0 } else { 7.0 };
            let code = |x: &[f32]| x.iter().map(|x| (limit * x) as i8).collect::<Vec<_>>();
            let (a, w) = (code(&a), code(&w));
            let mut c = vec![0i32; m * n];
            if format == Format::Int8 {
                let packed = npu.pack(Int8::default(), &Rows::new(&w, n, k))?;
                return repeat(device, format, shape, times, || {
                    npu.gemm_exact(Matrix::new(&a, m, k, k), Operand::Resident(&packed), &mut c)
                });
            }
            let packed = npu.pack(Int4 { full: false, group: None }, &Rows::new(&w, n, k))?;
            repeat(device, format, shape, times, || {
                npu.gemm_exact(Matrix::new(&a, m, k, k), Operand::Resident(&packed), &mut c)
            })
        }
        Format::Int16 => {
            let word = |x: &[f32]| x.iter().map(|x| (32_000.0 * x) as i16).collect::<Vec<_>>();
            let (a, w) = (word(&a), word(&w));
            let packed = npu.pack_i16(&Rows::new(&w, n, k))?;
            let mut c = vec![0i64; m * n];
            repeat(device, format, shape, times, || {
                npu.gemm_i16(Matrix::new(&a, m, k, k), &packed, &mut c)
            })
        }
    }
}

/// Once unmeasured, then as often as was asked for. On a simulated board once: it does the same each time.
fn repeat(
    device: &Device,
    format: Format,
    shape: Shape,
    times: usize,
    mut call: impl FnMut() -> Result<Stats>,
) -> Result<Product> {
    let before = device.sim().map(|s| s.counters());
    let stats = call()?;
    let counted = device.sim().zip(before).map(|(s, before)| s.counters() - before);
    let mut measured = Vec::new();
    let begun = Instant::now();
    while device.sim().is_none() && measured.len() < times && begun.elapsed() < PATIENCE {
        let start = Instant::now();
        call()?;
        measured.push(start.elapsed().as_nanos() as u64);
    }
    let measured = Spread::of(measured);
    let modelled_ns = counted.as_ref().map(busiest);
    let ns = measured.as_ref().map(|s| s.median_ns).or(modelled_ns);
    let macs = shape.m as f64 * shape.k as f64 * shape.n as f64;
    Ok(Product {
        format,
        shape,
        gops: ns.filter(|ns| *ns > 0).map(|ns| 2.0 * macs / ns as f64),
        measured,
        modelled_ns,
        executed_macs: stats.executed_macs,
        padding_macs: stats.padding_macs,
        submits: stats.submits,
        jobs: stats.jobs,
        tasks: stats.tasks,
        retries: stats.retries,
        dma_bytes: counted.as_ref().map(moved),
    })
}

/// Cores run side by side.
fn busiest(c: &Counters) -> u64 {
    (0..CORES).map(|i| c.modelled_ns[i]).max().unwrap_or(0)
}

fn moved(c: &Counters) -> u64 {
    let read = c.dma_read_feature + c.dma_read_weight + c.dma_read_operand + c.dma_read_regcmd;
    read + c.dma_write
}

/// A product of one program, from the call to its result.
#[derive(Debug, Serialize)]
pub struct Submit {
    pub shape: Shape,
    pub measured: Option<Spread>,
    pub modelled_ns: Option<u64>,
}

/// Measures the smallest job: many times, as one is short.
///
/// # Errors
/// What the NPU does wrong.
pub fn submit(device: &Device, times: usize) -> Result<Option<Submit>> {
    let npu = Npu::open(device.board(), Options { workers: 1, ..Options::default() })?;
    let shape = Shape { m: 4, k: 32, n: 16 };
    let one = measure(&npu, device, Format::Fp16Host, shape, 20 * times)?;
    Ok(Some(Submit { shape, measured: one.measured, modelled_ns: one.modelled_ns }))
}
