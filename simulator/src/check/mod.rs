//! The validation layer: every known rule, by name, checked on the registers of a program before
//! its blocks run (npu-rk3588 4.5, Appendix C).

mod geometry;
mod rules;

pub use rules::{Class, Rule};

use crate::assumptions::{BAD_ROWS_SPOIL_EVERYTHING, FC_DATA_BANK_SPOILS_PERCENT};
use crate::cna::{Cna, Image};
use crate::dpu::{Dpu, ElementWise};
use crate::kernel::space::Fault;
use crate::rdma::Rdma;
use crate::regs::{self, RegFile};

/// Why the core does not complete.
#[derive(Debug)]
pub struct Hang {
    pub rule: Rule,
    pub message: String,
}

impl Hang {
    pub fn new(rule: Rule, message: String) -> Hang {
        Hang { rule, message }
    }
}

impl Rule {
    /// Whether breaking it may wedge the core across jobs (trap 4).
    pub(crate) fn wedges(self) -> bool {
        matches!(self, Rule::MrdmaWithoutFeed | Rule::OperandHalfArmed)
    }
}

/// An IOMMU fault as a hang (trap 30).
pub fn unmapped(fault: Fault, what: &str) -> Hang {
    let access = if fault.write { "write to" } else { "read of" };
    let message = format!("{access} unmapped IOVA 0x{:08x} ({what})", fault.iova);
    Hang::new(Rule::UnmappedAddress, message)
}

/// As [`unmapped`], with the register that named the address.
pub fn unmapped_in(fault: Fault, register: u16, what: &str) -> Hang {
    unmapped(fault, &format!("{what} by {}", regs::name(register)))
}

/// A program that may run, and what is wrong with it nevertheless.
#[derive(Debug)]
pub struct Plan {
    pub extents: Extents,
    pub cna: Cna,
    pub dpu: Dpu,
    pub rdma: Rdma,
    pub findings: Vec<(Rule, String)>,
    pub store_nothing: bool,
    pub spoil_percent: u64,
}

/// The mask of every matmul and convolution (npu-rk3588 1.3).
const MASK_CONV: u32 = 0x1d;
/// The same without DPU-RDMA (trap 2).
const MASK_NO_RDMA: u32 = 0x0d;
const MASK_LUT: u32 = 0x18;
const MASK_PPU: u32 = 0x60;

/// What a core keeps from the task before, for reuse bits (npu-rk3588 4.3).
#[derive(Debug)]
pub struct Kept<'a> {
    pub feature: &'a Image,
    pub weight: &'a Image,
    pub last: Option<Extents>,
    /// The task to check is the first of its job.
    pub first: bool,
}

/// What must not change between a task and one that reuses its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    pub shape: crate::core::Shape,
    pub data_bank: u32,
}

/// Checks the program in the registers.
pub fn program(r: &RegFile, mask: u32, kept: &Kept<'_>) -> Result<Plan, Hang> {
    let cna = Cna::read(r);
    let mut plan = Plan {
        extents: Extents {
            shape: crate::core::Shape { m: cna.rows(), k: cna.channels, n: cna.kernels },
            data_bank: r.field(regs::CNA_CBUF_CON0, 3, 0),
        },
        cna,
        dpu: Dpu::read(r),
        rdma: Rdma::read(r),
        findings: Vec::new(),
        store_nothing: false,
        spoil_percent: 0,
    };
    check_mask(mask)?;
    check_written(r, &mut plan)?;
    if plan.store_nothing {
        return Ok(plan);
    }
    check_precisions(r, &mut plan)?;
    check_operand_feed(r, &plan)?;
    geometry::check(r, &plan.cna)?;
    check_output(r, &mut plan)?;
    if plan.store_nothing {
        return Ok(plan);
    }
    check_operand_cube(&mut plan);
    check_reuse(&mut plan, kept);
    check_spoilers(r, &mut plan);
    Ok(plan)
}

fn check_mask(mask: u32) -> Result<(), Hang> {
    let found = format!("mask 0x{mask:02x}");
    match mask {
        MASK_CONV => Ok(()),
        MASK_NO_RDMA => Err(Hang::new(Rule::EnableWithoutRdma, found)),
        MASK_LUT => Err(Hang::new(Rule::NotModelled, format!("{found}: LUT pass"))),
        MASK_PPU => Err(Hang::new(Rule::NotModelled, format!("{found}: pooling"))),
        _ => Err(Hang::new(Rule::UnknownMask, found)),
    }
}

