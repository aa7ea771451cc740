//! Registers that must agree with each other (npu-rk3588 2.2, Appendix C), and fields that must
//! hold the one value this version models.

use super::precision::Precisions;
use super::{Hang, Rule};
use crate::assumptions::MOST_VALUES_A_TASK;
use crate::cna::Cna;
use crate::format::{Format, Out};
use crate::regs::{self, RegFile};

/// CBUF banks and their size (npu-rk3588 4.1).
const BANKS: u64 = 12;
const BANK_BYTES: u64 = 32768;
/// Bytes of a CBUF entry.
const ENTRY: u64 = 64;
/// CONV_MODE of a depthwise convolution.
const DEPTHWISE: u64 = 3;

/// A field of a register: offset, high bit, low bit.
pub type Field = (u16, u32, u32);

/// All geometry checks of a program that passed the precision checks.
pub fn check(r: &RegFile, c: &Cna, p: &Precisions) -> Result<(), Hang> {
    modelled(r)?;
    modes(r, c, p)?;
    aligned(r)?;
    sizes(r, c, p.format)?;
    weights(r, c, p.format)?;
    banks(r, c, p.format)
}

/// Checks that a field holds `want`.
pub fn expect(r: &RegFile, rule: Rule, (reg, hi, lo): Field, want: u64) -> Result<(), Hang> {
    let found = u64::from(r.field(reg, hi, lo));
    if found == want {
        return Ok(());
    }
    let message = format!("{} bits {hi}:{lo} are {found}, expected {want}", regs::name(reg));
    Err(Hang::new(rule, message))
}

/// Fields whose other values stand for stages or modes not modelled yet.
fn modelled(r: &RegFile) -> Result<(), Hang> {
    const FIXED: &[(Field, u64)] = &[
        // Nothing special about the input.
        ((regs::CNA_CONV_CON1, 31, 10), 0),
        ((regs::CNA_CONV_CON2, 2, 0), 0),
        ((regs::CNA_CONV_CON2, 23, 16), 0),
        // No deconvolution.
        ((regs::CNA_CONV_CON3, 31, 26), 0),
        ((regs::CNA_CONV_CON3, 15, 6), 0),
        // Input conversion bypassed.
        ((regs::CNA_CVT_CON0, 0, 0), 1),
        ((regs::CNA_CVT_CON5, 31, 0), 0),
        // No skipping.
        ((regs::CNA_FC_CON0, 31, 0), 0),
        ((regs::CNA_FC_CON1, 16, 0), 0),
        ((regs::CNA_FC_CON2, 16, 0), 0),
        // No shift before the DPU.
        ((regs::CORE_CLIP_TRUNCATE, 6, 0), 0),
        // The DPU follows the CORE.
        ((regs::DPU_FEATURE_MODE_CFG, 31, 25), 0),
        ((regs::DPU_FEATURE_MODE_CFG, 2, 1), 2),
        ((regs::DPU_FEATURE_MODE_CFG, 0, 0), 0),
        ((regs::DPU_DATA_FORMAT, 25, 3), 0),
        ((regs::DPU_OFFSET_PEND, 15, 0), 0),
        ((regs::DPU_DATA_CUBE_NOTCH_ADDR, 28, 0), 0),
        ((regs::DPU_BS_OW_CFG, 31, 11), 0),
        ((regs::DPU_BS_OW_CFG, 0, 0), 0),
        // No operands of BN from memory, no flight.
        ((regs::RDMA_NRDMA_CFG, 4, 1), 0),
        ((regs::RDMA_FEATURE_MODE_CFG, 0, 0), 0),
        ((regs::RDMA_SRC_DMA_CFG, 31, 0), 0),
    ];
    for (field, want) in FIXED {
        expect(r, Rule::NotModelled, *field, *want)?;
    }
    for reg in [regs::CNA_DCOMP_CTRL, regs::CNA_DCOMP_REGNUM] {
        expect(r, Rule::CompressedWeights, (reg, 31, 0), 0)?;
    }
    for reg in (regs::CNA_DCOMP_AMOUNT0..=regs::CNA_DCOMP_AMOUNT15).step_by(4) {
        expect(r, Rule::CompressedWeights, (reg, 31, 0), 0)?;
    }
    Ok(())
}

