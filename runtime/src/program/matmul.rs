//! The RK3588's matmul: a 1x1 convolution over an image of width 1 and height M with K channels
//! and N kernels (npu-rk3588 1.1). 122 register writes and a four-word trailer, in the order of
//! Appendix A, so that each line here can be checked against the tables of 2.3 to 2.6.

use super::regs::{cna, core, dpu, pc, rdma};
use super::word::{Block, Word};
use crate::dtype::{DType, precision};
use crate::soc::RK3588;

/// Words of every matmul program (1.3).
pub const MATMUL_WORDS: usize = 126;

/// CNA + CORE + DPU + DPU-RDMA. The RDMA must take part even with no operand (trap 1).
const ENABLE_MASK: u32 = 0x1D;

/// Neutral S_POINTER value (1.1).
const S_POINTER: u32 = 0xE;

/// Fewest rows for which the operand's strides are right with more than one kernel group
/// (6.2, trap 22).
pub const OPERAND_MIN_ROWS: u32 = 12;

/// What the CBUF keeps from the task before (4.3). At most one of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reuse {
    /// Both operands are fetched.
    #[default]
    None,
    /// The feature tile is the previous task's.
    Data,
    /// The weight tile is the previous task's.
    Weights,
}

/// How the elementwise stage joins the operand cube to the result (6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Ew {
    Add,
    Mul,
    Max,
    Min,
}

impl Ew {
    const fn cfg(self) -> u32 {
        match self {
            Ew::Add => 0x1082_02C0,
            Ew::Mul => 0x1080_03C4,
            Ew::Max => 0x1080_02C0,
            Ew::Min => 0x1081_02C0,
        }
    }
}

/// An fp16 cube of the task's M and N that the elementwise stage reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Operand {
    /// What is done with it.
    pub op: Ew,
    /// Its IOVA. Must not be the output's: reader and writer would race (trap 21).
    pub iova: u32,
}

/// One matmul task: shapes in elements, IOVAs of the three cubes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MatmulTask {
    /// Operand and result types.
    pub dtype: DType,
    /// Rows of A and C; a multiple of 4.
    pub m: u32,
    /// Contraction length; a multiple of the dtype's `k_group`.
    pub k: u32,
    /// Columns of C; a multiple of the dtype's `n_group`.
    pub n: u32,
    /// Feature cube (A).
    pub input: u32,
    /// Weight cube (W, N-major).
    pub weights: u32,
    /// Output cube (C).
    pub output: u32,
    /// Elementwise operand, for K accumulation.
    pub operand: Option<Operand>,
    /// What the CBUF already holds.
    pub reuse: Reuse,
}

/// A task that no program can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Reject {
    /// The feature tile, with the dtype's slack, leaves no bank for weights (2.2).
    #[error("the feature tile needs {banks} of 12 CBUF banks; at most 11 leave room for weights")]
    FeatureBanks {
        /// Banks needed, slack included.
        banks: usize,
    },
    /// One kernel does not fit a bank (4.1).
    #[error("one kernel row is {bytes} bytes; a CBUF bank holds 32768")]
    Row {
        /// Bytes of the row.
        bytes: usize,
    },
    /// A dimension off the dtype's grid, zero, or beyond its field (3.1, traps 15, 16, 27).
    #[error("{what} = {value} is not a positive multiple of {grid}, or is beyond {most}")]
    Grid {
        /// M, K or N.
        what: char,
        /// Its value.
        value: u32,
        /// What it must be a multiple of.
        grid: u32,
        /// Largest value that is safe.
        most: u32,
    },
    /// FEATURE_GRAINS is a 10-bit field (2.3).
    #[error("M + 1 = {grains} does not fit the 10-bit FEATURE_GRAINS field")]
    Grains {
        /// M + 1.
        grains: u32,
    },
}

