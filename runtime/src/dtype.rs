//! The matmul dtypes and everything the formulas take from them, one row each.

/// Operand and result types of a matmul program (npu-rk3588 0.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum DType {
    /// fp16 in, fp16 out; the only type with on-chip K accumulation.
    Fp16,
    /// fp16 in, fp32 out.
    Fp16F32Out,
    /// int8 in, int32 out.
    Int8,
    /// int8 in, fp32 out that holds the integer sum.
    Int8F32Out,
    /// int4 in, saturating int16 out.
    Int4,
    /// bf16 in, fp32 out.
    Bf16,
    /// fp32 containers shortened to 10 mantissa bits, fp32 out.
    Tf32,
    /// Words exist for experiments only: the result is incomplete on silicon (4.5, trap 26).
    Int16,
}

/// The three-bit precision codes of CNA, CORE, DPU and RDMA (npu-rk3588 2.1).
pub mod precision {
    #![allow(missing_docs)]
    pub const INT8: u32 = 0;
    pub const INT16: u32 = 1;
    pub const FP16: u32 = 2;
    pub const BF16: u32 = 3;
    pub const INT32: u32 = 4;
    pub const FP32: u32 = 5;
    pub const INT4: u32 = 6;
    pub const TF32: u32 = 7;
}

/// One row of npu-rk3588 2.1 and 3.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// Name as the spec and the vectors spell it.
    pub name: &'static str,
    /// CNA input and processing precision, and CORE processing precision.
    pub input: u32,
    /// DPU input and processing precision. Differs from `input` for tf32 only: the DPU has no
    /// code 7 (trap 11).
    pub dpu: u32,
    /// DPU output precision.
    pub output: u32,
    /// Bits of an input element.
    pub bits: usize,
    /// Bytes of an output element.
    pub out_bytes: usize,
    /// CORE MISC_CFG.QD_EN.
    pub qd_en: u32,
    /// Surfaces a kernel group writes, less one (3.4).
    pub size_e: u32,
    /// OUT_CVT_SCALE.FP32TOFP16_EN.
    pub to_fp16: u32,
    /// Input elements in a 16-byte atom.
    pub c2: usize,
    /// Output elements in a 16-byte atom.
    pub c2_out: usize,
    /// Kernels in a weight block; N is a multiple of it.
    pub n_group: usize,
    /// Channels in a weight block; K is a multiple of it.
    pub k_group: usize,
    /// CBUF banks kept free behind the features (4.2).
    pub slack_banks: usize,
    /// Planner's cap on K of one task (7.2).
    pub k_cap: usize,
}

#[rustfmt::skip]
const fn row(name: &'static str, codes: [u32; 3], widths: [usize; 2], core: [u32; 3], groups: [usize; 2], slack_banks: usize, k_cap: usize) -> Info {
    let [input, dpu, output] = codes;
    let [bits, out_bytes] = widths;
    let [qd_en, size_e, to_fp16] = core;
    let [n_group, k_group] = groups;
    Info { name, input, dpu, output, bits, out_bytes, qd_en, size_e, to_fp16,
           c2: 128 / bits, c2_out: 16 / out_bytes, n_group, k_group, slack_banks, k_cap }
}

use precision as p;
//                             name           in       dpu      out       bits out   qd se h    Ng  Kg   slack cap
#[rustfmt::skip]
const TABLE: [Info; 8] = [
    row("fp16",        [p::FP16,  p::FP16,  p::FP16],  [16, 2], [1, 1, 1], [16, 32], 0, 16384),
    row("fp16_f32out", [p::FP16,  p::FP16,  p::FP32],  [16, 4], [1, 3, 0], [16, 32], 0, 16384),
    row("int8",        [p::INT8,  p::INT8,  p::INT32], [ 8, 4], [0, 7, 0], [32, 32], 1, 16384),
    row("int8_f32out", [p::INT8,  p::INT8,  p::FP32],  [ 8, 4], [0, 7, 0], [32, 32], 1, 16384),
    row("int4",        [p::INT4,  p::INT4,  p::INT16], [ 4, 2], [0, 7, 0], [64, 32], 0, 16384),
    row("bf16",        [p::BF16,  p::BF16,  p::FP32],  [16, 4], [1, 3, 0], [16, 32], 0, 16384),
    row("tf32",        [p::TF32,  p::FP32,  p::FP32],  [32, 4], [1, 3, 0], [16, 16], 0, 8192),
    row("int16",       [p::INT16, p::INT16, p::INT32], [16, 4], [1, 7, 0], [16, 32], 0, 16384),
];

impl DType {
    /// Every dtype, in the order of the spec's table.
    pub const ALL: [DType; 8] = [
        DType::Fp16,
        DType::Fp16F32Out,
        DType::Int8,
        DType::Int8F32Out,
        DType::Int4,
        DType::Bf16,
        DType::Tf32,
        DType::Int16,
    ];

    /// This dtype's row.
    pub const fn info(self) -> &'static Info {
        &TABLE[self as usize]
    }

    /// The dtype of that name, `None` if there is none: see [`Info::name`].
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.into_iter().find(|d| d.info().name == name)
    }
}

impl Info {
    /// Bytes of `k` input elements: of one kernel, or one row of the activations.
    pub const fn row_bytes(&self, k: usize) -> usize {
        k * self.bits / 8
    }
}
