//! The register file of one core and the names of its registers (npu-rk3588 2.3 to 2.6, B.3).

pub mod fields;

use crate::assumptions::Assumptions;

// Offsets of the registers that programs write.
macro_rules! registers {
    ($($name:ident = $offset:literal;)*) => {
        // A name is worth having even where no block reads the register.
        $(#[allow(dead_code)] pub const $name: u16 = $offset;)*
        /// All of them with their names.
        pub const NAMES: &[(u16, &str)] = &[$(($offset, stringify!($name))),*];
    };
}

registers! {
    CNA_CONV_CON1 = 0x100c; CNA_CONV_CON2 = 0x1010; CNA_CONV_CON3 = 0x1014;
    CNA_DATA_SIZE0 = 0x1020; CNA_DATA_SIZE1 = 0x1024; CNA_DATA_SIZE2 = 0x1028;
    CNA_DATA_SIZE3 = 0x102c; CNA_WEIGHT_SIZE0 = 0x1030; CNA_WEIGHT_SIZE1 = 0x1034;
    CNA_WEIGHT_SIZE2 = 0x1038; CNA_CBUF_CON0 = 0x1040; CNA_CBUF_CON1 = 0x1044;
    CNA_CVT_CON0 = 0x104c; CNA_CVT_CON1 = 0x1050; CNA_CVT_CON2 = 0x1054; CNA_CVT_CON3 = 0x1058;
    CNA_CVT_CON4 = 0x105c; CNA_FC_CON0 = 0x1060; CNA_FC_CON1 = 0x1064; CNA_PAD_CON0 = 0x1068;
    CNA_FEATURE_DATA_ADDR = 0x1070; CNA_FC_CON2 = 0x1074; CNA_DMA_CON0 = 0x1078;
    CNA_DMA_CON1 = 0x107c; CNA_DMA_CON2 = 0x1080; CNA_FC_DATA_SIZE0 = 0x1084;
    CNA_FC_DATA_SIZE1 = 0x1088; CNA_DCOMP_CTRL = 0x1100; CNA_DCOMP_REGNUM = 0x1104;
    CNA_DCOMP_ADDR0 = 0x1110; CNA_DCOMP_AMOUNT0 = 0x1140; CNA_DCOMP_AMOUNT1 = 0x1144;
    CNA_DCOMP_AMOUNT2 = 0x1148; CNA_DCOMP_AMOUNT3 = 0x114c; CNA_DCOMP_AMOUNT4 = 0x1150;
    CNA_DCOMP_AMOUNT5 = 0x1154; CNA_DCOMP_AMOUNT6 = 0x1158; CNA_DCOMP_AMOUNT7 = 0x115c;
    CNA_DCOMP_AMOUNT8 = 0x1160; CNA_DCOMP_AMOUNT9 = 0x1164; CNA_DCOMP_AMOUNT10 = 0x1168;
    CNA_DCOMP_AMOUNT11 = 0x116c; CNA_DCOMP_AMOUNT12 = 0x1170; CNA_DCOMP_AMOUNT13 = 0x1174;
    CNA_DCOMP_AMOUNT14 = 0x1178; CNA_DCOMP_AMOUNT15 = 0x117c; CNA_CVT_CON5 = 0x1180;
    CNA_PAD_CON1 = 0x1184;
    CORE_MISC_CFG = 0x3010; CORE_DATAOUT_SIZE_0 = 0x3014; CORE_DATAOUT_SIZE_1 = 0x3018;
    CORE_CLIP_TRUNCATE = 0x301c; CORE_UNNAMED_3030 = 0x3030;
    DPU_FEATURE_MODE_CFG = 0x400c; DPU_DATA_FORMAT = 0x4010; DPU_OFFSET_PEND = 0x4014;
    DPU_DST_BASE_ADDR = 0x4020; DPU_DST_SURF_STRIDE = 0x4024; DPU_DATA_CUBE_WIDTH = 0x4030;
    DPU_DATA_CUBE_HEIGHT = 0x4034; DPU_DATA_CUBE_NOTCH_ADDR = 0x4038;
    DPU_DATA_CUBE_CHANNEL = 0x403c; DPU_BS_CFG = 0x4040; DPU_BS_ALU_CFG = 0x4044;
    DPU_BS_MUL_CFG = 0x4048; DPU_BS_RELUX_CMP_VALUE = 0x404c; DPU_BS_OW_CFG = 0x4050;
    DPU_BS_OW_OP = 0x4054; DPU_WDMA_SIZE_0 = 0x4058; DPU_WDMA_SIZE_1 = 0x405c;
    DPU_BN_CFG = 0x4060; DPU_BN_ALU_CFG = 0x4064; DPU_BN_MUL_CFG = 0x4068;
    DPU_BN_RELUX_CMP_VALUE = 0x406c; DPU_EW_CFG = 0x4070; DPU_EW_CVT_OFFSET_VALUE = 0x4074;
    DPU_EW_CVT_SCALE_VALUE = 0x4078; DPU_EW_RELUX_CMP_VALUE = 0x407c; DPU_OUT_CVT_OFFSET = 0x4080;
    DPU_OUT_CVT_SCALE = 0x4084; DPU_OUT_CVT_SHIFT = 0x4088; DPU_EW_OP_VALUE_0 = 0x4090;
    DPU_EW_OP_VALUE_1 = 0x4094; DPU_EW_OP_VALUE_2 = 0x4098; DPU_EW_OP_VALUE_3 = 0x409c;
    DPU_EW_OP_VALUE_4 = 0x40a0; DPU_EW_OP_VALUE_5 = 0x40a4; DPU_EW_OP_VALUE_6 = 0x40a8;
    DPU_EW_OP_VALUE_7 = 0x40ac; DPU_SURFACE_ADD = 0x40c0; DPU_UNNAMED_40C4 = 0x40c4;
    DPU_LUT_ACCESS_CFG = 0x4100; DPU_LUT_ACCESS_DATA = 0x4104; DPU_LUT_CFG = 0x4108;
    DPU_LUT_INFO = 0x410c; DPU_LUT_LE_START = 0x4110; DPU_LUT_LE_END = 0x4114;
    DPU_LUT_LO_START = 0x4118; DPU_LUT_LO_END = 0x411c; DPU_LUT_LE_SLOPE_SCALE = 0x4120;
    DPU_LUT_LE_SLOPE_SHIFT = 0x4124; DPU_LUT_LO_SLOPE_SCALE = 0x4128;
    DPU_LUT_LO_SLOPE_SHIFT = 0x412c;
    RDMA_DATA_CUBE_WIDTH = 0x500c; RDMA_DATA_CUBE_HEIGHT = 0x5010; RDMA_DATA_CUBE_CHANNEL = 0x5014;
    RDMA_SRC_BASE_ADDR = 0x5018; RDMA_BRDMA_CFG = 0x501c; RDMA_BS_BASE_ADDR = 0x5020;
    RDMA_NRDMA_CFG = 0x5028; RDMA_BN_BASE_ADDR = 0x502c; RDMA_ERDMA_CFG = 0x5034;
    RDMA_EW_BASE_ADDR = 0x5038; RDMA_EW_SURF_STRIDE = 0x5040; RDMA_FEATURE_MODE_CFG = 0x5044;
    RDMA_SRC_DMA_CFG = 0x5048; RDMA_SURF_NOTCH = 0x504c; RDMA_PAD_CFG = 0x5064;
    RDMA_WEIGHT = 0x5068; RDMA_EW_SURF_NOTCH = 0x506c;
    PPU_DATA_CUBE_IN_WIDTH = 0x600c; PPU_DATA_CUBE_IN_HEIGHT = 0x6010;
    PPU_DATA_CUBE_IN_CHANNEL = 0x6014; PPU_DATA_CUBE_OUT_WIDTH = 0x6018;
    PPU_DATA_CUBE_OUT_HEIGHT = 0x601c; PPU_DATA_CUBE_OUT_CHANNEL = 0x6020;
    PPU_OPERATION_MODE_CFG = 0x6024; PPU_POOLING_KERNEL_CFG = 0x6034;
    PPU_RECIP_KERNEL_WIDTH = 0x6038; PPU_RECIP_KERNEL_HEIGHT = 0x603c;
    PPU_POOLING_PADDING_CFG = 0x6040; PPU_PADDING_VALUE_1 = 0x6044; PPU_PADDING_VALUE_2 = 0x6048;
    PPU_DST_BASE_ADDR = 0x6070; PPU_DST_SURF_STRIDE = 0x607c; PPU_DATA_FORMAT = 0x6084;
    PPU_MISC_CTRL = 0x60dc;
    PPU_RDMA_CUBE_IN_WIDTH = 0x700c; PPU_RDMA_CUBE_IN_HEIGHT = 0x7010;
    PPU_RDMA_CUBE_IN_CHANNEL = 0x7014; PPU_RDMA_SRC_BASE_ADDR = 0x701c;
    PPU_RDMA_SRC_LINE_STRIDE = 0x7024; PPU_RDMA_SRC_SURF_STRIDE = 0x7028;
    PPU_RDMA_DATA_FORMAT = 0x7030;
}

/// Registers that the spec names and programs need not write, or never do: those at the start of
/// every block's page (npu-rk3588 1.1), and the clock gate (2.3).
const OTHERS: &[(u16, &str)] = &[
    (0x1000, "CNA_S_STATUS"),
    (0x1004, "CNA_S_POINTER"),
    (0x1008, "CNA_OPERATION_ENABLE"),
    (0x1090, "CNA_CLK_GATE"),
    (0x3000, "CORE_S_STATUS"),
    (0x3004, "CORE_S_POINTER"),
    (0x3008, "CORE_OPERATION_ENABLE"),
    (0x4000, "DPU_S_STATUS"),
    (0x4004, "DPU_S_POINTER"),
    (0x4008, "DPU_OPERATION_ENABLE"),
    (0x5000, "RDMA_S_STATUS"),
    (0x5004, "RDMA_S_POINTER"),
    (0x5008, "RDMA_OPERATION_ENABLE"),
    (0x6000, "PPU_S_STATUS"),
    (0x6004, "PPU_S_POINTER"),
    (0x6008, "PPU_OPERATION_ENABLE"),
    (0x7000, "PPU_RDMA_S_STATUS"),
    (0x7004, "PPU_RDMA_S_POINTER"),
    (0x7008, "PPU_RDMA_OPERATION_ENABLE"),
];

/// The name of a block's register, with the block's in front; none when no register list has it
/// (npu-rk3588 1.1, 2.3 to 2.6, B.3).
pub fn register_name(offset: u16) -> Option<&'static str> {
    NAMES.iter().chain(OTHERS).find(|(o, _)| *o == offset).map(|(_, n)| *n)
}

