//! What a host's CPU backend packs for itself, out of everybody else's reach (ggml-abi 6.2).

use crate::model::Tensor;
use clap::ValueEnum;
use ggml_rocket::route::Dtype;
use serde::Serialize;

/// The CPU that the host runs on: which types it packs depends on that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cpu {
    /// aarch64 with dot products, as the cores of both parts have them.
    Dotprod,
    /// x86-64 with AVX2.
    Avx2,
    /// The same with AVX-512.
    Avx512,
    /// One for which nothing is packed.
    Plain,
}

const Q4_0: i32 = 2;
const Q8_0: i32 = 8;
const Q2_K: i32 = 10;
const Q4_K: i32 = 12;
const Q5_K: i32 = 13;
const Q6_K: i32 = 14;
const IQ4_NL: i32 = 20;
const MXFP4: i32 = 39;
const Q1_0: i32 = 41;

impl Cpu {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Cpu::Dotprod => "aarch64 with dot products",
            Cpu::Avx2 => "x86-64 with AVX2",
            Cpu::Avx512 => "x86-64 with AVX-512",
            Cpu::Plain => "a CPU that packs nothing",
        }
    }

    /// Rows that are packed together, of a type that is.
    fn rows(self, dtype: Dtype) -> Option<u64> {
        match (self, dtype.0) {
            (Cpu::Dotprod, Q4_0 | Q8_0 | IQ4_NL | MXFP4 | Q1_0) => Some(4),
            (Cpu::Dotprod, Q4_K | Q5_K | Q6_K) => Some(8),
            (Cpu::Avx2 | Cpu::Avx512, Q4_0 | Q4_K | IQ4_NL | MXFP4) => Some(8),
            (Cpu::Avx512, Q2_K) => Some(8),
            _ => None,
        }
    }

    /// Whether a weight is taken: matrices, and stacks of experts.
    pub fn packs(self, t: &Tensor) -> bool {
        let stack = t.name.contains("_exps.");
        let fits = t.dims == if stack { 3 } else { 2 };
        fits && self.rows(t.dtype).is_some_and(|rows| t.ne[1].is_multiple_of(rows))
    }
}
