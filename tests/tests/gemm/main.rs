//! The GEMM on the simulated board, by its public interface: any shape, any worker count,
//! resident and streamed, and every way a job can be lost.

mod calls;
mod drivers;
mod equal;
mod faults;
mod formats;
mod interrupt;
mod lanes;
mod memory;
mod misuse;
mod properties;
mod stored;

use half::f16;
use rocket_runtime::matmul::Matrix;
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Fp16, Npu, Operand, Options, Rows, Stats};
use rocket_runtime::plan::Shape;
use rocket_sim::Config;
use rocket_tests::TestBoard;

/// A deterministic stream of numbers, aperiodic over any row length.
#[derive(Debug)]
pub struct Stream(u64);

impl Stream {
    pub fn new(seed: u64) -> Stream {
        Stream(seed.wrapping_mul(2).wrapping_add(1))
    }

    pub fn draw(&mut self) -> u64 {
        // splitmix64
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// `len` integers in `-most..=most`.
    pub fn integers(&mut self, len: usize, most: i64) -> Vec<f16> {
        let span = 2 * most as u64 + 1;
        (0..len).map(|_| f16::from_f64((self.draw() % span) as f64 - most as f64)).collect()
    }

    /// `len` values of mixed magnitude, at most `most`.
    pub fn reals(&mut self, len: usize, most: f64) -> Vec<f16> {
        (0..len)
            .map(|_| {
                let x = (self.draw() >> 11) as f64 / (1u64 << 53) as f64 * 2.0 - 1.0;
                f16::from_f64(x * x * x * most)
            })
            .collect()
    }
}

#[derive(Debug)]
pub struct Case {
    pub shape: Shape,
    pub a: Vec<f16>,
    pub w: Vec<f16>,
}

impl Case {
    pub fn integers(shape: Shape, seed: u64) -> Case {
        let mut s = Stream::new(seed);
        Case { shape, a: s.integers(shape.m * shape.k, 1), w: s.integers(shape.n * shape.k, 2) }
    }

    pub fn reals(shape: Shape, seed: u64) -> Case {
        let mut s = Stream::new(seed);
        Case { shape, a: s.reals(shape.m * shape.k, 1.0), w: s.reals(shape.n * shape.k, 0.5) }
    }

    /// The product, by the definition, in f64.
    pub fn expected(&self) -> Vec<f64> {
        let Shape { m, k, n } = self.shape;
        let wide = |x: &[f16]| x.iter().map(|v| v.to_f64()).collect::<Vec<f64>>();
        let (a, w) = (wide(&self.a), wide(&self.w));
        let mut c = vec![0.0; m * n];
        for i in 0..m {
            for j in 0..n {
                c[i * n + j] =
                    a[i * k..][..k].iter().zip(&w[j * k..][..k]).map(|(x, y)| x * y).sum();
            }
        }
        c
    }

    pub fn run(
        &self,
        npu: &Npu,
        resident: bool,
        summation: Summation,
    ) -> rocket_runtime::Result<(Vec<f32>, Stats)> {
        let Shape { m, k, n } = self.shape;
        let rows = Rows::new(&self.w, n, k);
        // NaN shows any element that nobody wrote.
        let mut c = vec![f32::NAN; m * n];
        let a = Matrix::new(&self.a, m, k, k);
        let stats = if resident {
            let packed = npu.pack(Fp16, &rows)?;
            npu.gemm(a, Operand::Resident(&packed), &mut c, None, summation)?
        } else {
            npu.gemm(a, Operand::Stream(Fp16, &rows), &mut c, None, summation)?
        };
        Ok((c, stats))
    }
}

pub fn open(board: &TestBoard, workers: usize) -> Npu {
    let options = Options { workers, drain_on_signals: false, ..Options::default() };
    Npu::open(board, options).expect("the simulated board opens")
}

pub fn board() -> TestBoard {
    TestBoard::new(Config::default())
}