/// Which blocks work depthwise, and whether the weight offset is in use (npu-rk3588 B.2,
/// npu-ops 1.3).
fn modes(r: &RegFile, c: &Cna, p: &Precisions) -> Result<(), Hang> {
    let mode = r.field(regs::CNA_CONV_CON1, 3, 0).into();
    if mode != 0 && mode != DEPTHWISE {
        return Err(Hang::new(Rule::NotModelled, format!("convolution mode {mode}")));
    }
    for (field, want) in [
        ((regs::CORE_MISC_CFG, 1, 1), u64::from(c.depthwise)),
        ((regs::DPU_FEATURE_MODE_CFG, 4, 3), mode),
        ((regs::RDMA_FEATURE_MODE_CFG, 2, 1), mode),
    ] {
        expect(r, Rule::ModesDisagree, field, want)?;
    }
    let known =
        !c.depthwise || matches!((p.format, p.out), (Format::Fp16, Out::Fp16) | (_, Out::Int8));
    if !known {
        let message = format!("depthwise {:?} to {:?}", p.format, p.out);
        return Err(Hang::new(Rule::NotModelled, message));
    }
    let bypass = !c.depthwise && p.out != Out::Int8;
    expect(r, Rule::NotModelled, (regs::DPU_BS_OW_CFG, 1, 1), u64::from(bypass))
}

/// Trap 31: addresses and pitches of data are those of 16-byte atoms.
fn aligned(r: &RegFile) -> Result<(), Hang> {
    for reg in [
        regs::CNA_FEATURE_DATA_ADDR,
        regs::CNA_DCOMP_ADDR0,
        regs::DPU_DST_BASE_ADDR,
        regs::RDMA_SRC_BASE_ADDR,
        regs::RDMA_EW_BASE_ADDR,
        regs::RDMA_BS_BASE_ADDR,
    ] {
        expect(r, Rule::AddressUnaligned, (reg, 3, 0), 0)?;
    }
    // The pitch of lines: LINE_STRIDE counts quarters of an atom (npu-rk3588 3.2).
    expect(r, Rule::AddressUnaligned, (regs::CNA_DMA_CON1, 1, 0), 0)
}

/// Width, height and channels as each block sees them; trap 16.
fn sizes(r: &RegFile, c: &Cna, format: Format) -> Result<(), Hang> {
    let v = &c.window;
    let n = if c.depthwise { c.channels } else { c.kernels };
    if c.rows() == 0 || c.channels == 0 || n == 0 || v.taps() == 0 || !v.touches_image() {
        let message = format!("{v:?}, {} channels, {n} kernels", c.channels);
        return Err(Hang::new(Rule::SizesDisagree, message));
    }
    let values =
        [v.out_pixels(), v.taps(), c.channels].iter().try_fold(1usize, |p, &x| p.checked_mul(x));
    if values.is_none_or(|v| v > MOST_VALUES_A_TASK) {
        let message = format!("{v:?} with {} channels is more than is simulated", c.channels);
        return Err(Hang::new(Rule::NotModelled, message));
    }
    let (unit, group) = match format.depthwise_group().filter(|_| c.depthwise) {
        Some(group) => (group, group),
        None => (format.channel_unit(), format.kernel_group()),
    };
    if !c.channels.is_multiple_of(unit) || !n.is_multiple_of(group) {
        let message = format!("K = {}, N = {n}", c.channels);
        return Err(Hang::new(Rule::ChannelsNotAligned, message));
    }
    if c.depthwise {
        expect(r, Rule::SizesDisagree, (regs::CNA_WEIGHT_SIZE2, 13, 0), 1)?;
    }
    let (k, n) = (c.channels as u64, n as u64);
    let (iw, ih) = (v.in_width as u64, v.in_height as u64);
    let (w, h) = (v.out_width as u64, v.out_height as u64);
    let agree: &[(Field, u64)] = &[
        ((regs::CNA_DATA_SIZE1, 29, 16), (k - 1) & 0x3fff),
        ((regs::CNA_DATA_SIZE2, 10, 0), w),
        ((regs::CNA_DATA_SIZE3, 21, 0), w * h),
        ((regs::CNA_FC_DATA_SIZE0, 29, 16), iw),
        ((regs::CNA_FC_DATA_SIZE0, 10, 0), ih),
        ((regs::CNA_FC_DATA_SIZE1, 15, 0), k),
        ((regs::CORE_DATAOUT_SIZE_0, 31, 16), h - 1),
        ((regs::CORE_DATAOUT_SIZE_0, 15, 0), w - 1),
        ((regs::CORE_DATAOUT_SIZE_1, 15, 0), n - 1),
        ((regs::DPU_DATA_CUBE_WIDTH, 12, 0), w - 1),
        ((regs::DPU_DATA_CUBE_HEIGHT, 12, 0), h - 1),
        ((regs::DPU_DATA_CUBE_CHANNEL, 28, 16), n - 1),
        ((regs::DPU_DATA_CUBE_CHANNEL, 12, 0), n - 1),
        ((regs::DPU_WDMA_SIZE_0, 12, 0), n - 1),
        ((regs::DPU_WDMA_SIZE_1, 28, 16), h - 1),
        ((regs::DPU_WDMA_SIZE_1, 12, 0), w - 1),
        ((regs::RDMA_DATA_CUBE_WIDTH, 12, 0), w - 1),
        ((regs::RDMA_DATA_CUBE_HEIGHT, 12, 0), h - 1),
        ((regs::RDMA_DATA_CUBE_CHANNEL, 12, 0), n - 1),
    ];
    for (field, want) in agree {
        expect(r, Rule::SizesDisagree, *field, *want)?;
    }
    Ok(())
}