/// A register's name with its offset, for messages.
pub fn name(offset: u16) -> String {
    match register_name(offset) {
        Some(n) => format!("{n} (0x{offset:04x})"),
        None => format!("0x{offset:04x}"),
    }
}

/// Bits `hi..=lo` of a value.
pub fn bits(value: u32, hi: u32, lo: u32) -> u32 {
    let width = hi - lo + 1;
    value >> lo & (u32::MAX >> (32 - width))
}

/// Page of the first block and of the last (npu-rk3588 1.1).
const PAGES: std::ops::RangeInclusive<u16> = 1..=7;
const COUNT: usize = 0x8000 / 4;

/// One core's registers. Values outlive programs, jobs and processes (npu-rk3588 1.2); who wrote
/// them last is kept beside them.
#[derive(Debug)]
pub struct RegFile {
    values: Vec<u32>,
    /// Program serial that wrote each register last; zero: none since reset.
    writer: Vec<u64>,
    serial: u64,
    job_start: u64,
    /// What is assumed of the core: whoever reads registers is to know what they mean.
    pub assume: Assumptions,
}

impl RegFile {
    pub fn new(assume: Assumptions) -> RegFile {
        RegFile { values: vec![0; COUNT], writer: vec![0; COUNT], serial: 0, job_start: 1, assume }
    }

