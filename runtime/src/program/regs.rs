//! Register offsets, page included, by block. Source: npu-rk3588 2.3 to 2.6.
#![allow(missing_docs)]

pub mod pc {
    pub const OPERATION_ENABLE: u16 = 0x0008;
    pub const BASE_ADDRESS: u16 = 0x0010;
    pub const REGISTER_AMOUNTS: u16 = 0x0014;
}

pub mod cna {
    pub const CONV_CON1: u16 = 0x100C;
    pub const CONV_CON2: u16 = 0x1010;
    pub const CONV_CON3: u16 = 0x1014;
    pub const DATA_SIZE0: u16 = 0x1020;
    pub const DATA_SIZE1: u16 = 0x1024;
    pub const DATA_SIZE2: u16 = 0x1028;
    pub const DATA_SIZE3: u16 = 0x102C;
    pub const WEIGHT_SIZE0: u16 = 0x1030;
    pub const WEIGHT_SIZE1: u16 = 0x1034;
    pub const WEIGHT_SIZE2: u16 = 0x1038;
    pub const CBUF_CON0: u16 = 0x1040;
    pub const CBUF_CON1: u16 = 0x1044;
    pub const CVT_CON0: u16 = 0x104C;
    pub const CVT_CON1: u16 = 0x1050;
    pub const CVT_CON2: u16 = 0x1054;
    pub const CVT_CON3: u16 = 0x1058;
    pub const CVT_CON4: u16 = 0x105C;
    pub const FC_CON0: u16 = 0x1060;
    pub const FC_CON1: u16 = 0x1064;
    pub const PAD_CON0: u16 = 0x1068;
    pub const FEATURE_DATA_ADDR: u16 = 0x1070;
    pub const FC_CON2: u16 = 0x1074;
    pub const DMA_CON0: u16 = 0x1078;
    pub const DMA_CON1: u16 = 0x107C;
    pub const DMA_CON2: u16 = 0x1080;
    pub const FC_DATA_SIZE0: u16 = 0x1084;
    pub const FC_DATA_SIZE1: u16 = 0x1088;
    pub const DCOMP_CTRL: u16 = 0x1100;
    pub const DCOMP_REGNUM: u16 = 0x1104;
    pub const DCOMP_ADDR0: u16 = 0x1110;
    pub const DCOMP_AMOUNT0: u16 = 0x1140;
    pub const CVT_CON5: u16 = 0x1180;
    pub const PAD_CON1: u16 = 0x1184;
}

pub mod core {
    pub const MISC_CFG: u16 = 0x3010;
    pub const DATAOUT_SIZE_0: u16 = 0x3014;
    pub const DATAOUT_SIZE_1: u16 = 0x3018;
    pub const CLIP_TRUNCATE: u16 = 0x301C;
    /// Undocumented; written as 0.
    pub const UNNAMED_3030: u16 = 0x3030;
}

pub mod dpu {
    pub const S_POINTER: u16 = 0x4004;
    pub const FEATURE_MODE_CFG: u16 = 0x400C;
    pub const DATA_FORMAT: u16 = 0x4010;
    pub const OFFSET_PEND: u16 = 0x4014;
    pub const DST_BASE_ADDR: u16 = 0x4020;
    pub const DST_SURF_STRIDE: u16 = 0x4024;
    pub const DATA_CUBE_WIDTH: u16 = 0x4030;
    pub const DATA_CUBE_HEIGHT: u16 = 0x4034;
    pub const DATA_CUBE_NOTCH_ADDR: u16 = 0x4038;
    pub const DATA_CUBE_CHANNEL: u16 = 0x403C;
    pub const BS_CFG: u16 = 0x4040;
    pub const BS_ALU_CFG: u16 = 0x4044;
    pub const BS_MUL_CFG: u16 = 0x4048;
    pub const BS_RELUX_CMP_VALUE: u16 = 0x404C;
    pub const BS_OW_CFG: u16 = 0x4050;
    pub const BS_OW_OP: u16 = 0x4054;
    pub const WDMA_SIZE_0: u16 = 0x4058;
    pub const WDMA_SIZE_1: u16 = 0x405C;
    pub const BN_CFG: u16 = 0x4060;
    pub const BN_ALU_CFG: u16 = 0x4064;
    pub const BN_MUL_CFG: u16 = 0x4068;
    pub const BN_RELUX_CMP_VALUE: u16 = 0x406C;
    pub const EW_CFG: u16 = 0x4070;
    pub const EW_CVT_OFFSET_VALUE: u16 = 0x4074;
    pub const EW_CVT_SCALE_VALUE: u16 = 0x4078;
    pub const EW_RELUX_CMP_VALUE: u16 = 0x407C;
    pub const OUT_CVT_OFFSET: u16 = 0x4080;
    pub const OUT_CVT_SCALE: u16 = 0x4084;
    pub const OUT_CVT_SHIFT: u16 = 0x4088;
    pub const EW_OP_VALUE_0: u16 = 0x4090;
    pub const SURFACE_ADD: u16 = 0x40C0;
    /// Undocumented; written as 0.
    pub const UNNAMED_40C4: u16 = 0x40C4;
    pub const LUT_ACCESS_CFG: u16 = 0x4100;
}

pub mod rdma {
    pub const S_POINTER: u16 = 0x5004;
    pub const DATA_CUBE_WIDTH: u16 = 0x500C;
    pub const DATA_CUBE_HEIGHT: u16 = 0x5010;
    pub const DATA_CUBE_CHANNEL: u16 = 0x5014;
    pub const SRC_BASE_ADDR: u16 = 0x5018;
    pub const BRDMA_CFG: u16 = 0x501C;
    pub const BS_BASE_ADDR: u16 = 0x5020;
    pub const NRDMA_CFG: u16 = 0x5028;
    pub const BN_BASE_ADDR: u16 = 0x502C;
    pub const ERDMA_CFG: u16 = 0x5034;
    pub const EW_BASE_ADDR: u16 = 0x5038;
    pub const EW_SURF_STRIDE: u16 = 0x5040;
    pub const FEATURE_MODE_CFG: u16 = 0x5044;
    pub const SRC_DMA_CFG: u16 = 0x5048;
    pub const SURF_NOTCH: u16 = 0x504C;
    pub const PAD_CFG: u16 = 0x5064;
    pub const WEIGHT: u16 = 0x5068;
    pub const EW_SURF_NOTCH: u16 = 0x506C;
}