/// Traps 1 and 9: registers that the program left to others.
fn check_written(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
    let missing: Vec<u16> =
        regs::NAMES.iter().map(|(o, _)| *o).filter(|o| !r.written_by_program(*o)).collect();
    let rdma = |o: &&u16| **o >> 12 == 5;
    let all_rdma = regs::NAMES.iter().filter(|(o, _)| rdma(&o)).count();
    if missing.iter().filter(rdma).count() == all_rdma {
        let message = "the program writes no DPU-RDMA register".to_owned();
        return Err(Hang::new(Rule::MrdmaWithoutFeed, message));
    }
    let Some(&one) = missing.first() else { return Ok(()) };
    let message = format!("{} not written, {} in all", regs::name(one), missing.len());
    if missing.iter().all(|o| r.written_in_job(*o)) {
        plan.findings.push((Rule::DeltaProgram, message));
    } else {
        plan.findings.push((Rule::RegistersNotWritten, message));
        plan.store_nothing = true;
    }
    Ok(())
}

/// Table 2.1 of npu-rk3588, for fp16 input; trap 11.
fn check_precisions(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
    const FP16: u32 = 2;
    let cna_in = r.field(regs::CNA_CONV_CON1, 6, 4);
    let cna_proc = r.field(regs::CNA_CONV_CON1, 9, 7);
    let core = r.field(regs::CORE_MISC_CFG, 10, 8);
    let [out, dpu_in, dpu_proc] =
        [(31, 29), (28, 26), (2, 0)].map(|(hi, lo)| r.field(regs::DPU_DATA_FORMAT, hi, lo));
    let found = format!(
        "CNA in {cna_in} proc {cna_proc}, CORE {core}, DPU in {dpu_in} proc {dpu_proc} out {out}"
    );
    if [out, dpu_in, dpu_proc].contains(&7) {
        plan.findings.push((Rule::DpuPrecision7, found));
        plan.store_nothing = true;
        return Ok(());
    }
    if cna_in != FP16 && cna_in == cna_proc {
        return Err(Hang::new(Rule::NotModelled, format!("input precision: {found}")));
    }
    if [cna_in, cna_proc, core, dpu_in, dpu_proc] != [FP16; 5] {
        return Err(Hang::new(Rule::PrecisionsDisagree, found));
    }
    if !r.bit(regs::CORE_MISC_CFG, 0) {
        let message = "MISC_CFG.QD_EN is clear for fp16".to_owned();
        return Err(Hang::new(Rule::PrecisionsDisagree, message));
    }
    match out {
        2 | 5 => Ok(()),
        _ => Err(Hang::new(Rule::NotModelled, format!("output precision: {found}"))),
    }
}

/// Traps 1 and 3: who feeds the element-wise stage.
fn check_operand_feed(r: &RegFile, plan: &Plan) -> Result<(), Hang> {
    const COMB_BOTH: u32 = 5;
    let cfg = r.get(regs::DPU_EW_CFG);
    let armed = !r.bit(regs::DPU_EW_CFG, 0);
    let from_rdma = r.bit(regs::DPU_EW_CFG, 6);
    let d = &plan.rdma;
    let found = format!(
        "EW_CFG 0x{cfg:08x}, ERDMA {}, MRDMA {}, COMB_USE {}",
        if d.erdma_on { "on" } else { "off" },
        if d.mrdma_on { "on" } else { "off" },
        d.comb_use
    );
    if armed && from_rdma != d.erdma_on || !armed && d.erdma_on {
        return Err(Hang::new(Rule::OperandHalfArmed, found));
    }
    if armed && !from_rdma {
        return Err(Hang::new(Rule::NotModelled, format!("operand from registers: {found}")));
    }
    if d.mrdma_on && (d.comb_use != COMB_BOTH || !armed) {
        return Err(Hang::new(Rule::MrdmaWithoutFeed, found));
    }
    if armed && !d.mrdma_on {
        return Err(Hang::new(Rule::OperandHalfArmed, found));
    }
    if armed {
        return geometry::check_operand_words(r).map_err(|why| {
            Hang::new(Rule::NotModelled, format!("operand configuration: {why}; {found}"))
        });
    }
    Ok(())
}