    /// A new job: what earlier jobs wrote no longer counts.
    pub fn begin_job(&mut self) {
        self.job_start = self.serial + 1;
    }

    /// A new program: what earlier programs wrote counts as theirs.
    pub fn begin_program(&mut self) {
        self.serial += 1;
    }

    /// Writes a register; false when no block of that page takes command words.
    pub fn write(&mut self, offset: u16, value: u32) -> bool {
        let ok = PAGES.contains(&(offset >> 12)) && offset >> 12 != 2 && offset.is_multiple_of(4);
        if ok {
            self.values[usize::from(offset / 4)] = value;
            self.writer[usize::from(offset / 4)] = self.serial;
        }
        ok
    }

    /// The whole register.
    pub fn get(&self, offset: u16) -> u32 {
        self.values.get(usize::from(offset / 4)).copied().unwrap_or(0)
    }

    /// Bits `hi..=lo` of a register.
    pub fn field(&self, offset: u16, hi: u32, lo: u32) -> u32 {
        bits(self.get(offset), hi, lo)
    }

    /// One bit of a register.
    pub fn bit(&self, offset: u16, bit: u32) -> bool {
        self.field(offset, bit, bit) == 1
    }

    /// Whether the running program wrote the register.
    pub fn written_by_program(&self, offset: u16) -> bool {
        self.writer[usize::from(offset / 4)] == self.serial
    }

    /// Whether some program of the running job wrote the register.
    pub fn written_in_job(&self, offset: u16) -> bool {
        self.writer[usize::from(offset / 4)] >= self.job_start
    }
}