impl Reject {
    /// The reference encoder's return code, as the vectors give it.
    pub fn code(&self) -> i32 {
        match self {
            Reject::FeatureBanks { .. } | Reject::Grains { .. } | Reject::Grid { .. } => -1,
            Reject::Row { .. } => -2,
        }
    }
}

/// Banks of a task's features (dtype slack included) and weights (2.2). The feature half may not
/// fill the buffer; whether the weights fit theirs is the planner's business.
///
/// # Errors
/// [`Reject`], checked in the reference's order.
pub fn bank_split(dtype: DType, m: u32, k: u32) -> Result<(u32, u32), Reject> {
    let info = dtype.info();
    let most = RK3588.cbuf_banks - 1;
    let row = info.row_bytes(k as usize);
    let features = (m as usize * row).div_ceil(RK3588.bank_bytes);
    if features > most {
        return Err(Reject::FeatureBanks { banks: features });
    }
    if row > RK3588.bank_bytes {
        return Err(Reject::Row { bytes: row });
    }
    let data = features + info.slack_banks;
    if data > most {
        return Err(Reject::FeatureBanks { banks: data });
    }
    if m + 1 > 1023 {
        return Err(Reject::Grains { grains: m + 1 });
    }
    Ok((data as u32, (RK3588.cbuf_banks - data) as u32))
}

/// Half of the 13-bit channel fields: their maximum corrupts the tail (trap 27).
const MAX_N: u32 = 4096;

impl MatmulTask {
    fn check_grid(&self) -> Result<(), Reject> {
        let t = self.dtype.info();
        for (what, value, grid, most) in [
            ('M', self.m, 4, 1022),
            ('K', self.k, t.k_group as u32, 65_535),
            ('N', self.n, t.n_group as u32, MAX_N),
        ] {
            if value == 0 || !value.is_multiple_of(grid) || value > most {
                return Err(Reject::Grid { what, value, grid, most });
            }
        }
        Ok(())
    }