/// Trap 14 and the output conversion.
fn check_output(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
    let sizes = [(4, 2), (7, 5), (10, 8)].map(|(hi, lo)| r.field(regs::DPU_BS_OW_CFG, hi, lo) + 1);
    if sizes.iter().any(|s| *s != sizes[0]) {
        let message = format!("BS_OW_CFG SIZE_E + 1 = {sizes:?}");
        return Err(Hang::new(Rule::SizesDisagree, message));
    }
    let d = &plan.dpu;
    let full = crate::core::KERNEL_GROUP / d.atom();
    let message = format!("{} surfaces a group, {full} needed", d.surfaces);
    if d.surfaces > full {
        return Err(Hang::new(Rule::SurfacesTooMany, message));
    }
    if d.surfaces < full {
        plan.findings.push((Rule::SurfacesTooFew, message));
    }
    if r.bit(regs::DPU_OUT_CVT_SCALE, 16) == d.wide {
        let message = format!("FP32TOFP16_EN with {} output", if d.wide { "fp32" } else { "fp16" });
        return Err(Hang::new(Rule::OutputFormat, message));
    }
    if d.operand.is_some() && d.wide {
        return Err(Hang::new(Rule::NotModelled, "operand with fp32 output".to_owned()));
    }
    Ok(())
}

/// Traps 21 to 23: where the operand cube lies.
fn check_operand_cube(plan: &mut Plan) {
    let (d, op) = (&plan.dpu, &plan.rdma);
    let Some(kind) = d.operand else { return };
    let size = op.surface_bytes();
    if op.stuck() {
        let message = format!("SURF_NOTCH {} EW_SURF_NOTCH {}", op.notch, op.ew_notch);
        plan.findings.push((Rule::OperandNotchZero, message));
    } else if op.channels > crate::core::KERNEL_GROUP && (op.notch, op.ew_notch) != (size, size) {
        let message = format!(
            "notches {} and {}, surfaces of {size} bytes (M = {}, N = {})",
            op.notch, op.ew_notch, op.rows, op.channels
        );
        plan.findings.push((Rule::OperandMisstrided, message));
    }
    let overlap = op
        .surface_list()
        .find(|(_, a, _)| d.surface_list().any(|(_, o)| *a < o + size && o < *a + size));
    if let Some((_, at, _)) = overlap {
        let what = if kind == ElementWise::Add { "accumulation" } else { "operand" };
        let message =
            format!("{what} in place: operand surface at 0x{at:08x} is stored to as well");
        plan.findings.push((Rule::OperandInPlace, message));
        plan.spoil_percent = 100;
    }
}

/// Trap 20: what a reuse bit takes must be what this task would have fetched.
fn check_reuse(plan: &mut Plan, kept: &Kept<'_>) {
    let c = &plan.cna;
    let both = [
        (c.data_reuse, "DATA_REUSE", kept.feature, (c.feature_addr, c.rows(), c.channels)),
        (c.weight_reuse, "WEIGHT_REUSE", kept.weight, (c.weight_addr, c.kernels, c.channels)),
    ];
    for (on, bit, image, (addr, rows, depth)) in both {
        if !on {
            continue;
        }
        if kept.first {
            let message = format!("{bit} on the first task of a job");
            plan.findings.push((Rule::StaleReuse, message));
        } else if (image.addr, image.rows, image.depth) != (addr, rows, depth) {
            let message = format!(
                "{bit}: kept {}x{} from 0x{:08x}, wanted {rows}x{depth} from 0x{addr:08x}",
                image.rows, image.depth, image.addr
            );
            plan.findings.push((Rule::StaleReuse, message));
        } else if let Some(last) = kept.last.filter(|last| *last != plan.extents) {
            let message = format!("{bit}: {last:?} before, {:?} now", plan.extents);
            plan.findings.push((Rule::StaleReuse, message));
            // With another split the operand does not lie where this task looks for it.
            if last.data_bank != plan.extents.data_bank {
                plan.spoil_percent = 100;
            }
        }
    }
    if c.data_reuse && c.weight_reuse {
        plan.findings.push((Rule::BothReuseBits, "DATA_REUSE and WEIGHT_REUSE".to_owned()));
    }
}

/// Traps 15 and 18: programs that complete with noise.
fn check_spoilers(r: &RegFile, plan: &mut Plan) {
    let rows = plan.cna.rows();
    if !rows.is_multiple_of(4) {
        plan.findings.push((Rule::RowsNotMultipleOf4, format!("M = {rows}")));
        plan.spoil_percent = if BAD_ROWS_SPOIL_EVERYTHING { 100 } else { plan.spoil_percent };
    }
    let bank = r.field(regs::CNA_CBUF_CON0, 10, 8);
    if bank != 0 {
        plan.findings.push((Rule::FcDataBank, format!("FC_DATA_BANK = {bank}")));
        plan.spoil_percent = plan.spoil_percent.max(FC_DATA_BANK_SPOILS_PERCENT);
    }
}