fn weights(r: &RegFile, c: &Cna, format: Format) -> Result<(), Hang> {
    let row = format.bytes(c.window.taps() * c.channels) as u64;
    expect(r, Rule::WeightSizes, (regs::CNA_WEIGHT_SIZE1, 18, 0), row)?;
    let kernels = if c.depthwise { 1 } else { c.kernels as u64 };
    expect(r, Rule::WeightSizes, (regs::CNA_WEIGHT_SIZE0, 31, 0), row * kernels)
}

/// Both operands must be resident (npu-rk3588 4.1); traps 18 and 19.
fn banks(r: &RegFile, c: &Cna, format: Format) -> Result<(), Hang> {
    let row = c.bytes_per_kernel;
    let features = (format.bytes(c.rows() * c.channels) as u64).div_ceil(BANK_BYTES);
    let need = c.weight_bytes.div_ceil(BANK_BYTES);
    let data = u64::from(r.field(regs::CNA_CBUF_CON0, 3, 0));
    let weight = u64::from(r.field(regs::CNA_CBUF_CON0, 7, 4));
    if features > BANKS - 1 || row > BANK_BYTES && !c.depthwise {
        let message = format!("features need {features} banks, a kernel {row} bytes");
        return Err(Hang::new(Rule::TooLargeForCbuf, message));
    }
    if data + weight != BANKS || data < features {
        let message = format!("DATA_BANK {data}, WEIGHT_BANK {weight}, features need {features}");
        return Err(Hang::new(Rule::BankSplit, message));
    }
    if need > weight {
        let message = format!("weights need {need} banks and have {weight}");
        return Err(Hang::new(Rule::WeightsExceedBanks, message));
    }
    let line = format.bytes(c.window.in_width * c.channels) as u64;
    expect(r, Rule::DataEntries, (regs::CNA_CBUF_CON1, 13, 0), line.div_ceil(ENTRY))
}

/// Trap 17: int8 features that nearly fill their last bank, and no bank after it.
pub fn slack_is_missing(r: &RegFile, c: &Cna) -> Option<String> {
    let bytes = Format::Int8.bytes(c.rows() * c.channels) as u64;
    let data = u64::from(r.field(regs::CNA_CBUF_CON0, 3, 0));
    let last = bytes % BANK_BYTES * 100;
    let trapped = data == bytes.div_ceil(BANK_BYTES) && last > 97 * BANK_BYTES;
    trapped.then(|| format!("{bytes} bytes of features in {data} banks"))
}

/// An fp16 operand cube, one value a pixel and channel (npu-rk3588 6.2).
pub fn check_operand_words(r: &RegFile) -> Result<(), String> {
    let words: &[(Field, u64, &str)] = &[
        ((regs::DPU_EW_CFG, 29, 28), 1, "data mode"),
        ((regs::DPU_EW_CFG, 23, 22), 2, "operand size"),
        ((regs::DPU_EW_CFG, 21, 20), 0, "comparison"),
        ((regs::DPU_EW_CFG, 10, 9), 1, "relu"),
        ((regs::DPU_EW_CFG, 7, 7), 1, "LUT"),
        ((regs::DPU_EW_CFG, 5, 5), 0, "prelu"),
        ((regs::DPU_EW_CFG, 1, 1), 0, "operation bypass"),
        ((regs::DPU_EW_CVT_OFFSET_VALUE, 31, 0), 0, "operand offset"),
        ((regs::DPU_EW_CVT_SCALE_VALUE, 31, 0), 1, "operand scale"),
        ((regs::RDMA_ERDMA_CFG, 31, 30), 1, "ERDMA data mode"),
        ((regs::RDMA_ERDMA_CFG, 3, 2), 2, "ERDMA data size"),
        ((regs::RDMA_FEATURE_MODE_CFG, 17, 15), 2, "RDMA input precision"),
        ((regs::RDMA_FEATURE_MODE_CFG, 7, 5), 2, "RDMA processing precision"),
    ];
    for ((reg, hi, lo), want, what) in words {
        let found = u64::from(r.field(*reg, *hi, *lo));
        if found != *want {
            return Err(format!("{what} is {found}, expected {want}, in {}", regs::name(*reg)));
        }
    }
    if crate::dpu::ElementWise::read(r).is_none() {
        return Err("unknown operation".to_owned());
    }
    Ok(())
}