    /// Encodes the task.
    ///
    /// # Errors
    /// [`Reject`] when the CBUF cannot hold the features, a dimension is off its grid or a field
    /// would wrap.
    #[rustfmt::skip]
    pub fn encode(&self) -> Result<[Word; MATMUL_WORDS], Reject> {
        let &MatmulTask { dtype, m, k, n, .. } = self;
        let t = dtype.info();
        let (data_bank, weight_bank) = bank_split(dtype, m, k)?;
        self.check_grid()?;
        let row = t.row_bytes(k as usize) as u32;
        let (data_reuse, weight_reuse) = match self.reuse {
            Reuse::None => (0, 0),
            Reuse::Data => (1, 0),
            Reuse::Weights => (0, 1),
        };
        let se = t.size_e;
        let mut p = Builder::new();

        p.block(Block::Dpu).put(dpu::S_POINTER, S_POINTER);
        p.block(Block::Rdma).put(rdma::S_POINTER, S_POINTER);

        p.block(Block::Cna)
            .put(cna::CONV_CON1, t.input << 7 | t.input << 4)
            .put(cna::CONV_CON2, (m + 1) << 4)                     // FEATURE_GRAINS
            .put(cna::CONV_CON3, 1 << 3 | 1)                       // strides 1
            .put(cna::DATA_SIZE0, 1 << 16 | m)
            .put(cna::DATA_SIZE1, (k - 1) << 16 | k)
            .put(cna::DATA_SIZE2, 1)
            .put(cna::DATA_SIZE3, m)
            .put(cna::WEIGHT_SIZE0, row * n)
            .put(cna::WEIGHT_SIZE1, row)
            .put(cna::WEIGHT_SIZE2, 1 << 24 | 1 << 16 | n)
            .put(cna::CBUF_CON0, weight_reuse << 13 | data_reuse << 12 | weight_bank << 4 | data_bank)
            .put(cna::CBUF_CON1, row.div_ceil(64))                 // DATA_ENTRIES of one line
            .put(cna::CVT_CON0, 0xB)                               // signed, type 1, bypass
            .put(cna::CVT_CON1, 1 << 16)
            .put(cna::CVT_CON2, 1 << 16)
            .put(cna::CVT_CON3, 1 << 16)
            .put(cna::CVT_CON4, 1 << 16)
            .put(cna::FC_CON0, 0)
            .put(cna::FC_CON1, 0)
            .put(cna::PAD_CON0, 0)
            .put(cna::FEATURE_DATA_ADDR, self.input)
            .put(cna::FC_CON2, 0)
            .put(cna::DMA_CON0, 0x000F_000F)
            .put(cna::DMA_CON1, 4)                                 // LINE_STRIDE = 4 x width
            .put(cna::DMA_CON2, 4 * (m / 4).saturating_sub(1))     // SURF_STRIDE
            .put(cna::FC_DATA_SIZE0, 1 << 16 | m)
            .put(cna::FC_DATA_SIZE1, k)
            .put(cna::DCOMP_CTRL, 0)                               // dense weights
            .put(cna::DCOMP_REGNUM, 0)
            .put(cna::DCOMP_ADDR0, self.weights)
            .zeros(cna::DCOMP_AMOUNT0, 16)
            .put(cna::CVT_CON5, 0)
            .put(cna::PAD_CON1, 0);

        p.block(Block::Core)
            .put(core::MISC_CFG, t.input << 8 | t.qd_en)
            .put(core::DATAOUT_SIZE_0, (m - 1) << 16)
            .put(core::DATAOUT_SIZE_1, n - 1)
            .put(core::CLIP_TRUNCATE, 0)
            .put(core::UNNAMED_3030, 0);

        p.block(Block::Dpu)
            .put(dpu::FEATURE_MODE_CFG, 15 << 5 | 2 << 1)          // burst 15, output mode 2
            .put(dpu::DATA_FORMAT, t.output << 29 | t.dpu << 26 | t.dpu)
            .put(dpu::OFFSET_PEND, 0)
            .put(dpu::DST_BASE_ADDR, self.output)
            .put(dpu::DST_SURF_STRIDE, m << 4)
            .put(dpu::DATA_CUBE_WIDTH, 0)
            .put(dpu::DATA_CUBE_HEIGHT, m - 1)
            .put(dpu::DATA_CUBE_NOTCH_ADDR, 0)
            .put(dpu::DATA_CUBE_CHANNEL, (n - 1) << 16 | (n - 1))
            .put(dpu::BS_CFG, 0x53)                                // bypassed
            .put(dpu::BS_ALU_CFG, 0)
            .put(dpu::BS_MUL_CFG, 0)
            .put(dpu::BS_RELUX_CMP_VALUE, 0)
            .put(dpu::BS_OW_CFG, se << 8 | se << 5 | se << 2 | 2)
            .put(dpu::BS_OW_OP, 0)
            .put(dpu::WDMA_SIZE_0, n - 1)
            .put(dpu::WDMA_SIZE_1, (m - 1) << 16)
            .put(dpu::BN_CFG, 0x53)                                // bypassed
            .put(dpu::BN_ALU_CFG, 0)
            .put(dpu::BN_MUL_CFG, 0)
            .put(dpu::BN_RELUX_CMP_VALUE, 0)
            .put(dpu::EW_CFG, self.operand.map_or(0x383, |o| o.op.cfg()))
            .put(dpu::EW_CVT_OFFSET_VALUE, 0)
            .put(dpu::EW_CVT_SCALE_VALUE, 1)
            .put(dpu::EW_RELUX_CMP_VALUE, 0)
            .put(dpu::OUT_CVT_OFFSET, 0)
            .put(dpu::OUT_CVT_SCALE, t.to_fp16 << 16 | 1)
            .put(dpu::OUT_CVT_SHIFT, 0)
            .zeros(dpu::EW_OP_VALUE_0, 8)
            .put(dpu::SURFACE_ADD, (m * (se + 1)) << 4)
            .put(dpu::UNNAMED_40C4, 0)
            .zeros(dpu::LUT_ACCESS_CFG, 12);

        // With an operand, MRDMA feeds the even surfaces and ERDMA the odd ones (6.3).
        let stride = self.operand.map_or(0, |_| m.max(OPERAND_MIN_ROWS) << 4);
        let operand = self.operand.map_or(0, |o| o.iova);
        p.block(Block::Rdma)
            .put(rdma::DATA_CUBE_WIDTH, 0)
            .put(rdma::DATA_CUBE_HEIGHT, m - 1)
            .put(rdma::DATA_CUBE_CHANNEL, n - 1)
            .put(rdma::SRC_BASE_ADDR, operand)
            .put(rdma::BRDMA_CFG, 0)
            .put(rdma::BS_BASE_ADDR, 0)
            .put(rdma::NRDMA_CFG, 0)
            .put(rdma::BN_BASE_ADDR, 0)
            .put(rdma::ERDMA_CFG, if self.operand.is_some() { 0x4000_0008 } else { 1 })
            .put(rdma::EW_BASE_ADDR, self.operand.map_or(0, |o| o.iova + 16 * m))
            .put(rdma::EW_SURF_STRIDE, stride)
            .put(rdma::FEATURE_MODE_CFG, if self.operand.is_some() {
                precision::FP16 << 15 | 15 << 11 | 5 << 8 | precision::FP16 << 5   // COMB_USE 5
            } else {
                15 << 11 | 1 << 4 | t.to_fp16 << 3                 // MRDMA off
            })
            .put(rdma::SRC_DMA_CFG, 0)
            .put(rdma::SURF_NOTCH, stride)
            .put(rdma::PAD_CFG, 0)
            .put(rdma::WEIGHT, 0x0101_0101)
            .put(rdma::EW_SURF_NOTCH, stride);

        p.trailer()
    }
}

