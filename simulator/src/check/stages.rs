//! The DPU's stages and its output conversion (npu-rk3588 5.4, B.4; npu-ops 1.3 to 1.7, 2).

use super::geometry::expect;
use super::{Hang, Rule};
use crate::dpu::Dpu;
use crate::format::{Format, Out};
use crate::lut::Tables;
use crate::regs::{self, RegFile};

/// Sizes of the output groups; trap 14.
pub fn surfaces(r: &RegFile, d: &Dpu) -> Result<Option<(Rule, String)>, Hang> {
    let sizes = [(4, 2), (7, 5), (10, 8)].map(|(hi, lo)| r.field(regs::DPU_BS_OW_CFG, hi, lo) + 1);
    if sizes.iter().any(|s| *s != sizes[0]) {
        let message = format!("BS_OW_CFG SIZE_E + 1 = {sizes:?}");
        return Err(Hang::new(Rule::SizesDisagree, message));
    }
    let full = d.group / d.out.atom();
    let message = format!("{} surfaces a group, {full} needed", d.surfaces);
    if d.surfaces > full {
        return Err(Hang::new(Rule::SurfacesTooMany, message));
    }
    Ok((d.surfaces < full).then_some((Rule::SurfacesTooFew, message)))
}

/// What BS, BN and the look-up do to values of `format`.
pub fn check(r: &RegFile, d: &Dpu, format: Format) -> Result<(), Hang> {
    for (cfg, mul, stage) in [
        (regs::DPU_BS_CFG, regs::DPU_BS_MUL_CFG, &d.bs),
        (regs::DPU_BN_CFG, regs::DPU_BN_MUL_CFG, &d.bn),
    ] {
        if r.bit(cfg, 0) {
            continue;
        }
        if stage.addend.is_some() {
            // Addition is the one known operation.
            expect(r, Rule::NotModelled, (cfg, 19, 16), 2)?;
        }
        if stage.relu {
            expect(r, Rule::NotModelled, (cfg, 7, 7), 0)?;
        }
        if stage.factor.is_some() {
            expect(r, Rule::NotModelled, (cfg, 5, 5), 0)?;
            expect(r, Rule::NotModelled, (mul, 15, 0), 0)?;
        }
    }
    if d.bs.factor.is_some() {
        return Err(Hang::new(Rule::NotModelled, "multiplication in BS".to_owned()));
    }
    let biased = d.biased() && format == Format::Int8;
    if d.biased() && !biased || d.bn.addend == Some(crate::stage::Addend::PerChannel) {
        return Err(Hang::new(Rule::NotModelled, "float values of each channel".to_owned()));
    }
    expect(r, Rule::NotModelled, (regs::RDMA_BRDMA_CFG, 4, 1), u64::from(biased))?;
    if d.lookup.is_some() { lookup(r, d) } else { conversion(r, d, format) }
}

fn conversion(r: &RegFile, d: &Dpu, format: Format) -> Result<(), Hang> {
    let to_fp16 = r.bit(regs::DPU_OUT_CVT_SCALE, 16);
    if to_fp16 != (d.out == Out::Fp16) {
        let message = format!("FP32TOFP16_EN with {:?} output", d.out);
        return Err(Hang::new(Rule::OutputFormat, message));
    }
    // Only requantisation adds; MINUS_EXP and CVT_TYPE mean nothing to integers.
    if d.out != Out::Int8 {
        expect(r, Rule::NotModelled, (regs::DPU_OUT_CVT_OFFSET, 31, 0), 0)?;
    }
    if !format.integer() {
        expect(r, Rule::NotModelled, (regs::DPU_OUT_CVT_SCALE, 15, 0), 1)?;
        expect(r, Rule::NotModelled, (regs::DPU_OUT_CVT_SHIFT, 31, 0), 0)?;
    } else {
        expect(r, Rule::NotModelled, (regs::DPU_OUT_CVT_SHIFT, 30, 30), 0)?;
        expect(r, Rule::NotModelled, (regs::DPU_OUT_CVT_SHIFT, 11, 6), 0)?;
    }
    Ok(())
}

fn lookup(r: &RegFile, d: &Dpu) -> Result<(), Hang> {
    for (field, want) in [
        // Nothing but the look-up.
        ((regs::DPU_EW_CFG, 31, 0), 0x300),
        ((regs::DPU_LUT_CFG, 31, 0), 0x68),
        ((regs::DPU_LUT_LE_SLOPE_SCALE, 31, 16), 0),
        ((regs::DPU_LUT_LO_SLOPE_SCALE, 31, 16), 0),
        ((regs::DPU_OUT_CVT_SHIFT, 31, 30), 2),
        ((regs::DPU_OUT_CVT_SHIFT, 11, 0), 0),
        ((regs::DPU_OUT_CVT_SCALE, 16, 16), 1),
    ] {
        expect(r, Rule::NotModelled, field, want)?;
    }
    if d.out != Out::Fp16 || !d.lookup.is_some_and(|l| l.spans_tables()) {
        let message = format!("look-up with {:?} output, or not over whole tables", d.out);
        return Err(Hang::new(Rule::NotModelled, message));
    }
    Ok(())
}

/// Tables that the program did not bring itself.
pub fn tables(d: &Dpu, tables: &Tables) -> Option<(Rule, String)> {
    (d.lookup.is_some() && !tables.complete()).then(|| {
        let message = "the program uploads no or only part of its tables".to_owned();
        (Rule::TablesNotUploaded, message)
    })
}
