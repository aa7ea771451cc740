//! The precision table (npu-rk3588 2.1) and the traps around it.

use super::{Hang, Plan, Rule};
use crate::format::{Format, Out};
use crate::regs::{self, RegFile};

const FP32: u32 = 5;
const TF32: u32 = 7;

/// What a program says about number formats.
#[derive(Debug)]
pub struct Precisions {
    pub format: Format,
    pub out: Out,
    finding: Option<(Rule, String)>,
    silent: bool,
}

/// Reads and checks the precision fields; findings of [`Precisions::tell`] remain.
pub fn read(r: &RegFile) -> Result<Precisions, Hang> {
    let cna_in = r.field(regs::CNA_CONV_CON1, 6, 4);
    let cna_proc = r.field(regs::CNA_CONV_CON1, 9, 7);
    let core = r.field(regs::CORE_MISC_CFG, 10, 8);
    let [out, dpu_in, dpu_proc] =
        [(31, 29), (28, 26), (2, 0)].map(|(hi, lo)| r.field(regs::DPU_DATA_FORMAT, hi, lo));
    let found = format!(
        "CNA in {cna_in} proc {cna_proc}, CORE {core}, DPU in {dpu_in} proc {dpu_proc} out {out}"
    );
    let silent = |rule, out| {
        let format = Format::of_code(cna_in).unwrap_or(Format::Fp16);
        let finding = Some((rule, found.clone()));
        Ok(Precisions { format, out, finding, silent: true })
    };
    if [out, dpu_in, dpu_proc].contains(&TF32) {
        return silent(Rule::DpuPrecision7, Out::Fp32);
    }
    let (Some(format), Some(stored)) = (Format::of_code(cna_in), Out::of_code(out)) else {
        return Err(Hang::new(Rule::NotModelled, format!("precision: {found}")));
    };
    let mut p = Precisions { format, out: stored, finding: None, silent: false };
    // Traps 12 and 13: other blocks, other formats.
    let int4 = [dpu_in, dpu_proc, out] == [6, 6, 1];
    match [cna_in, cna_proc, core] {
        [3, 3, 3] if int4 => {
            p.finding = Some((Rule::Int4AsFloat, found));
            p.format = Format::Int4;
            return Ok(p);
        }
        [TF32, TF32, TF32] if int4 => return silent(Rule::Int4AsTf32, Out::Int16),
        [TF32, TF32, FP32] if [dpu_in, dpu_proc, out] == [FP32; 3] => {
            p.finding = Some((Rule::Tf32AsFp32, found));
            return Ok(p);
        }
        _ => {}
    }
    let dpu = if format == Format::Tf32 { FP32 } else { cna_in };
    if [cna_proc, core, dpu_in, dpu_proc] != [cna_in, cna_in, dpu, dpu] {
        return Err(Hang::new(Rule::PrecisionsDisagree, found));
    }
    let known = match format {
        Format::Fp16 => matches!(stored, Out::Fp16 | Out::Fp32),
        Format::Int8 => matches!(stored, Out::Int32 | Out::Fp32 | Out::Int8),
        Format::Int4 => stored == Out::Int16,
        Format::Int16 => stored == Out::Int32,
        Format::Bf16 | Format::Tf32 => stored == Out::Fp32,
    };
    if !known {
        return Err(Hang::new(Rule::NotModelled, format!("output precision: {found}")));
    }
    let qd = r.bit(regs::CORE_MISC_CFG, 0);
    let want =
        !matches!((format, stored), (Format::Int8, Out::Int32 | Out::Fp32) | (Format::Int4, _));
    if qd != want {
        let message = format!("MISC_CFG.QD_EN is {}: {found}", u8::from(qd));
        return Err(Hang::new(Rule::PrecisionsDisagree, message));
    }
    Ok(p)
}

impl Precisions {
    /// Of a program that stores nothing anyway.
    pub fn unread() -> Precisions {
        Precisions { format: Format::Fp16, out: Out::Fp16, finding: None, silent: true }
    }

    /// Whether nothing is stored.
    pub fn silent(&self) -> bool {
        self.silent
    }

    /// Adds what is wrong with them to the plan.
    pub fn tell(self, plan: &mut Plan) {
        let Some(finding) = self.finding else { return };
        plan.findings.push(finding);
        plan.store_nothing |= self.silent;
        plan.spoil_percent = 100;
    }
}