struct Builder {
    words: [Word; MATMUL_WORDS],
    len: usize,
    block: Block,
}

impl Builder {
    fn new() -> Builder {
        Builder { words: [Word::NOP; MATMUL_WORDS], len: 0, block: Block::Dpu }
    }

    fn block(&mut self, block: Block) -> &mut Self {
        self.block = block;
        self
    }

    fn put(&mut self, register: u16, value: u32) -> &mut Self {
        self.push(Word::write(self.block, register, value));
        self
    }

    fn zeros(&mut self, first: u16, count: u16) -> &mut Self {
        for i in 0..count {
            self.put(first + 4 * i, 0);
        }
        self
    }

    fn push(&mut self, word: Word) {
        self.words[self.len] = word;
        self.len += 1;
    }

    fn trailer(mut self) -> Result<[Word; MATMUL_WORDS], Reject> {
        self.push(Word::NOP);
        self.push(Word::write(Block::Pc, pc::REGISTER_AMOUNTS, 0));
        self.push(Word::BARRIER);
        self.push(Word::enable(ENABLE_MASK));
        debug_assert_eq!(self.len, MATMUL_WORDS);
        Ok(self.words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_program_can_express_is_refused() {
        let good = MatmulTask {
            dtype: DType::Fp16,
            m: 16,
            k: 64,
            n: 32,
            input: 0,
            weights: 0,
            output: 0,
            operand: None,
            reuse: Reuse::None,
        };
        assert!(good.encode().is_ok());
        for bad in [
            MatmulTask { m: 0, ..good },
            MatmulTask { m: 6, ..good },
            MatmulTask { k: 48, ..good },
            MatmulTask { n: 8, ..good },
            MatmulTask { n: 8192, ..good },
            MatmulTask { m: 1024, k: 32, ..good },
        ] {
            assert!(bad.encode().is_err(), "{bad:?}");
        }
    }
}
